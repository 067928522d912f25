"""The health check of Argo CD on the page about GitOps, run on the statuses of Jobs."""

import re
import textwrap
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonset_job.api.job import Job
from tests.unit.builders import NOW, SampleCluster, done, make_cluster
from tests.unit.core.runs import failing, run, spec, three_nodes
from tests.unit.core.standing_jobs import standing

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/gitops.md"
KEY = "resource.customizations.health.daemonset.darkowlzz.space_Job"


class Table(dict[str, Any]):
    """A table of Lua: a field that is missing is nil."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def lua_script() -> str:
    (block,) = re.findall(r"(?ms)^```yaml\n(data:.*?)^```", PAGE.read_text(encoding="utf-8"))
    return str(yaml.safe_load(block)["data"][KEY])


def python_of(script: str) -> str:
    """Return Python that does the same as a Lua script of assignments, branches and loops."""
    lines = []
    for line in script.splitlines():
        found = line.replace("~=", "!=").replace("nil", "None").replace("local ", "")
        found = re.sub(r"= \{(.*)\}$", r"= Table(\1)", found)
        found = re.sub(r"for _, (\w+) in ipairs\((.*) or \{\}\) do$", r"for \1 in \2 or ():", found)
        found = re.sub(r"\bif (.*) then\b(.*?)( end)?$", r"if \1:\2", found)
        if found.strip() != "end":
            lines.append(found)
    return "def check(obj):\n" + textwrap.indent("\n".join(lines), "    ")


def table(raw: Any) -> Any:
    if isinstance(raw, dict):
        return Table({key: table(value) for key, value in raw.items()})
    return [table(each) for each in raw] if isinstance(raw, list) else raw


def health(job: Job | None = None, **body: Any) -> tuple[str, str]:
    """Return what Argo CD shows of a Job: its health and a message."""
    if job is not None:
        body = {"metadata": {"generation": job.generation}, "status": job.status.to_raw()}
    known: dict[str, Any] = {"Table": Table}
    exec(python_of(lua_script()), known)
    found = known["check"](table(body))
    return found.status, found.message


def completed() -> SampleCluster:
    return make_cluster("a", "b", gated=True, evidence={name: done(name) for name in "ab"})


def failed_standing() -> SampleCluster:
    cluster = standing("a")
    cluster.pods[0] = replace(failing("a"), revision=cluster.job.revision)
    return cluster


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: make_cluster("a", "b", gated=True), "Progressing"),
        (completed, "Healthy"),
        (three_nodes, "Degraded"),
        (lambda: spec(make_cluster("a", gated=True), suspend=True), "Suspended"),
        (lambda: standing("a", completed=("a",)), "Healthy"),
        (lambda: standing("a"), "Progressing"),
        (failed_standing, "Degraded"),
    ],
    ids=["at work", "complete", "failed", "suspended", "stays", "a node joined", "stays and fails"],
)
def test_the_health_is_that_of_the_run(make, expected):
    cluster = make()
    run(cluster)
    run(cluster, NOW + timedelta(seconds=30))
    found, message = health(cluster.job)
    assert found == expected
    assert message == cluster.job.status.condition("Progressing").message


def test_a_job_that_was_not_seen_yet_is_progressing():
    found = health(metadata={"generation": 1})
    assert found == ("Progressing", "the Job was not seen yet")
    status = {"observedGeneration": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    assert health(metadata={"generation": 2}, status=status)[0] == "Progressing"
    assert health(metadata={"generation": 1}, status={"observedGeneration": 1})[0] == "Progressing"
