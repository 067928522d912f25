"""Killed after every single write, and started again: the same end, the same work, the same record.

One run is played over and over: a node's task fails once and then completes, a completed node's
pod is deleted, a node joins late. Each time the controller, or the terminator, dies after another
one of its writes.
"""

import asyncio
from functools import partial
from typing import Any

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, PODS
from tests.integration.crashes import DEATHS, Play, assert_same, play_all
from tests.integration.harness import Harness
from tests.integration.simulated_nodes import OWNER_LABEL, TaskRun, is_gated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DAEMON_SET = "sample-daemonset-job"


def new_run() -> Play:
    go = asyncio.Event()

    def behaviour(node: str, start: int) -> TaskRun:
        if node == "a":
            return TaskRun(lines=("no luck",), exit_code=1) if start == 1 else TaskRun(after=go)
        return TaskRun()

    return Play(("a", "b"), behaviour, partial(_script, go=go))


async def _script(found: Harness, *, go: asyncio.Event) -> None:
    nodes = found.nodes
    # The runs share an API server: a node that joins another one is tainted for a moment, and would
    # count as skipped here.
    own = {"selector": {"matchLabels": {OWNER_LABEL: nodes.id}}}
    await found.apply({"image": "example/task:v1", "nodes": own})

    async def under_way() -> Any:
        job, made = await found.find(JOBS, "sample"), await found.find(DAEMON_SETS, DAEMON_SET)
        counts = ((job or {}).get("status") or {}).get("nodes") or {}
        return (
            counts.get("completed") == 1
            and counts.get("active") == 1
            and nodes.executions["a"] == 2
            and made is not None
            and is_gated(made["spec"]["template"])
        )

    await found.wait_until(under_way, "b completed, a at its second attempt, the gate up")
    await found.wait_gated(DAEMON_SET)
    first = (await found.pods())["b"][0]
    await found.admin.delete(PODS, first["metadata"]["name"], found.namespace)

    async def succeeded() -> Any:
        pods = (await found.pods()).get("b") or []
        return [pod for pod in pods if pod["metadata"]["uid"] != first["metadata"]["uid"]]

    (successor,) = await found.wait_until(succeeded, "a successor of b's pod")
    assert is_gated(successor)
    await nodes.join("c")
    await found.wait_job(
        lambda status: status["nodes"]["completed"] == 2, "the late node completed"
    )
    go.set()
    await found.wait_deleted(JOBS, "sample")
    await found.wait_deleted(DAEMON_SETS, DAEMON_SET)

    async def no_pods() -> bool:
        return not await found.all(PODS)

    await found.wait_until(no_pods, "pods gone")


@DEATHS
@pytest.mark.parametrize("victim", ["controller", "terminator"])
async def test_killed_after_any_write_it_ends_the_same(kube_env, namespace, victim, deaths):
    undisturbed, played = await play_all(kube_env, namespace, victim, new_run, deaths)
    outcome = undisturbed.outcome
    assert outcome.executions == {"a": 2, "b": 1, "c": 1}
    assert outcome.left == []
    (report,) = outcome.reports
    assert report["status"]["phase"] == "Succeeded"
    states = report["status"]["nodeStates"]
    assert {node: (s["state"], s["attempts"]) for node, s in states.items()} == {
        "a": ("Completed", 2),
        "b": ("Completed", 1),
        "c": ("Completed", 1),
    }
    assert_same(victim, undisturbed, played)
