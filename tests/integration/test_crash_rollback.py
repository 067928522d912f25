"""A rollout that fails and is rolled back; a program is killed after every single write of it."""

import asyncio
from functools import partial
from typing import Any

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, PODS
from tests.integration.crashes import DEATHS, Play, assert_same, play_all
from tests.integration.harness import Harness, condition
from tests.integration.simulated_nodes import OWNER_LABEL, Raw, TaskRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NODES = ("a", "b", "c")
# How long a further start would have to happen that must not.
LOOK_SECONDS = 1.0
SPEC = {
    "image": "example/task:v1",
    "args": ["apply"],
    "completion": {"failureToken": "failed"},
    "rollback": {"args": ["undo"]},
    "failurePolicy": {"action": "Rollback"},
    "rollout": {"maxParallel": 1},
}


def new_run() -> Play:
    began: list[str] = []

    def behaviour(node: str, start: int) -> TaskRun:
        """The task fails on b; what is started next on a node is the rollback."""
        began.append(f"{node}{start}")
        return TaskRun(lines=("failed",)) if (node, start) == ("b", 1) else TaskRun()

    return Play(NODES, behaviour, partial(_script, began=began))


async def _script(found: Harness, *, began: list[str]) -> None:
    own = {"selector": {"matchLabels": {OWNER_LABEL: found.nodes.id}}}
    await found.apply({**SPEC, "nodes": own})

    async def is_undone() -> Any:
        job = await found.find(JOBS, "sample")
        return job is not None and _condition(job, "RolledBack").get("status") == "True"

    await found.wait_until(is_undone, "rolled back", seconds=90)
    await asyncio.sleep(LOOK_SECONDS)
    assert began == ["a1", "b1", "a2", "b2"], "each task once, then each rollback once; c never"
    job = await found.find(JOBS, "sample")
    assert job is not None
    assert _condition(job, "Failed")["status"] == "True"
    rollback = job["status"]["rollback"]
    assert (rollback["desired"], rollback["completed"]) == (2, 2)
    (owned,) = [raw for raw in await found.all(JOBS) if raw["metadata"]["name"] != "sample"]
    assert rollback["jobs"] == [owned["metadata"]["name"]] == ["sample-rollback"]
    assert owned["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    await found.admin.delete(JOBS, "sample", found.namespace)
    for name in ("sample", "sample-rollback"):
        await found.wait_deleted(JOBS, name)
        await found.wait_deleted(DAEMON_SETS, f"{name}-daemonset-job")

    async def no_pods() -> bool:
        return not await found.all(PODS)

    await found.wait_until(no_pods, "pods gone")


def _condition(job: Raw, type_: str) -> Raw:
    return condition(job.get("status") or {}, type_)


@DEATHS
@pytest.mark.parametrize("victim", ["controller", "terminator"])
async def test_killed_after_any_write_a_run_is_rolled_back_once(
    kube_env, namespace, victim, deaths
):
    undisturbed, played = await play_all(kube_env, namespace, victim, new_run, deaths)
    phases = {
        raw["spec"]["job"]["name"]: raw["status"]["phase"] for raw in undisturbed.outcome.reports
    }
    assert phases == {"sample": "Failed", "sample-rollback": "Succeeded"}
    assert_same(victim, undisturbed, played)
