"""A template by which the script would not run is reported before the start."""

from typing import Any

import pytest

from daemonset_job.api.job_spec import parse_spec
from job_controller.core.decide import decide
from job_controller.core.desired.template_conflict import find_template_conflict
from tests.unit.builders import NOW, make_cluster, make_job
from tests.unit.core.runs import conditions, run
from tests.unit.core.standing_jobs import change, standing


def scripted(task: dict[str, Any], where: str = "containers", **spec: Any) -> Any:
    pod = {where: [{"name": "job-container", **task}]}
    return parse_spec({"script": "true", "template": {"spec": pod}, **spec})


@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize("mode", ["Log", "Exit"])
@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"command": ["sleep"]}, "the command of job-container"),
        ({"env": [{"name": "COMPLETION_TOKEN", "value": "x"}]}, "the variable COMPLETION_TOKEN"),
        ({"env": [{"name": "HOST_EXEC", "value": "x"}]}, "the variable HOST_EXEC"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/task.d"}]}, "what is mounted at /task.d"),
        ({"volumeMounts": [{"name": "a", "mountPath": "//task.d/."}]}, "mounted at /task.d"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/run/daemonset-job/"}]}, "/run/daemonset"),
    ],
)
def test_a_field_that_keeps_the_script_from_running_is_named(
    task: dict[str, Any], words: str, where: str, mode: str
) -> None:
    conflict = find_template_conflict(scripted(task, where, completion={"mode": mode}))
    assert words in conflict
    assert conflict.endswith(": remove it")


@pytest.mark.parametrize("context", [None, {"privileged": False}])
def test_on_the_host_a_lack_of_privileges_is_named(context: dict[str, Any] | None) -> None:
    task = {"securityContext": context}
    assert "securityContext.privileged" in find_template_conflict(scripted(task, hostExec=True))
    assert find_template_conflict(scripted(task)) == ""


@pytest.mark.parametrize(
    "spec",
    [
        {"script": "true"},
        {"script": "true", "template": {"spec": {"containers": None}}},
        scripted({"env": [{"name": "NODE_NAME", "value": "a"}, {"name": "X", "value": "b"}]}),
        scripted({"volumeMounts": [{"name": "a", "mountPath": "/task.data"}]}),
        scripted({"command": []}),
        # Of an image of the user's own these are just variables.
        scripted({"env": [{"name": "COMPLETION_MODE"}]}, image="a", completion={"mode": "Exit"}),
        {"image": "a", "template": {"spec": {"containers": [{"name": "job-container"}]}}},
        {"script": "true", "template": {"spec": {"containers": ["odd", {"command": ["x"]}]}}},
    ],
)
def test_other_templates_have_no_conflict(spec: Any) -> None:
    assert find_template_conflict(parse_spec(spec) if isinstance(spec, dict) else spec) == ""


def test_a_job_with_a_conflict_does_not_start_until_it_is_corrected() -> None:
    bad = scripted({"env": [{"name": "COMPLETION_TOKEN", "value": "x"}]})
    job = make_job(spec=bad)
    cluster = make_cluster("a", job=job, has_daemon_set=False, has_report=False, running=False)
    assert [event.reason for event in run(cluster).events] == ["TemplateConflict"]
    assert conditions(cluster)["Progressing"] == ("False", "TemplateConflict")
    assert cluster.job.status.start_time is None
    change(cluster, template={})
    (tried,) = decide(cluster.snapshot(), NOW).actions
    assert type(tried).__name__ == "DryRunDaemonSet"


def test_a_job_that_stays_shows_a_conflict_that_it_got_later() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    template = {"spec": {"containers": [{"name": "job-container", "command": ["sleep"]}]}}
    change(cluster, image="", script="true", template=template)
    run(cluster)
    assert conditions(cluster)["Progressing"] == ("False", "TemplateConflict")
    change(cluster, template={})
    run(cluster)
    assert conditions(cluster)["Progressing"][1] != "TemplateConflict"
