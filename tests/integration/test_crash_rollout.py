"""A rollout whose controller is killed after every single write: one node at a time, always."""

import asyncio
from functools import partial

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, PODS
from tests.integration.crashes import DEATHS, Play, assert_same, play_all
from tests.integration.harness import Harness
from tests.integration.simulated_nodes import OWNER_LABEL, TaskRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NODES = ("a", "b", "c")
# How long a second task would have to start that must not.
LOOK_SECONDS = 0.4


def new_run() -> Play:
    began: list[str] = []
    may_end = {node: asyncio.Event() for node in NODES}

    def behaviour(node: str, start: int) -> TaskRun:
        began.append(node)
        return TaskRun(after=may_end[node])

    return Play(NODES, behaviour, partial(_script, began=began, may_end=may_end))


async def _script(found: Harness, *, began: list[str], may_end: dict[str, asyncio.Event]) -> None:
    own = {"selector": {"matchLabels": {OWNER_LABEL: found.nodes.id}}}
    rollout = {"maxParallel": 1, "steps": [{"nodes": 1, "soakSeconds": 1}]}
    await found.apply({"image": "example/task:v1", "nodes": own, "rollout": rollout})
    for count in range(1, len(NODES) + 1):

        async def has_begun(count: int = count) -> bool:
            return len(began) >= count

        await found.wait_until(has_begun, f"node {count} began")
        await asyncio.sleep(LOOK_SECONDS)
        assert len(began) == count, f"{began}: more than one at a time"
        may_end[began[-1]].set()
    await found.wait_deleted(JOBS, "sample")
    await found.wait_deleted(DAEMON_SETS, "sample-daemonset-job")

    async def no_pods() -> bool:
        return not await found.all(PODS)

    await found.wait_until(no_pods, "pods gone")
    assert began == list(NODES), "in the order of their names, each once"


@DEATHS
async def test_killed_after_any_write_a_rollout_keeps_its_limit_and_its_order(
    kube_env, namespace, deaths
):
    undisturbed, played = await play_all(kube_env, namespace, "controller", new_run, deaths)
    (report,) = undisturbed.outcome.reports
    assert report["status"]["phase"] == "Succeeded"
    records = report["status"]["nodeStates"]
    assert {node: record["step"] for node, record in records.items()} == {"a": 1, "b": 2, "c": 2}
    assert all(record["turnAt"] for record in records.values())
    assert_same("controller", undisturbed, played)
