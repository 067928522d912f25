"""A run that has failed is taken back as another one is, if no task of it has begun."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import PodPolicy
from daemonset_job.api.container import Container
from daemonset_job.api.job_status import Condition
from daemonset_job.api.rollback_status import RollbackStatus
from daemonset_job.api.rollout_requests import RolloutRequests
from daemonset_job.api.states import ConditionType
from job_controller.core.decide import decide
from job_controller.core.plan import (
    CheckNoPodMayStart,
    DeleteDaemonSet,
    DeletePods,
    RefusedWrite,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.ended_pods import EndedPods
from job_controller.core.taken_back_start import may_be_taken_back
from tests.unit.builders import NOW, gated_pod, make_cluster, make_pod
from tests.unit.core.runs import conditions, run, spec

NODES = ("a", "b")
LATER = NOW + timedelta(minutes=1)
INVALID = Container("waiting", "InvalidImageName", message="couldn't parse image name")


def invalid_pod(node, **changes):
    """Return a pod on its node whose image has no valid name."""
    return make_pod(node, state="waiting", container=INVALID, **changes)


def failed(pods=PodPolicy.DELETE_FAILED):
    """Return a cluster whose run has failed on both nodes, with the pods that failed."""
    cluster = make_cluster(*NODES, running=False, gated=True)
    spec(cluster, failure_policy=replace(cluster.job.spec.failure_policy, pods=pods))
    cluster.pods = [invalid_pod(node) for node in NODES]
    run(cluster)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    return cluster


def replaced(cluster):
    """Have the pods that failed replaced by others, which wait at their gate."""
    cluster.pods = [gated_pod(node, serial=2) for node in NODES]
    return cluster


def ended(*nodes):
    return EndedPods(frozenset(f"pod-{node}-1" for node in nodes))


def decided(cluster, **changes):
    plan = decide(cluster.snapshot(**changes), LATER)
    for action in plan.actions:
        if isinstance(action, WriteStatus):
            cluster.job = replace(cluster.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            cluster.report_status = action.status.to_raw()
    return plan


def kinds(plan):
    return [type(action) for action in plan.actions]


def is_taken_back(cluster):
    return cluster.job.status.start_time is None


# --- the way of a correction ---------------------------------------------------------------


def test_a_failed_run_stays_failed_until_a_person_suspends_it():
    cluster = replaced(failed())
    decided(cluster, ended_pods=ended(*NODES))
    assert conditions(cluster)["Failed"][0] == "True"


def test_when_its_pods_have_ended_without_a_start_the_start_is_taken_back():
    cluster = spec(replaced(failed()), suspend=True)
    plan = decided(cluster, ended_pods=ended(*NODES))
    assert kinds(plan) == [CheckNoPodMayStart, WriteStatus]
    status = cluster.job.status
    assert (status.start_time, status.completion_time, status.nodes) == (None, None, None)
    assert conditions(cluster)["Suspended"] == ("True", "StartTakenBack")
    assert conditions(cluster)["Failed"] == ("False", "StartTakenBack")
    assert conditions(cluster)["Stalled"][0] == "False"
    words = status.condition(ConditionType.FAILED).message
    assert "failed at 2026-01-02T" in words
    assert "couldn't parse image name" in words


def test_the_pods_that_failed_are_deleted_and_need_no_mark():
    """Their records have them already: whether they have started something has to be known."""
    cluster = spec(failed(), suspend=True)
    plan = decided(cluster)
    assert kinds(plan) == [DeletePods, WriteStatus]
    assert conditions(cluster)["Failed"][0] == "True"
    assert cluster.job.status.phase == "Failed"
    message = cluster.job.status.condition(ConditionType.SUSPENDED).message
    assert message.endswith("pods on these nodes are gone, every field can be changed: a,b")
    cluster.pods = [replace(pod, is_terminating=True) for pod in cluster.pods]
    assert decided(cluster).actions == ()


def test_a_pod_that_waits_beside_the_failed_one_is_marked_first():
    cluster = spec(failed(), suspend=True)
    record = cluster.report_status["nodeStates"]["b"]
    cluster.report_status["nodeStates"]["b"] = {"uid": record["uid"], "state": "Waiting"}
    plan = decided(cluster)
    assert WriteReportStatus in kinds(plan)
    assert DeletePods not in kinds(plan)
    records = cluster.report_status["nodeStates"]
    assert (records["a"]["state"], records["b"]["reason"]) == ("Failed", "PodTakenBack")


def test_a_run_whose_image_has_become_valid_on_a_node_stays():
    cluster = spec(failed(), suspend=True)
    cluster.pods[1] = make_pod("b")
    decided(cluster)
    assert not is_taken_back(cluster)
    message = cluster.job.status.condition(ConditionType.SUSPENDED).message
    assert message.endswith("a task has begun, or may have, on b")
    assert conditions(cluster)["Failed"][0] == "True"
    spec(cluster, suspend=False)
    decided(cluster)
    assert conditions(cluster)["Suspended"] == ("False", "Resumed")


def test_a_failed_run_names_a_refusal_of_the_gate():
    cluster = spec(failed(), suspend=True)
    cluster.gated = False
    words = "the policy says no"
    decided(cluster, refusals={RefusedWrite.DAEMON_SET: words})
    progressing = cluster.job.condition(ConditionType.PROGRESSING)
    assert progressing.message.endswith(f"; the API server refuses the DaemonSet: {words}")


def test_a_failed_run_is_not_called_suspended_before_new_pods_have_the_gate():
    """The API server may refuse the gate, and a pod that is created then starts its task."""
    cluster = spec(failed(), suspend=True)
    cluster.pods[1] = make_pod("b")
    cluster.gated = False
    decided(cluster)
    assert "Suspended" not in conditions(cluster)
    cluster.gated = True
    decided(cluster)
    assert conditions(cluster)["Suspended"] == ("True", "Suspended")


# --- what is known of pods that are gone ----------------------------------------------------


def test_a_failed_pod_whose_end_was_not_seen_has_begun():
    cluster = spec(replaced(failed()), suspend=True)
    decided(cluster, ended_pods=ended("a"))
    assert not is_taken_back(cluster)
    message = cluster.job.status.condition(ConditionType.SUSPENDED).message
    assert message.endswith("a task has begun, or may have, on b")


def test_that_a_failed_pod_has_started_nothing_outlives_the_controller():
    cluster = replaced(failed())
    decided(cluster, ended_pods=ended(*NODES))
    records = cluster.report_status["nodeStates"].values()
    assert [(r["state"], "podUID" in r) for r in records] == [("Failed", False)] * 2
    spec(cluster, suspend=True)
    decided(cluster)
    assert is_taken_back(cluster)


def test_a_node_that_failed_after_an_attempt_keeps_the_run():
    cluster = failed()
    for record in cluster.report_status["nodeStates"].values():
        record["attempts"] = 1
    spec(replaced(cluster), suspend=True)
    decided(cluster, ended_pods=ended(*NODES))
    assert not is_taken_back(cluster)


# --- without a DaemonSet --------------------------------------------------------------------


def without_daemon_set():
    cluster = failed(PodPolicy.DELETE)
    assert DeleteDaemonSet in kinds(decided(cluster))
    cluster.has_daemon_set, cluster.pods = False, []
    return spec(cluster, suspend=True)


def test_a_failed_run_without_a_daemon_set_is_taken_back_when_its_pods_are_gone():
    cluster = without_daemon_set()
    decided(cluster, left_pods=(invalid_pod("a", owner_uid="old"),), ended_pods=ended("b"))
    assert not is_taken_back(cluster)
    decided(cluster, ended_pods=ended(*NODES))
    assert is_taken_back(cluster)


@pytest.mark.parametrize("state", ["Failed", "Waiting"])
def test_without_a_daemon_set_each_pod_on_record_has_to_be_known(state):
    cluster = without_daemon_set()
    cluster.report_status["nodeStates"]["b"]["state"] = state
    decided(cluster, ended_pods=ended("a"))
    assert not is_taken_back(cluster)


def test_a_pod_that_waited_at_its_gate_has_started_nothing():
    cluster = without_daemon_set()
    record = cluster.report_status["nodeStates"]["b"]
    record |= {"state": "Waiting", "reason": "SchedulingGated"}
    decided(cluster, ended_pods=ended("a"))
    assert is_taken_back(cluster)


# --- which runs ---------------------------------------------------------------------------


def test_a_run_that_was_ended_by_a_person_or_is_rolled_back_is_final():
    job = spec(failed(), suspend=True).job
    assert may_be_taken_back(job)
    for reason in ("Aborted", "RollbackRequested"):
        ends = (Condition(ConditionType.FAILED, True, reason),)
        assert not may_be_taken_back(replace(job, status=replace(job.status, conditions=ends)))
    rolled = replace(job.status, rollback=RollbackStatus())
    assert not may_be_taken_back(replace(job, status=rolled))
    assert not may_be_taken_back(replace(job, requests=RolloutRequests(abort="no")))


def test_a_failure_that_only_the_report_has_is_recorded_first():
    cluster = failed()
    report = dict(cluster.report_status)
    cluster = make_cluster(*NODES, running=False, gated=True)
    cluster.pods, cluster.report_status = [gated_pod(node, serial=2) for node in NODES], report
    spec(cluster, suspend=True)
    decided(cluster, ended_pods=ended(*NODES))
    assert not is_taken_back(cluster)


# --- the next start -------------------------------------------------------------------------


def test_the_report_of_the_next_start_begins_with_the_failure():
    cluster = spec(replaced(failed()), suspend=True)
    decided(cluster, ended_pods=ended(*NODES))
    cluster.report_status = None
    spec(cluster, suspend=False, image="example/task:right")
    cluster.has_daemon_set, cluster.has_report = False, False
    decided(cluster, is_dry_run_done=True)
    assert cluster.job.status.start_time == LATER
    assert conditions(cluster)["Failed"] == ("False", "StartTakenBack")
    cluster.has_daemon_set, cluster.has_report = True, True
    cluster.pods = [make_pod(node, serial=3) for node in NODES]
    for _ in range(2):
        decided(cluster)
    (entry,) = [e for e in cluster.report_status["history"] if e["reason"] == "StartTakenBack"]
    assert "couldn't parse image name" in entry["message"]
    (known,) = [c for c in cluster.report_status["conditions"] if c["type"] == "Failed"]
    assert (known["status"], known["reason"]) == ("False", "StartTakenBack")


def test_a_second_correction_keeps_the_failure_of_the_start_before():
    cluster = spec(replaced(failed()), suspend=True)
    decided(cluster, ended_pods=ended(*NODES))
    before = cluster.job.status.condition(ConditionType.FAILED)
    status = replace(cluster.job.status, start_time=LATER)
    cluster.job = replace(cluster.job, status=status)
    cluster.report_status = None
    cluster.pods = [gated_pod(node, serial=3) for node in NODES]
    decided(cluster)
    assert is_taken_back(cluster)
    assert cluster.job.status.condition(ConditionType.FAILED).message == before.message


def test_of_two_failed_starts_the_newest_failure_is_kept():
    """The report of the first one is deleted with it, and a condition has one message."""
    cluster = spec(replaced(failed()), suspend=True)
    decided(cluster, ended_pods=ended(*NODES))
    first = cluster.job.status.condition(ConditionType.FAILED).message
    ends = Condition(ConditionType.FAILED, True, "DeadlineExceeded", "the deadline is over")
    status = replace(cluster.job.status, start_time=LATER, phase="Failed", conditions=(ends,))
    cluster.job = replace(cluster.job, status=status)
    cluster.report_status = None
    cluster.pods = [gated_pod(node, serial=3) for node in NODES]
    decided(cluster)
    assert is_taken_back(cluster)
    second = cluster.job.status.condition(ConditionType.FAILED).message
    assert second.endswith("was taken back: the deadline is over")
    assert first not in second


def test_that_a_failed_run_was_retried_stays_when_its_start_is_taken_back():
    """Found by the simulation, seed 6000000121: the condition vanished."""
    cluster = spec(replaced(failed()), suspend=True)
    ends = [
        replace(each, status=False, reason="Retrying")
        if each.type == ConditionType.FAILED
        else each
        for each in cluster.job.status.conditions
    ]
    cluster.job = replace(cluster.job, status=replace(cluster.job.status, conditions=tuple(ends)))
    cluster.report_status["phase"] = "Running"
    decided(cluster, ended_pods=ended(*NODES))
    assert is_taken_back(cluster)
    assert conditions(cluster)["Failed"] == ("False", "Retrying")
    assert conditions(cluster)["Stalled"][0] == "False"
