"""A rollback when pods are not known yet, and what is said of nodes that it does not reach."""

from dataclasses import replace

import pytest

from daemonset_job.api.job_status import Condition
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import CompleteReason, FailedReason
from daemonset_job.api.states import ConditionType, NodeState
from job_controller.core.plan import DeleteDaemonSet, RefusedWrite
from tests.unit.builders import done, gated_pod, make_node, make_pod
from tests.unit.core.rollbacks import RollbackWorld
from tests.unit.core.runs import acts

ABC = ("a", "b", "c")
UNKNOWN = "the rollback waits until no further pod of the run can start"


def starting_world(**changes) -> RollbackWorld:
    """Return a run without a rollout right after its start: the cache has none of its pods."""
    world = RollbackWorld(*ABC, rollout=None, **changes)
    world.cluster.gated, world.cluster.pods = False, []
    world.step(2)
    return world


def world_with_unknown_pods(count: int, failure_policy=None) -> RollbackWorld:
    """Return such a run, to be rolled back: only the DaemonSet shows `count` pods."""
    world = starting_world(failurePolicy=failure_policy)
    world.ask()
    world.step()
    world.cluster.gated, world.cluster.scheduled = True, count
    return world


# --- pods that are not known yet ---------------------------------------------------------


@pytest.mark.parametrize(("gated", "observed"), [(False, True), (True, False)])
def test_a_rollback_waits_while_pods_can_be_created_without_the_gate(gated, observed):
    """The DaemonSet controller goes on with the template that it has seen last."""
    world = starting_world(failurePolicy=None)
    world.ask()
    world.step()
    world.cluster.gated, world.cluster.observed = gated, observed
    world.step(3)
    assert world.rolled_back == ("False", "RollbackWaiting")
    assert world.message == UNKNOWN
    world.cluster.pods = [make_pod(name) for name in ABC]
    world.cluster.gated = world.cluster.observed = True
    world.step(2)
    assert world.message == "the rollback waits for the tasks that are at work on a,b,c"
    world.complete(*ABC)
    world.step(3)
    assert world.included() == list(ABC)


def test_a_rollback_waits_for_pods_that_only_the_daemon_set_counts():
    """The watch of pods is late: without them, no task would seem to have started."""
    world = world_with_unknown_pods(3)
    world.step(3)
    assert (world.rolled_back, world.message) == (("False", "RollbackWaiting"), UNKNOWN)
    world.cluster.scheduled = None
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")


def test_a_daemon_set_that_cannot_be_changed_is_said():
    world = starting_world(failurePolicy=None)
    world.refused = {RefusedWrite.DAEMON_SET: "no more changes"}
    world.ask()
    world.step(3)
    assert world.rolled_back == ("False", "RollbackWaiting")
    assert world.message == (
        f"{UNKNOWN}; the API server refuses the change of the DaemonSet: no more changes"
    )


def test_the_pass_that_first_sees_what_nodes_have_done_rolls_them_back():
    """The watch of pods was late: evidence is there, and no record yet."""
    world = world_with_unknown_pods(2)
    world.step(2)
    world.cluster.scheduled = None
    world.cluster.pods = [make_pod("a"), make_pod("b")]
    world.complete("a", "b")
    world.step(3)
    assert world.included() == ["a", "b"]


def test_a_node_of_which_only_the_evidence_is_left_is_rolled_back():
    """Its pod came and went while the watch of pods was late."""
    world = world_with_unknown_pods(1)
    world.step(2)
    world.cluster.scheduled, world.cluster.evidence["a"] = None, done("a")
    world.step(3)
    assert world.included() == ["a"]


@pytest.mark.parametrize("refused", [{}, {RefusedWrite.DAEMON_SET: "no more changes"}])
def test_the_daemon_set_stays_until_its_pods_are_known(refused):
    """With `failurePolicy.pods: Delete`: after its end nothing says how many there are."""
    world = world_with_unknown_pods(3, {"action": "Rollback", "pods": "Delete"})
    world.refused, world.cluster.gated = refused, not refused
    for _ in range(3):
        world.step()
        assert acts(world.plan, DeleteDaemonSet) == []
    world.cluster.scheduled = None
    world.step()
    assert acts(world.plan, DeleteDaemonSet)


