"""A failed node counts as failed while its pod is deleted, and until there is the next one."""

from dataclasses import replace

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.taints import Taint
from tests.unit.core.rollouts import RolloutWorld

ENDS = [(FailureAction.PAUSE, "Paused"), (FailureAction.FAIL_FAST, "Failed")]


def make_world(action, allowed=0):
    policy = FailurePolicy(action, max_failed_nodes=allowed)
    world = RolloutWorld("a", "b", "c", rollout=Rollout(max_parallel=1), failure_policy=policy)
    # 20 s after the start, turns wait for no first pod.
    world.step(20)
    return world


@pytest.mark.parametrize(("action", "phase"), ENDS)
def test_no_more_nodes_fail_than_may_while_one_of_them_has_no_pod(action, phase):
    world = make_world(action, allowed=1)
    world.fail("a")
    world.step(40)
    world.take_pod("a")
    world.step(5)
    world.fail("b")
    world.step(40)
    assert world.started == ["a", "b"]
    assert world.phase == phase
    totals = world.cluster.job.status.nodes
    assert (totals.desired, totals.failed, totals.waiting) == (3, 2, 1)


@pytest.mark.parametrize("field", ["suspend", "stop"])
def test_a_run_that_is_resumed_while_a_failed_node_has_no_pod_is_paused(field):
    world = make_world(FailureAction.PAUSE)
    job = world.cluster.job
    held = {
        "suspend": replace(job, spec=replace(job.spec, suspend=True)),
        "stop": replace(job, stop_message="stopped"),
    }
    world.cluster.job = held[field]
    world.step()
    world.fail("a")
    world.step(40)
    world.take_pod("a")
    world.step(2)
    world.cluster.job = replace(job, status=world.cluster.job.status)
    world.step(10)
    assert world.started == ["a"]
    assert world.condition("Suspended")[1] == "MaxFailedNodesExceeded"
    assert "1 of 3 nodes failed: a " in world.condition("Suspended")[2]


@pytest.mark.parametrize(("action", "phase"), ENDS)
def test_a_crash_before_the_status_and_the_loss_of_the_pod_start_no_node(action, phase):
    world = make_world(action)
    world.fail("a")
    before = world.cluster.job.status
    while "Failed" not in str((world.cluster.report_status or {}).get("nodeStates")):
        before = world.cluster.job.status
        world.step()
    world.cluster.job = replace(world.cluster.job, status=before)
    world.take_pod("a")
    world.step(10)
    assert (world.started, world.phase) == (["a"], phase)


@pytest.mark.parametrize("how", ["completed", "tainted", "retried", "replaced"])
def test_a_node_that_has_not_failed_or_is_not_desired_does_not_count(how):
    world = make_world(FailureAction.PAUSE, allowed=1)
    world.fail("a")
    world.step(40)
    match how:
        case "completed":
            world.complete("a")
            world.take_pod("a")
        case "tainted":
            taint = Taint("dedicated", "NoSchedule")
            world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], taints=(taint,))
            world.take_pod("a")
        case "retried":
            world.retry()
            world.take_pod("a")
        case "replaced":
            world.replace("a")
            world.take_pod("a")
    world.step(5)
    assert world.cluster.job.status.nodes.failed == 0
