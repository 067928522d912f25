"""The start of a suspended run is taken back if no task has begun, and only then."""

from dataclasses import replace

import pytest

from daemonset_job.api import names
from daemonset_job.api.container import Container
from daemonset_job.api.drain import CordonMark
from daemonset_job.api.job import parse_job
from daemonset_job.api.job_status import Condition
from daemonset_job.api.states import ConditionType
from job_controller.core.decide import decide
from job_controller.core.drain_actions import UncordonNodes
from job_controller.core.job_actions import DeleteJob
from job_controller.core.plan import (
    ApplyDaemonSet,
    CheckJobUnchanged,
    CheckNoPodMayStart,
    DeleteDaemonSet,
    DeletePods,
    DeleteReport,
    DryRunDaemonSet,
    RefusedWrite,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.ended_pods import EndedPods
from job_controller.core.state.first_seen import pods_rejected
from job_controller.core.state.left_nodes import LEFT_PODS_SECONDS
from job_controller.core.taken_back_start import may_be_taken_back
from job_controller.sightings import SightingStore
from tests.clocks import FakeClock
from tests.unit.builders import DS_UID, NOW, done, gated_pod, make_cluster, make_node, make_pod
from tests.unit.core.runs import spec

NODES = ("a", "b")


def waiting_pod(node, **changes):
    """Return a pod on its node whose image cannot be pulled."""
    return make_pod(
        node, state="waiting", container=Container("waiting", "ImagePullBackOff"), **changes
    )


def suspended_cluster(*pods):
    """Return a cluster with a suspended run that has begun nowhere, whose new pods are gated."""
    found = make_cluster(*NODES, running=False, gated=True)
    found.pods = list(pods) or [waiting_pod(node) for node in NODES]
    return spec(found, suspend=True)


def kinds(plan):
    return [type(action) for action in plan.actions]


def condition(status, type_=ConditionType.SUSPENDED):
    return status.condition(type_)


def written(plan):
    """Return the Job's status that a plan writes."""
    (status,) = [a.status for a in plan.actions if isinstance(a, WriteStatus)]
    return status


def apply(cluster, plan):
    """Have the writes of a plan done; pods that are deleted are terminating."""
    for action in plan.actions:
        match action:
            case WriteStatus():
                cluster.job = replace(cluster.job, status=action.status)
            case WriteReportStatus():
                cluster.report_status = action.status.to_raw()
            case DeletePods():
                gone = {pod.uid for pod in action.pods}
                cluster.pods = [
                    replace(pod, is_terminating=True) if pod.uid in gone else pod
                    for pod in cluster.pods
                ]


def marked():
    """Return the cluster once the pods are on record as attempts, and are being deleted."""
    cluster = suspended_cluster()
    apply(cluster, decide(cluster.snapshot(), NOW))
    apply(cluster, decide(cluster.snapshot(), NOW))
    assert all(pod.is_terminating for pod in cluster.pods)
    return cluster


def taken_back():
    cluster = suspended_cluster(*map(gated_pod, NODES))
    apply(cluster, decide(cluster.snapshot(), NOW))
    assert cluster.job.status.start_time is None
    return cluster


def ended(*nodes):
    return EndedPods(frozenset(f"pod-{node}-1" for node in nodes))


# --- step by step ------------------------------------------------------------------------


def test_pods_that_may_start_are_on_record_before_they_are_deleted():
    cluster = suspended_cluster()
    first = decide(cluster.snapshot(), NOW)
    assert kinds(first) == [WriteReportStatus, WriteStatus]
    apply(cluster, first)
    records = cluster.report_status["nodeStates"]
    assert {(r["reason"], r["attempts"]) for r in records.values()} == {("PodTakenBack", 1)}
    second = decide(cluster.snapshot(), NOW)
    assert kinds(second) == [DeletePods]
    assert {pod.node_name for pod in second.actions[0].pods} == set(NODES)


def test_while_pods_are_there_the_start_stays_and_the_status_says_what_is_waited_for():
    cluster = marked()
    plan = decide(cluster.snapshot(), NOW)
    assert plan.actions == ()
    assert cluster.job.status.start_time is not None
    words = condition(cluster.job.status).message
    assert words.endswith(
        "as soon as the pods on these nodes are gone, every field can be changed: a,b"
    )


def test_a_pod_that_cannot_end_on_a_node_that_is_down_is_named():
    cluster = marked()
    cluster.nodes["b"] = replace(cluster.nodes["b"], ready=False)
    apply(cluster, decide(cluster.snapshot(), NOW))
    progressing = condition(cluster.job.status, ConditionType.PROGRESSING)
    assert (progressing.status, progressing.reason) == (False, "NodesUnreachable")
    assert "; b cannot be reached: " in progressing.message
    assert decide(cluster.snapshot(), NOW).actions == ()
    # It is back.
    cluster.nodes["b"] = replace(cluster.nodes["b"], ready=True)
    apply(cluster, decide(cluster.snapshot(), NOW))
    assert condition(cluster.job.status, ConditionType.PROGRESSING).reason == "Paused"


def test_when_all_have_ended_without_a_start_it_is_taken_back():
    cluster = marked()
    cluster.pods = [gated_pod(node) for node in NODES]
    plan = decide(cluster.snapshot(ended_pods=ended(*NODES)), NOW)
    assert kinds(plan) == [CheckNoPodMayStart, WriteStatus]
    status = written(plan)
    assert (status.start_time, status.nodes, status.rollout) == (None, None, None)
    assert condition(status).reason == "StartTakenBack"
    assert "no task has begun: image, script, template" in condition(status).message
    assert [event.reason for event in plan.events] == ["Paused"]


def test_a_pod_whose_end_was_not_seen_has_begun():
    cluster = marked()
    cluster.pods = [gated_pod(node) for node in NODES]
    status = written(decide(cluster.snapshot(ended_pods=ended("a")), NOW))
    assert status.start_time is not None
    assert "what it runs can no longer be changed" in condition(status).message
    assert condition(status).message.endswith("a task has begun, or may have, on b")


def test_a_pod_that_starts_while_it_is_deleted_keeps_the_run():
    cluster = marked()
    cluster.pods[0] = replace(cluster.pods[0], has_run=True)
    plan = decide(cluster.snapshot(), NOW)
    assert CheckNoPodMayStart not in kinds(plan)
    assert written(plan).start_time is not None


def test_that_a_begun_run_stays_is_kept_when_the_next_pods_are_on_record():
    cluster = marked()
    cluster.pods = [gated_pod(node) for node in NODES]
    for _ in range(3):
        apply(cluster, decide(cluster.snapshot(), NOW))
    plan = decide(cluster.snapshot(ended_pods=ended(*NODES)), NOW)
    assert CheckNoPodMayStart not in kinds(plan)
    assert cluster.job.status.start_time is not None


def test_a_pod_without_a_node_is_deleted_and_needs_no_record():
    cluster = suspended_cluster(make_pod("a", state="", is_scheduled=False), gated_pod("b"))
    plan = decide(cluster.snapshot(), NOW)
    assert kinds(plan) == [DeletePods, WriteStatus]
    assert [pod.node_name for pod in plan.actions[0].pods] == ["a"]


def test_new_pods_are_gated_before_anything_is_deleted():
    cluster = suspended_cluster()
    cluster.gated = False
    assert ApplyDaemonSet in kinds(decide(cluster.snapshot(), NOW))
    cluster.gated, cluster.observed = True, False
    assert DeletePods not in kinds(decide(cluster.snapshot(), NOW))


def test_a_run_that_created_nothing_is_taken_back_at_once():
    cluster = suspended_cluster()
    cluster.has_daemon_set, cluster.has_report, cluster.pods = False, False, []
    assert kinds(decide(cluster.snapshot(), NOW)) == [CheckNoPodMayStart, WriteStatus]


def test_with_refused_deletions_the_status_of_the_run_shows_it():
    cluster = suspended_cluster()
    snapshot = cluster.snapshot(refusals={RefusedWrite.DELETION: "no"})
    assert CheckNoPodMayStart not in kinds(decide(snapshot, NOW))
    assert DeletePods not in kinds(decide(snapshot, NOW))


def test_pods_of_a_deleted_daemon_set_are_waited_for():
    cluster = suspended_cluster(*map(gated_pod, NODES))
    left = waiting_pod("a", owner_uid="other")
    plan = decide(cluster.snapshot(left_pods=(left,)), NOW)
    assert CheckNoPodMayStart not in kinds(plan)
    assert plan.requeue_after == LEFT_PODS_SECONDS


def test_a_cordon_is_lifted_first():
    cluster = suspended_cluster(*map(gated_pod, NODES))
    mark = CordonMark(cluster.job.namespace, cluster.job.name, cluster.job.uid)
    spec(cluster, cordon=True)
    cluster.nodes["a"] = make_node("a", cordoned_by=str(mark))
    plan = decide(cluster.snapshot(), NOW)
    assert CheckNoPodMayStart not in kinds(plan)
    assert UncordonNodes in kinds(plan)


def test_a_pod_on_a_cordoned_node_is_deleted_before_the_cordon_is_lifted():
    cluster = suspended_cluster()
    mark = CordonMark(cluster.job.namespace, cluster.job.name, cluster.job.uid)
    cluster.nodes["a"] = make_node("a", cordoned_by=str(mark))
    apply(cluster, decide(cluster.snapshot(), NOW))
    assert kinds(decide(cluster.snapshot(), NOW)) == [DeletePods]


# --- what shows that a task has begun ------------------------------------------------------


@pytest.mark.parametrize(
    "begin",
    [
        lambda cluster: setattr(cluster, "pods", [make_pod("a"), gated_pod("b")]),
        lambda cluster: setattr(cluster, "evidence", {"a": done("a")}),
        lambda cluster: setattr(
            cluster,
            "report_status",
            {"nodeStates": {"a": {"uid": "a-uid", "state": "Waiting", "attempts": 1}}},
        ),
        lambda cluster: setattr(
            cluster,
            "report_status",
            {"nodeStates": {"a": {"uid": "a-uid", "state": "Unreachable", "attempts": 0}}},
        ),
        lambda cluster: setattr(
            cluster,
            "report_status",
            {"nodeStates": {"a": {"uid": "old-uid", "state": "Removed", "reason": "NodeRemoved"}}},
        ),
    ],
    ids=["a pod", "evidence", "an attempt", "unreachable", "gone since it was unreachable"],
)
def test_a_run_that_has_begun_anywhere_stays_and_says_where(begin):
    cluster = suspended_cluster(*map(gated_pod, NODES))
    begin(cluster)
    plan = decide(cluster.snapshot(), NOW)
    assert CheckNoPodMayStart not in kinds(plan)
    assert written(plan).start_time is not None
    assert condition(written(plan)).message.endswith("a task has begun, or may have, on a")


def test_a_pod_that_is_gone_and_has_run_keeps_the_run():
    cluster = suspended_cluster(*map(gated_pod, NODES))
    plan = decide(cluster.snapshot(ended_pods=EndedPods(ran_on="a")), NOW)
    assert CheckNoPodMayStart not in kinds(plan)


def test_only_a_person_who_suspends_a_run_of_policy_once_asks_for_it():
    job = suspended_cluster().job
    assert may_be_taken_back(job)
    assert not may_be_taken_back(replace(job, spec=replace(job.spec, suspend=False)))
    stopped = replace(job, spec=replace(job.spec, suspend=False), stop_message="stopped")
    assert not may_be_taken_back(stopped)
    assert not may_be_taken_back(replace(job, owner_uid="another-job"))
    completion = replace(job.spec.completion, policy="Continuous")
    assert not may_be_taken_back(replace(job, spec=replace(job.spec, completion=completion)))
    ends = (Condition(ConditionType.COMPLETE, True, "AllNodesCompleted"),)
    assert not may_be_taken_back(replace(job, status=replace(job.status, conditions=ends)))


def test_the_job_of_a_schedule_can_be_corrected_and_a_part_of_another_job_not():
    def owned_by(kind):
        owner = {"kind": kind, "uid": "u", "name": "x", "controller": True}
        meta = {"name": "x", "namespace": "ns", "uid": "1", "resourceVersion": "1"}
        references = [{"apiVersion": names.API_VERSION, **owner}]
        body = {"metadata": {**meta, "ownerReferences": references}}
        return parse_job({**body, "spec": {"image": "x", "suspend": True}})

    assert may_be_taken_back(owned_by("ScheduledJob"))
    assert not may_be_taken_back(owned_by("Job"))


# --- resumed before the start is taken back ------------------------------------------------


def resumed(cluster, *known):
    """Have the Job resumed when its pods are gone, of which these nodes' ended without a start."""
    spec(cluster, suspend=False)
    cluster.pods = [waiting_pod(node, serial=2) for node in NODES]
    apply(cluster, decide(cluster.snapshot(ended_pods=ended(*known)), NOW))
    return {
        name: record.get("attempts", 0)
        for name, record in cluster.report_status["nodeStates"].items()
    }


def test_a_pod_that_ended_without_a_start_leaves_no_attempt_when_the_job_is_resumed():
    cluster = marked()
    assert resumed(cluster, *NODES) == {"a": 0, "b": 0}
    spec(cluster, suspend=True)
    assert kinds(decide(cluster.snapshot(), NOW))[0] == WriteReportStatus


def test_a_pod_whose_end_was_not_seen_stays_an_attempt_when_the_job_is_resumed():
    cluster = marked()
    assert resumed(cluster, "a") == {"a": 0, "b": 1}
    spec(cluster, suspend=True)
    status = written(decide(cluster.snapshot(), NOW))
    assert condition(status).message.endswith("a task has begun, or may have, on b")


def test_while_pods_are_deleted_a_resumed_job_keeps_their_attempts():
    cluster = marked()
    spec(cluster, suspend=False)
    apply(cluster, decide(cluster.snapshot(), NOW))
    records = cluster.report_status["nodeStates"]
    assert {(r["reason"], r["attempts"]) for r in records.values()} == {("PodTakenBack", 1)}


def test_timers_of_a_start_that_is_taken_back_do_not_go_on_in_the_next_one():
    """Of a node that rejects its pods, one after the other: it is the node's timer, not a pod's."""
    clock = FakeClock(NOW)
    store = SightingStore(clock)
    cluster = suspended_cluster(make_pod("a", phase="Failed", reason="SysctlForbidden", state=""))
    key = (cluster.job.namespace, cluster.job.name)
    rejected = pods_rejected(cluster.nodes["a"], "")

    def first_seen(snapshot):
        clock.advance(5)
        return store.with_sightings(key, snapshot).seen.get(rejected)

    started = cluster.job.status
    assert first_seen(cluster.snapshot()).first == clock.now()
    cluster.job = replace(cluster.job, status=replace(started, start_time=None))
    first_seen(cluster.snapshot(pods=()))
    cluster.job = replace(cluster.job, status=started)
    assert first_seen(cluster.snapshot()).first == clock.now()


# --- pods that cannot be created -----------------------------------------------------------


def test_a_run_whose_pods_a_quota_refuses_is_taken_back_at_once():
    cluster = suspended_cluster()
    cluster.pods, cluster.scheduled = [], 0
    cluster.failed_create_message = "pods is forbidden: exceeded quota: none"
    plan = decide(cluster.snapshot(), NOW)
    assert kinds(plan) == [CheckNoPodMayStart, WriteStatus]
    assert condition(written(plan)).reason == "StartTakenBack"


# --- what is left of a start ---------------------------------------------------------------


def test_what_the_taken_back_start_created_is_deleted_before_a_new_start():
    cluster = taken_back()
    spec(cluster, suspend=False)
    plan = decide(cluster.snapshot(), NOW)
    # The status comes last: a deletion that is refused again and again is not to change it.
    assert kinds(plan) == [CheckJobUnchanged, DeleteDaemonSet, DeleteReport, WriteStatus]
    assert plan.actions[1].uid == DS_UID
    assert written(plan).start_time is None
    cluster.has_daemon_set = False
    apply(cluster, plan)
    assert kinds(decide(cluster.snapshot(), NOW)) == [CheckJobUnchanged, DeleteReport]
    cluster.has_report = False
    assert kinds(decide(cluster.snapshot(), NOW)) == [DryRunDaemonSet]


def test_parts_of_a_taken_back_start_are_deleted():
    cluster = taken_back()
    annotations = {"daemonset.darkowlzz.space/purpose": "image-pull/x"}
    part = replace(cluster.job, name="sample-image-pull", uid="part-uid", annotations=annotations)
    plan = decide(cluster.snapshot(owned_jobs=(part,)), NOW)
    assert DeleteJob("sample-image-pull", "part-uid") in plan.actions


def test_refused_deletions_of_what_is_left_are_shown_and_nothing_starts():
    cluster = taken_back()
    spec(cluster, suspend=False)
    plan = decide(cluster.snapshot(refusals={RefusedWrite.DELETION: "not now"}), NOW)
    assert kinds(plan) == [CheckJobUnchanged, WriteStatus]
    message = condition(written(plan), ConditionType.PROGRESSING).message
    assert message.endswith("which the API server refuses: not now")
    assert condition(written(plan)).reason == "StartTakenBack"
    assert plan.requeue_after == 15.0


def test_a_suspended_job_says_that_it_can_be_changed_until_it_is_resumed():
    cluster = taken_back()
    cluster.has_daemon_set, cluster.has_report, cluster.pods = False, False, []
    apply(cluster, decide(cluster.snapshot(), NOW))
    assert decide(cluster.snapshot(), NOW).actions == ()
    assert condition(cluster.job.status).reason == "StartTakenBack"
    spec(cluster, suspend=False)
    status = written(decide(cluster.snapshot(is_dry_run_done=True), NOW))
    assert status.start_time == NOW
    assert condition(status).reason == "Resumed"


def test_the_order_of_nodes_and_pods_does_not_matter():
    cluster = suspended_cluster()
    plan = decide(cluster.snapshot(), NOW)
    cluster.pods.reverse()
    assert decide(cluster.snapshot(), NOW) == plan