def test_the_daemon_set_stays_until_the_report_has_the_tasks_that_have_started():
    """Its pods go with it. While the API server refuses the report, only they show the start."""
    world = RollbackWorld("a", rollout=None, failurePolicy={"pods": "Delete"}, failureLogLines=0)
    world.put(make_pod("a", state="waiting", phase="Pending", uid="pod-a-1"))
    world.step(2)
    world.refused = {RefusedWrite.REPORT: "no more writes"}
    world.put(make_pod("a", uid="pod-a-1"))
    world.ask()
    for _ in range(5):
        assert acts(world.step(), DeleteDaemonSet) == []
    world.refused = {}
    while not acts(world.step(), DeleteDaemonSet):
        pass
    world.cluster.has_daemon_set, world.cluster.pods = False, []
    world.step(3)
    assert world.included() == ["a"]


def failed_world() -> RollbackWorld:
    """Return a run that has failed on a, by its report; b has its pod, and has not started."""
    policy = {"action": "FailFast", "pods": "Delete"}
    world = RollbackWorld("a", "b", rollout=None, failurePolicy=policy, failureLogLines=0)
    world.put(make_pod("a", uid="pod-a-1"))
    world.put(make_pod("b", state="waiting", phase="Pending", uid="pod-b-1"))
    world.step(2)
    world.fail("a")
    world.step()
    assert (world.phase, world.report["phase"]) == ("Failed", "Failed")
    return world


@pytest.mark.parametrize("is_exact", [True, False])
def test_so_it_does_for_a_task_that_starts_after_the_end_is_in_the_report(is_exact):
    """A quota may keep the pod of another node off, so that the nodes are not known exactly."""
    world = failed_world()
    if not is_exact:
        world.cluster.nodes["c"] = make_node("c")
    world.refused = {RefusedWrite.REPORT: "no more writes"}
    world.put(make_pod("b", uid="pod-b-1"))
    for _ in range(5):
        assert acts(world.step(), DeleteDaemonSet) == []
    words = world.condition("Progressing")[2]
    assert not is_exact or words.endswith("; the API server refuses the JobReport: no more writes")
    world.refused = {}
    for _ in range(3):
        if acts(world.step(), DeleteDaemonSet):
            break
    else:
        raise AssertionError("the pods are never ended")
    world.cluster.has_daemon_set, world.cluster.pods = False, []
    world.ask()
    world.step(3)
    assert world.included() == ["a", "b"]


def test_a_task_that_never_starts_does_not_keep_the_daemon_set():
    world = failed_world()
    assert acts(world.step(), DeleteDaemonSet)


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_report_gets_the_second_end_of_a_run_that_is_retried(is_exact):
    """It was refused all the time between, and has the first one. Nothing was ended before."""
    world = failed_world()
    world.refused = {RefusedWrite.REPORT: "no more writes"}
    world.wait(seconds=30)
    world.retry()
    for name in ("a", "b"):
        world.put(make_pod(name, serial=2))
    world.step(2)
    world.fail("a")
    if not is_exact:
        world.cluster.nodes["c"] = make_node("c")
    world.step(3)
    assert (world.phase, world.report["phase"]) == ("Failed", "Failed")
    assert world.report["completionTime"] < str(world.cluster.job.status.to_raw()["completionTime"])
    world.refused = {}
    world.step(3)
    assert world.report["completionTime"] == world.cluster.job.status.to_raw()["completionTime"]
    assert acts(world.plan, DeleteDaemonSet)


# --- what is said of nodes that are left --------------------------------------------------


def end_within_limit(world: RollbackWorld, name: str, *undone: str, failed: str = "") -> None:
    """Let a Job of the rollback succeed on some of its nodes."""
    world.end_rollback(name, *undone)
    if failed:
        record = NodeRecord(f"{failed}-uid", NodeState.FAILED, attempts=1)
        world.records[name] = {failed: record.to_raw()}


