"""On which nodes a run is rolled back: those whose task started, by their UID."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.node_totals import NodeTotals
from job_controller.core.settings import Settings
from tests.unit.builders import gated_pod, make_node, make_pod
from tests.unit.core.rollbacks import RollbackWorld

CONTINUE = {"action": "Continue"}


def test_a_new_node_with_the_name_of_a_failed_one_is_not_rolled_back():
    """Its record keeps the failures of the one before. The task may have changed that machine."""
    world = RollbackWorld("a", "b", "c", failurePolicy=CONTINUE)
    world.run_until_failure("b")
    world.remove("b")
    world.step()
    world.cluster.nodes["b"] = make_node("b", uid="another")
    world.put(gated_pod("b", serial=2))
    world.step()
    assert world.report["nodeStates"]["b"]["failures"][0]["exitCode"] == 2
    assert world.started.count("b") == 1
    world.ask()
    world.complete(*world.at_work)
    world.step(6)
    assert world.included() == ["a", "c"]
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.message.endswith("not rolled back, because away, tainted or gone: b")


@pytest.mark.parametrize("is_over", [False, True])
def test_a_completed_node_that_is_registered_again_is_named(is_over):
    """Its record is about the new node. The task may have done its work on the same machine."""
    world = RollbackWorld("a", "b", "c", rollout={"maxParallel": 2})
    world.step(3)
    world.complete("a")
    world.step(2)
    if is_over:
        world.fail("b")
        world.step(2)
    world.replace("a")
    world.step(2)
    assert world.report["nodeStates"]["a"]["uid"] == "a-uid-2"
    if not is_over:
        world.fail("b")
    world.step(3)
    world.complete("c")
    world.step(3)
    assert world.included() == ["b", "c"]
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.message == (
        "2 of 3 nodes are rolled back; not rolled back, because away, tainted or gone: a"
    )


def test_a_node_that_failed_and_is_retried_is_rolled_back():
    """The next try has not begun. What the earlier one did is still on the node."""
    world = RollbackWorld("a", "b", "c", failurePolicy={"action": "Pause"})
    world.run_until_failure("b")
    world.retry()
    world.step(3)
    assert world.report["nodeStates"]["b"]["state"] == "Waiting"
    assert world.report["nodeStates"]["b"]["attempts"] == 10
    world.ask()
    world.complete(*world.at_work)
    world.step(6)
    assert world.started == ["a", "b", "c"]
    assert world.included() == ["a", "b", "c"]


LIMIT = timedelta(seconds=Settings().timeouts.unreachable_seconds)


def world_whose_task_is_stopped(**changes) -> RollbackWorld:
    """Return a run that is to be rolled back; the failed task of b is being ended."""
    world = RollbackWorld("a", "b", **{"failurePolicy": CONTINUE, **changes})
    world.run_until_failure("b")
    world.ask()
    world.put(replace(make_pod("b"), is_terminating=True))
    world.step(3)
    assert world.message == "the rollback waits for the tasks that are at work on b"
    return world


@pytest.mark.parametrize("has_pod", [True, False])
def test_the_clock_of_a_node_does_not_leave_it_out(has_pod):
    """It has not been Ready for a moment, by a clock that is an hour behind. Nothing desires it."""
    world = world_whose_task_is_stopped()
    world.lose("b")
    world.seen = timedelta(seconds=1)
    if not has_pod:
        world.take_pod("b")
    world.step(3)
    if has_pod:
        assert world.message == "the rollback waits for the tasks that are at work on b"
        world.take_pod("b")
        world.step(3)
    assert world.included() == ["a", "b"]


def test_a_clock_that_is_ahead_does_not_have_the_rollback_wait_for_a_node_that_is_away():
    world = world_whose_task_is_stopped()
    later = world.now + timedelta(hours=1)
    node = world.cluster.nodes["b"]
    world.cluster.nodes["b"] = replace(node, ready=False, ready_changed_at=later)
    world.seen = LIMIT
    world.step(3)
    assert world.included() == ["a"]


def test_the_clock_of_a_node_does_not_leave_it_out_when_there_is_no_daemon_set():
    """With `failurePolicy.pods: Delete`, at the end of the run."""
    world = RollbackWorld("a", "b", failurePolicy={"action": "Rollback", "pods": "Delete"})
    world.step(2)
    world.complete("a")
    world.step(2)
    world.fail("b")
    world.step()
    assert (world.phase, world.created) == ("Failed", [])
    world.cluster.has_daemon_set, world.cluster.pods = False, []
    world.lose("b")
    world.seen = timedelta(seconds=1)
    world.step(3)
    assert world.included() == ["a", "b"]


def test_a_rollback_looks_again_at_a_node_that_may_be_away():
    """Its Job has no node to run on: without a look it would wait until something changes."""
    world = world_whose_task_is_stopped()
    world.take_pod("b")
    world.step(3)
    assert world.included() == ["a", "b"]
    assert world.step().requeue_after is None
    world.lose("a")
    world.lose("b")
    world.seen = timedelta(seconds=1)
    assert world.step().requeue_after == 15.0
    world.seen = LIMIT
    world.step()
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.step().requeue_after is None


def rollback_beside_pods_that_cannot_end(**changes) -> RollbackWorld:
    """Return a rollback of a and b; b is away, and its deleted pod has never started the task."""
    world = world_whose_task_is_stopped(**changes)
    world.take_pod("b")
    world.step(3)
    owned = world.owned["sample-rollback"]
    totals = NodeTotals(desired=2, waiting=1, completed=1)
    world.owned[owned.name] = replace(owned, status=replace(owned.status, nodes=totals))
    world.done[owned.name] = {"a"}
    world.lose("b")
    return world


@pytest.mark.parametrize(("changes", "seconds"), [({}, 60), ({"unreachableSeconds": 300}, 300)])
def test_a_rollback_ends_while_a_deleted_pod_cannot_end(changes, seconds):
    """Simulation (seed 7799825): its Job may set the node aside later.

    The rollback gives the node as much time as if that pod had not been deleted.
    """
    world = rollback_beside_pods_that_cannot_end(failurePolicy={**CONTINUE, **changes})
    world.seen = LIMIT + timedelta(seconds=seconds - 10)
    world.step()
    assert world.rolled_back == ("False", "RollingBack")
    assert world.plan.requeue_after == 15.0
    world.seen = LIMIT + timedelta(seconds=seconds)
    world.step()
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.message == (
        "1 of 2 nodes are rolled back; not rolled back, because away, tainted or gone: b"
    )
    assert (world.rollback.unreachable, world.step().requeue_after) == (1, None)


@pytest.mark.parametrize(
    ("totals", "done"),
    [
        (NodeTotals(desired=2, active=1, completed=1), {"a"}),
        (NodeTotals(desired=2, waiting=2), set()),
        (NodeTotals(desired=2, completed=2), {"a", "b"}),
    ],
    ids=["at work", "another waits", "all done"],
)
def test_a_rollback_waits_for_its_job_while_that_may_go_on(totals, done):
    world = rollback_beside_pods_that_cannot_end()
    owned = world.owned["sample-rollback"]
    world.owned[owned.name] = replace(owned, status=replace(owned.status, nodes=totals))
    world.done[owned.name] = done
    world.seen = timedelta(hours=1)
    world.step(3)
    assert world.rolled_back == ("False", "RollingBack")


def test_a_node_that_is_back_has_its_job_at_work_again():
    world = rollback_beside_pods_that_cannot_end()
    world.cluster.nodes["b"] = make_node("b")
    world.seen = timedelta(hours=1)
    world.step(3)
    assert world.rolled_back == ("False", "RollingBack")


def rollback_after_a_node_was_away() -> RollbackWorld:
    """Return a run that failed because b was away; with the DaemonSet all pods are deleted.

    The rollback waits for a, whose task is being ended.
    """
    policy = {"action": "Rollback", "pods": "Delete"}
    world = RollbackWorld("a", "b", failurePolicy=policy, rollout={"maxParallel": 2})
    world.step(3)
    assert world.started == ["a", "b"]
    world.lose("b")
    world.seen = LIMIT
    world.step()
    assert (world.phase, world.created) == ("Failed", [])
    world.cluster.has_daemon_set = False
    world.take_pod("b")
    world.put(replace(make_pod("a"), is_terminating=True))
    world.step(2)
    assert world.report["nodeStates"]["b"]["state"] == "Unreachable"
    return world


def test_a_node_that_was_away_before_and_is_not_ready_for_a_moment_is_rolled_back():
    """What the report says of it is about an earlier time."""
    world = rollback_after_a_node_was_away()
    world.cluster.nodes["b"] = make_node("b")
    world.step(2)
    moment = world.now + timedelta(minutes=5)
    world.cluster.nodes["b"] = make_node("b", ready=False, ready_changed_at=moment)
    world.seen = timedelta(seconds=1)
    world.take_pod("a")
    world.step(3)
    assert world.included() == ["a", "b"]


def test_a_node_that_is_still_away_is_left_out_at_once():
    """As after a restart of the controller, which has not seen for how long."""
    world = rollback_after_a_node_was_away()
    world.seen = timedelta(seconds=1)
    world.take_pod("a")
    world.step(3)
    assert world.included() == ["a"]
