"""A rollout with Jobs of its own, whose controller is killed after every single write."""

from functools import partial

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, PODS
from tests.integration.crashes import DEATHS, Play, assert_same, play_all
from tests.integration.harness import Harness
from tests.integration.simulated_nodes import OWNER_LABEL, TaskRun
from tests.integration.task_runs import EXIT, SUCCEEDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NODES = ("a", "b")
ROLLOUT = {
    "maxParallel": 1,
    "pullImagesFirst": True,
    "steps": [{"nodes": 1, "check": {"script": {"script": "true"}}}],
}


def new_run() -> Play:
    began: list[str] = []

    def behaviour(node: str, start: int) -> TaskRun:
        """What is started first on a node is the pull, then the task, and on a the script."""
        began.append(f"{node}{start}")
        return SUCCEEDS

    return Play(NODES, behaviour, partial(_script, began=began))


async def _script(found: Harness, *, began: list[str]) -> None:
    own = {"selector": {"matchLabels": {OWNER_LABEL: found.nodes.id}}}
    await found.apply({"image": "example/task:v1", "nodes": own, "rollout": ROLLOUT, **EXIT})
    # Five such runs are played side by side, each of three Jobs one after the other.
    await found.wait_deleted(JOBS, "sample", seconds=90)
    for name in ("sample", "sample-image-pull", "sample-check-1"):
        await found.wait_deleted(DAEMON_SETS, f"{name}-daemonset-job")

    async def no_pods() -> bool:
        return not await found.all(PODS)

    await found.wait_until(no_pods, "pods gone")
    assert sorted(began[:2]) == ["a1", "b1"], "both pull"
    assert began[2:] == ["a2", "a3", "b2"], "the task on a, its check, and the task on b"


@DEATHS
async def test_killed_after_any_write_a_rollout_pulls_and_checks_once(kube_env, namespace, deaths):
    undisturbed, played = await play_all(kube_env, namespace, "controller", new_run, deaths)
    phases = {
        raw["spec"]["job"]["name"]: raw["status"]["phase"] for raw in undisturbed.outcome.reports
    }
    assert phases == dict.fromkeys(("sample", "sample-image-pull", "sample-check-1"), "Succeeded")
    assert_same("controller", undisturbed, played)