def world_with_unstarted_pod_away() -> RollbackWorld:
    """Return a failed run; a went away after its gate was opened, and before its task was seen."""
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    (pod,) = [each for each in world.cluster.pods if each.node_name == "a"]
    world.put(replace(pod, container=None, phase="Pending"))
    world.step()
    world.lose("a")
    world.fail("b")
    world.step(5)
    assert world.included() == ["b"]
    return world


def test_a_node_that_may_start_the_task_when_it_is_back_is_named():
    """Simulation: it did, after the run had said that all nodes are rolled back."""
    world = world_with_unstarted_pod_away()
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.message == (
        "1 of 2 nodes are rolled back; not rolled back, because away, tainted or gone: a"
    )


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_node_that_is_back_is_rolled_back_only_if_its_task_has_begun(has_begun):
    world = world_with_unstarted_pod_away()
    world.cluster.nodes["a"] = make_node("a")
    if has_begun:
        world.complete("a")
    else:
        world.put(gated_pod("a", serial=2))
    world.end_rollback()
    world.step(3)
    if has_begun:
        assert world.included(1) == ["a"]
        world.end_rollback("sample-rollback-2")
        world.step(3)
    assert world.rolled_back == ("True", "RolledBack")
    assert world.rollback.desired == 1 + has_begun


def test_a_node_on_which_the_rollback_failed_is_not_said_to_be_away():
    """A person has raised maxFailedNodes of the rollback's Job, so that it went on."""
    world = RollbackWorld(*ABC)
    world.run_until_failure("b")
    world.step(5)
    end_within_limit(world, "sample-rollback", "a", failed="b")
    world.step(3)
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.message == "1 of 2 nodes are rolled back; the rollback failed on b"
    assert (world.rollback.failed, world.rollback.unreachable) == (1, 0)


def test_a_retry_of_an_aborted_rollback_is_not_advised():
    world = RollbackWorld(*ABC)
    world.run_until_failure("b")
    world.step(5)
    world.end_rollback(failed="aborted after 1 of 2 nodes: stop")
    owned = world.owned["sample-rollback"]
    aborted = Condition(ConditionType.FAILED, True, FailedReason.ABORTED, "aborted: stop")
    status = replace(owned.status, conditions=(aborted,))
    world.owned["sample-rollback"] = replace(owned, status=status)
    world.step(3)
    assert world.rolled_back == ("False", "RollbackCancelled")
    assert world.message == (
        "Job sample-rollback failed: aborted: stop; no retry revives it: apply a Job that runs "
        "spec.rollback on its other nodes, with spec.nodes.include"
    )


def ended_with_b_away() -> RollbackWorld:
    """Return a rollback whose first Job has ended without b; the second one is at work on c."""
    world = RollbackWorld(*ABC, rollout={"maxParallel": 3})
    world.step(5)
    world.complete("a")
    world.lose("c")
    world.fail("b")
    world.step(6)
    assert world.included() == ["a", "b"]
    world.cluster.nodes["c"] = make_node("c")
    world.complete("c")
    world.lose("b")
    end_within_limit(world, "sample-rollback", "a")
    world.step(3)
    assert world.included(1) == ["c"]
    return world


def test_a_node_that_is_back_is_waited_for_when_its_job_has_ended():
    """That Job stays, and serves it: the run is not rolled back before it has."""
    world = ended_with_b_away()
    world.cluster.nodes["b"] = make_node("b")
    world.end_rollback("sample-rollback-2")
    world.step(3)
    assert world.rolled_back == ("False", "RollingBack")
    assert "Job sample-rollback is at work" in world.message
    world.end_rollback("sample-rollback")
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")


def test_a_node_that_its_job_does_not_serve_any_more_is_not_waited_for():
    """A person has set successPolicy.minCompleted of the rollback's Job."""
    world = ended_with_b_away()
    owned = world.owned["sample-rollback"]
    enough = Condition(ConditionType.COMPLETE, True, CompleteReason.MIN_COMPLETED_REACHED)
    status = replace(owned.status, conditions=(enough,))
    world.owned["sample-rollback"] = replace(owned, status=status)
    world.cluster.nodes["b"] = make_node("b")
    world.end_rollback("sample-rollback-2")
    world.step(3)
    assert world.rolled_back == ("True", "RolledBackPartly")
