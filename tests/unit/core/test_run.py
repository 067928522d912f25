"""The run as a whole: when it fails, is held, completes, and what the status says of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection, parse_spec
from daemonset_job.api.job_status import parse_job_status
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import ConditionType
from daemonset_job.api.taints import Taint
from daemonset_job.api.times import format_time
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ApplyDaemonSet,
    DeleteDaemonSet,
    DeletePods,
    RefusedWrite,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.run_state import allowed_failures, deadline
from tests.unit.builders import (
    NOW,
    START,
    done,
    gated_pod,
    make_cluster,
    make_job,
    make_node,
    make_pod,
    seen_before,
    started,
)


def failing(node):
    container = Container(
        state="waiting",
        reason="CrashLoopBackOff",
        last_exit_code=2,
        last_finished_at=START,
        restart_count=9,
    )
    return make_pod(node, container=container)


def lost(name):
    return make_node(name, ready=False, ready_changed_at=START - timedelta(hours=1))


def reason_of(plan):
    """Return the reason of the condition Progressing that a plan writes."""
    (status,) = [a.status.to_raw() for a in plan.actions if isinstance(a, WriteStatus)]
    (found,) = [c["reason"] for c in status["conditions"] if c["type"] == "Progressing"]
    return found


def run(cluster, now=NOW, seen=timedelta(minutes=1)):
    """Decide, take over what the plan writes, and return the plan.

    `seen` is for how long the controller has seen all that is there. The API server would take the
    DaemonSet of a Job that has not started.
    """
    plan = decide(seen_before(cluster.snapshot(is_dry_run_done=True), seen, now), now)
    for action in plan.actions:
        if isinstance(action, WriteStatus):
            cluster.job = replace(cluster.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            cluster.report_status = action.status.to_raw()
    return plan


def spec(cluster, **changes):
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, **changes))
    return cluster


def three_nodes(action="FailFast", allowed=0, **changes):
    """Return a world in which b fails, a is done and c works."""
    cluster = make_cluster("a", "b", "c", gated=True, evidence={"a": done("a")}, **changes)
    cluster.pods[1] = failing("b")
    return spec(cluster, failure_policy=FailurePolicy(action, allowed))


def conditions(cluster):
    return {
        c["type"]: (c["status"], c["reason"]) for c in cluster.job.status.to_raw()["conditions"]
    }


def acts(plan, kind):
    return [action for action in plan.actions if isinstance(action, kind)]


@pytest.mark.parametrize(
    ("limit", "desired", "allowed"),
    [(0, 9, 0), (2, 1, 2), ("10%", 5, 0), ("10%", 19, 1), ("100%", 7, 7), ("34%", 3, 1)],
)
def test_allowed_failures(limit, desired, allowed):
    assert allowed_failures(limit, desired) == allowed


def test_fail_fast_fails_with_the_first_node_too_many():
    cluster = three_nodes()
    plan = run(cluster)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert cluster.job.status.to_raw()["phase"] == "Failed"
    assert cluster.job.status.to_raw()["completionTime"]
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "Failed")]
    assert plan.events[0].message == "1 of 3 nodes failed: b exit 2 after 10 attempts"
    assert cluster.report_status["phase"] == "Failed"
    assert run(cluster).actions == ()


def test_failures_within_a_percentage_survive_a_recreated_daemon_set():
    cluster = make_cluster(*(f"n{i}" for i in range(20)), gated=True)
    cluster.pods[0] = failing("n0")
    spec(cluster, failure_policy=FailurePolicy("FailFast", "10%"))
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] == "Running"
    cluster.has_daemon_set = False
    run(cluster)
    assert "Failed" not in conditions(cluster)


def test_nodes_that_all_leave_at_once_complete_nothing():
    """The last pod is being deleted, and the DaemonSet's counters are those of before."""
    cluster = make_cluster("a", gated=True, evidence={})
    cluster.job = replace(
        cluster.job, raw_spec={"nodes": {"selector": {"matchLabels": {"zone": "a"}}}}
    )
    selector = {"matchLabels": {"zone": "a"}}
    spec(cluster, nodes=NodeSelection(selector=selector))
    cluster.pods = [replace(make_pod("a"), is_terminating=True)]
    run(cluster)
    assert "Complete" not in conditions(cluster)


def test_start_of_a_node_deadline_is_recorded_while_the_task_waits():
    cluster = make_cluster("a", gated=True)
    cluster.pods = [replace(make_pod("a", state="waiting"), started_at=START)]
    spec(cluster, node_deadline_seconds=60)
    run(cluster, seen=timedelta(0))
    assert cluster.report_status["nodeStates"]["a"]["activeSince"] == "2026-01-02T03:04:05Z"
    run(cluster, NOW + timedelta(seconds=61), seen=timedelta(0))
    assert cluster.report_status["nodeStates"]["a"]["reason"] == "DeadlineExceeded"


def test_many_failed_nodes_are_summarized():
    cluster = make_cluster(*(f"n{i}" for i in range(9)), gated=True)
    cluster.pods = [failing(f"n{i}") for i in range(6)] + [make_pod(f"n{i}") for i in range(6, 9)]
    run(cluster)
    failed = next(c for c in cluster.job.status.to_raw()["conditions"] if c["type"] == "Failed")
    assert failed["message"].startswith("6 of 9 nodes failed: n0 exit 2")
    assert failed["message"].endswith("; and n[3-5]")


def test_continue_waits_for_the_others():
    cluster = three_nodes("Continue")
    run(cluster)
    assert "Failed" not in conditions(cluster)
    cluster.evidence = {"a": done("a"), "c": done("c")}
    run(cluster)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")


def test_continue_within_the_limit_completes_and_names_the_failed():
    cluster = three_nodes("Continue", "34%")
    cluster.evidence = {"a": done("a"), "c": done("c")}
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "CompletedWithinFailureLimit")
    complete = next(c for c in cluster.job.status.to_raw()["conditions"] if c["type"] == "Complete")
    assert complete["message"] == "2 of 3 nodes completed, 1 failed (b)"


def test_failed_node_excluded_together_with_a_lower_limit_fails_nothing():
    """The newest limit says nothing of the nodes of an older spec.nodes."""
    cluster = make_cluster("a", "b", "c", gated=True)
    cluster.pods[2] = failing("c")
    changed = replace(cluster.job.spec, failure_policy=FailurePolicy("FailFast", 1))
    cluster.job = replace(cluster.job, spec=changed)
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] == "Running"
    job = replace(
        cluster.job,
        generation=2,
        raw_spec={"nodes": {"exclude": ["c"]}},
        spec=replace(
            changed,
            nodes=NodeSelection(exclude=("c",)),
            failure_policy=FailurePolicy("FailFast", 0),
        ),
    )
    seen = seen_before(replace(cluster.snapshot(), job=job), timedelta(minutes=1))
    (written,) = [
        a.status.to_raw() for a in decide(seen, NOW).actions if isinstance(a, WriteStatus)
    ]
    assert written["phase"] == "Running"


def test_pause_holds_turns_until_more_is_allowed():
    cluster = three_nodes("Pause")
    cluster.nodes["d"] = make_node("d")
    cluster.pods.append(gated_pod("d"))
    plan = run(cluster)
    assert conditions(cluster)["Suspended"] == ("True", "MaxFailedNodesExceeded")
    assert cluster.job.status.to_raw()["phase"] == "Paused"
    assert not acts(plan, RemoveSchedulingGates)
    spec(cluster, failure_policy=FailurePolicy("Pause", 1))
    plan = run(cluster)
    assert conditions(cluster)["Suspended"] == ("False", "Resumed")
    assert acts(plan, RemoveSchedulingGates)


def test_run_paused_by_policy_suspends_and_restarts_its_deadline():
    cluster = three_nodes("Pause")
    spec(cluster, active_deadline_seconds=600)
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] == "Paused"
    later = NOW + timedelta(hours=1)
    run(cluster, later)
    assert cluster.job.status.to_raw()["phase"] == "Paused"
    spec(cluster, failure_policy=FailurePolicy("Pause", 1))
    run(cluster, later)
    assert cluster.job.status.to_raw()["phase"] == "Running"
    run(cluster, later + timedelta(seconds=599))
    assert cluster.job.status.to_raw()["phase"] == "Running"
    run(cluster, later + timedelta(seconds=600))
    assert cluster.job.status.to_raw()["phase"] == "Failed"


def test_unreachable_nodes_count_in_the_budget_as_a_state_of_their_own():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["b"] = lost("b")
    run(cluster)
    assert cluster.job.status.to_raw()["nodes"]["unreachable"] == 1
    assert cluster.job.status.to_raw()["nodes"]["failed"] == 0
    failed = next(c for c in cluster.job.status.to_raw()["conditions"] if c["type"] == "Failed")
    assert failed["message"] == "1 unreachable (b)"


def test_continue_waits_for_unreachable_nodes_and_says_so():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    spec(cluster, failure_policy=FailurePolicy("Continue"))
    cluster.nodes["b"] = lost("b")
    run(cluster)
    assert conditions(cluster)["Progressing"] == ("False", "NodesUnreachable")
    assert "Failed" not in conditions(cluster)


def test_failed_run_removes_no_gates_and_recreates_no_daemon_set():
    cluster = three_nodes()
    run(cluster)
    cluster.nodes["d"] = make_node("d")
    cluster.pods.append(gated_pod("d"))
    assert not acts(run(cluster), RemoveSchedulingGates)
    cluster.has_daemon_set = False
    assert not acts(decide(cluster.snapshot(pods=()), NOW), ApplyDaemonSet)


def test_a_run_that_fails_early_still_gets_its_gate():
    cluster = three_nodes()
    cluster.gated = False
    plan = run(cluster)
    (apply,) = acts(plan, ApplyDaemonSet)
    assert "schedulingGates" in apply.body["spec"]["template"]["spec"]


def test_pods_of_a_failed_run_are_deleted_once_its_status_is_written():
    cluster = spec(three_nodes(), failure_policy=FailurePolicy(pods="Delete"))
    assert not acts(run(cluster), DeleteDaemonSet)
    plan = run(cluster)
    assert acts(plan, DeleteDaemonSet)
    assert [pod.node_name for pod in acts(plan, DeletePods)[0].pods] == ["b"]


def test_pods_of_a_failed_run_stay_until_its_failure_is_on_record():
    """Without them nothing would say that it failed, and the DaemonSet would be made again."""
    cluster = spec(three_nodes(), failure_policy=FailurePolicy(pods="Delete"))
    status = cluster.job.status
    run(cluster)
    cluster.job = replace(cluster.job, status=status)  # this write was refused
    assert cluster.report_status["phase"] == "Failed"
    assert not acts(run(cluster), DeleteDaemonSet)
    assert acts(run(cluster), DeleteDaemonSet)


def test_undeletable_pods_of_a_failed_run_are_reported():
    cluster = spec(three_nodes(), failure_policy=FailurePolicy(pods="Delete"))
    run(cluster)
    plan = decide(cluster.snapshot(refusals={RefusedWrite.DELETION: "the policy says no"}), NOW)
    assert not acts(plan, DeleteDaemonSet)
    assert not acts(plan, DeletePods)
    (status,) = [a.status.to_raw() for a in acts(plan, WriteStatus)]
    (progressing,) = [c for c in status["conditions"] if c["type"] == "Progressing"]
    assert (progressing["status"], progressing["reason"]) == ("False", "Failed")
    assert "deletion of pods: the policy says no" in progressing["message"]
    assert plan.requeue_after is not None
    assert plan.requeue_after <= 15.0


def retried(cluster):
    """Ask for a retry; return a world in which the failed node has its next pod, which waits."""
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    cluster.pods[1] = gated_pod("b", serial=5)
    return cluster


def test_refused_pod_deletion_and_refused_gate_removal_do_not_block_each_other():
    cluster = retried(three_nodes("Continue"))
    cluster.nodes["d"] = make_node("d")
    cluster.pods.append(replace(failing("d"), is_terminating=False))
    cluster.desired = cluster.scheduled = 4
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "2"})
    record = NodeRecord(uid="d-uid", state="Failed", pod_uid=cluster.pods[3].uid, retry="1")
    cluster.report_status["nodeStates"]["d"] = record.to_raw()
    no_gates = {RefusedWrite.GATE_REMOVAL: "no gates"}
    no_deletion = {RefusedWrite.DELETION: "no deletions"}

    everything = decide(cluster.snapshot(), NOW)
    assert acts(everything, RemoveSchedulingGates)
    assert acts(everything, DeletePods)
    without_deletion = decide(cluster.snapshot(refusals=no_deletion), NOW)
    assert acts(without_deletion, RemoveSchedulingGates) == acts(everything, RemoveSchedulingGates)
    assert not acts(without_deletion, DeletePods)
    without_gates = decide(cluster.snapshot(refusals=no_gates), NOW)
    assert acts(without_gates, DeletePods) == acts(everything, DeletePods)
    assert not acts(without_gates, RemoveSchedulingGates)

    refusals = {write: f"{text} {'x' * 4000}" for write, text in (no_deletion | no_gates).items()}
    both = decide(cluster.snapshot(refusals=refusals), NOW)
    (status,) = [a.status.to_raw() for a in acts(both, WriteStatus)]
    (progressing,) = [c for c in status["conditions"] if c["type"] == "Progressing"]
    assert progressing["reason"] == "PodChangeRefused"
    assert "removal of scheduling gates: no gates" in progressing["message"]
    assert "deletion of pods: no deletions" in progressing["message"]
    assert len(progressing["message"]) < 1200


def completion_time(cluster):
    return cluster.job.status.to_raw()["completionTime"]


@pytest.mark.parametrize("later", [timedelta(hours=1), timedelta(0)])
def test_second_failure_has_its_own_time_despite_a_stale_report(later):
    cluster = three_nodes()
    run(cluster)
    first = completion_time(cluster)
    stale = cluster.report_status
    # The retry is on record in the Job; the report, whose writes are refused, says Failed.
    cluster = retried(cluster)
    flipped = [
        {**c, "lastTransitionTime": format_time(NOW + later)} if c["type"] == "Failed" else c
        for c in cluster.job.status.to_raw()["conditions"]
    ]
    status_of_job = {**cluster.job.status.to_raw(), "conditions": flipped}
    cluster.job = replace(cluster.job, status=parse_job_status(status_of_job))
    cluster.report_status = stale
    cluster.pods[1] = replace(failing("b"), uid="pod-b-5")
    again = NOW + timedelta(hours=2)
    run(cluster, again)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert completion_time(cluster) == format_time(again) != first


def test_failure_known_from_the_report_keeps_its_time_after_a_retry():
    cluster = three_nodes()
    run(cluster)
    cluster = retried(cluster)
    cluster.pods[1] = replace(failing("b"), uid="pod-b-5")
    before = cluster.job
    run(cluster, NOW + timedelta(hours=2))
    cluster.job = before  # the process died between the two writes
    run(cluster, NOW + timedelta(hours=3))
    assert completion_time(cluster) == format_time(NOW + timedelta(hours=2))


def test_recorded_end_of_an_older_spec_does_not_end_this_run():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    before = cluster.job
    run(cluster)
    cluster.job = replace(before, generation=2)
    again = NOW + timedelta(hours=2)
    run(cluster, again)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    assert completion_time(cluster) == format_time(again)


def test_a_retry_opens_a_failed_run_for_its_failed_nodes_only():
    cluster = three_nodes()
    run(cluster)
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    plan = run(cluster)
    assert [pod.node_name for pod in acts(plan, DeletePods)[0].pods] == ["b"]
    assert conditions(cluster)["Failed"] == ("False", "Retrying")
    assert "Retrying" in [e.reason for e in plan.events]
    assert cluster.job.status.to_raw()["phase"] == "Running"
    assert "completionTime" not in cluster.job.status.to_raw()
    cluster.pods[1] = gated_pod("b", serial=5)
    plan = run(cluster)
    assert [pod.node_name for pod in acts(plan, RemoveSchedulingGates)[0].pods] == ["b"]
    assert cluster.job.status.to_raw()["nodes"]["failed"] == 0


def test_a_retry_that_finds_every_node_completed_ends_the_run_again():
    # The failed node's task went on, and completed it before the retry was asked for.
    cluster = three_nodes()
    run(cluster)
    failed_at = completion_time(cluster)
    cluster.evidence = {name: done(name) for name in "abc"}
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    before, again = cluster.job, NOW + timedelta(hours=2)
    run(cluster, again)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    assert completion_time(cluster) == format_time(again) != failed_at
    assert cluster.report_status["completionTime"] == completion_time(cluster)
    assert any(line.startswith("+2h") for line in cluster.report_status["timeline"]), (
        cluster.report_status
    )
    cluster.job = before  # the process died between the two writes
    run(cluster, again + timedelta(hours=1))
    assert completion_time(cluster) == format_time(again)


def test_a_retry_gives_an_unreachable_node_its_time_to_come_back():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["b"] = replace(cluster.nodes["b"], ready=False, ready_changed_at=NOW)
    seen = seen_before(cluster.snapshot(is_dry_run_done=True), timedelta(hours=2), NOW).seen
    run(cluster)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    plan = decide(replace(cluster.snapshot(is_dry_run_done=True), seen=seen), NOW)
    assert [event.reason for event in plan.events] == ["Retrying"]
    assert plan.requeue_after == 60.0
    assert acts(plan, WriteStatus)[0].status.to_raw()["phase"] == "Running"


def test_a_retry_whose_node_stays_unreachable_ends_the_run_again():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["b"] = replace(cluster.nodes["b"], ready=False, ready_changed_at=NOW)
    run(cluster)
    failed_at = completion_time(cluster)
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    before, again = cluster.job, NOW + timedelta(hours=2)
    run(cluster, again)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert completion_time(cluster) == format_time(again) != failed_at
    assert cluster.report_status["completionTime"] == completion_time(cluster)
    cluster.job = before  # the process died between the two writes
    run(cluster, again + timedelta(hours=1))
    assert completion_time(cluster) == format_time(again)
    assert run(cluster, again + timedelta(hours=2)).actions == ()


def test_taking_the_retry_annotation_away_asks_for_nothing():
    cluster = three_nodes()
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    cluster.job = replace(cluster.job, annotations={})
    assert run(cluster).actions == ()


def test_a_suspension_asked_for_is_no_warning():
    cluster = spec(make_cluster("a", gated=True), suspend=True)
    assert [(e.type, e.reason) for e in run(cluster).events] == [("Normal", "Paused")]


def test_the_deadline_of_the_run_is_recomputed_and_fails_it():
    cluster = spec(
        make_cluster("a", "b", gated=True, evidence={"a": done("a")}), active_deadline_seconds=90
    )
    plan = run(cluster)
    assert plan.requeue_after == 30.0
    run(cluster, START + timedelta(seconds=90))
    assert conditions(cluster)["Failed"] == ("True", "DeadlineExceeded")


def test_suspended_time_does_not_count_toward_the_deadline():
    cluster = spec(make_cluster("a", gated=True), active_deadline_seconds=90, suspend=True)
    run(cluster)
    assert deadline(cluster.job, NOW) is None
    spec(cluster, suspend=False)
    run(cluster, NOW)
    assert deadline(cluster.job, NOW) == NOW + timedelta(seconds=90)


@pytest.mark.parametrize("asked", ["resume", "retry"])
def test_run_resumed_after_its_deadline_restarts_the_deadline(asked):
    later = START + timedelta(hours=1)
    cluster = spec(
        make_cluster("a", "b", gated=True, evidence={"a": done("a")}), active_deadline_seconds=90
    )
    if asked == "resume":
        run(spec(cluster, suspend=True), NOW)
        spec(cluster, suspend=False)
    else:
        run(cluster, START + timedelta(seconds=90))
        assert conditions(cluster)["Failed"] == ("True", "DeadlineExceeded")
        cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    plan = run(cluster, later)
    assert cluster.job.status.to_raw()["phase"] == "Running"
    assert plan.requeue_after == 90.0
    run(cluster, later + timedelta(seconds=89))
    assert cluster.job.status.to_raw()["phase"] == "Running"
    run(cluster, later + timedelta(seconds=91))
    assert conditions(cluster)["Failed"] == ("True", "DeadlineExceeded")


def test_a_job_suspended_before_its_start_makes_nothing():
    job = make_job()
    job = replace(job, spec=replace(job.spec, suspend=True))
    cluster = make_cluster("a", job=job, has_daemon_set=False, has_report=False, running=False)
    plan = run(cluster)
    assert [type(a) for a in plan.actions] == [WriteStatus]
    assert cluster.job.status.to_raw()["phase"] == "Paused"
    assert "startTime" not in cluster.job.status.to_raw()
    assert run(cluster).actions == ()
    spec(cluster, suspend=False)
    run(cluster)
    assert cluster.job.status.to_raw()["startTime"]
    assert conditions(cluster)["Suspended"] == ("False", "Resumed")


def test_suspend_gates_new_pods_and_opens_none():
    cluster = spec(make_cluster("a", gated=False), suspend=True)
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(gated_pod("b"))
    plan = run(cluster)
    assert acts(plan, ApplyDaemonSet)
    assert not acts(plan, RemoveSchedulingGates)


def test_a_run_is_called_paused_when_the_gate_is_seen_to_be_up():
    cluster = spec(make_cluster("a", gated=False), suspend=True)
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] == "Running"
    assert conditions(cluster)["Progressing"] == ("True", "NodesActive")
    cluster.gated, cluster.observed = True, False
    run(cluster)
    assert "Suspended" not in conditions(cluster)
    cluster.observed = True
    plan = run(cluster)
    assert conditions(cluster)["Suspended"] == ("True", "Suspended")
    assert cluster.job.status.to_raw()["phase"] == "Paused"
    assert [e.reason for e in plan.events] == ["Paused"]


def test_a_paused_run_stays_so_while_its_daemon_set_changes():
    cluster = spec(make_cluster("a", gated=True), suspend=True)
    run(cluster)
    cluster.observed = False
    assert run(cluster).actions == ()
    cluster.has_daemon_set = False
    run(cluster)
    assert conditions(cluster)["Suspended"] == ("True", "Suspended")


def test_daemon_set_deleted_after_completion_is_recreated():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    run(cluster)
    cluster.has_daemon_set = False
    assert acts(decide(cluster.snapshot(pods=()), NOW), ApplyDaemonSet)


def test_nodes_that_leave_are_kept_in_the_record_by_what_they_did():
    cluster = make_cluster("a", "b", "c", "d", gated=True, evidence={"a": done("a")})
    spec(cluster, failure_policy=FailurePolicy("Continue", 9))
    cluster.pods[1] = failing("b")
    cluster.pods[3] = make_pod("d", state="waiting")
    run(cluster)
    cluster.nodes = {"e": make_node("e")}
    cluster.pods = [make_pod("e")]
    run(cluster)
    states = {name: raw["state"] for name, raw in cluster.report_status["nodeStates"].items()}
    assert states == {"a": "Completed", "b": "Failed", "c": "Removed", "e": "Active"}


def test_waiting_node_is_recorded_only_after_the_run():
    cluster = make_cluster("a", "b", "c", gated=True)
    cluster.pods = [make_pod("a"), make_pod("b", state="waiting"), gated_pod("c")]
    run(cluster, seen=timedelta(0))
    states = {name: raw["state"] for name, raw in cluster.report_status["nodeStates"].items()}
    assert states == {"a": "Active", "c": "Waiting"}  # the latter with a reason
    assert cluster.report_status["nodes"]["waiting"] == 2

    cluster.pods[0] = failing("a")
    spec(cluster, backoff_limit=0)
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] == "Failed"
    states = {name: raw["state"] for name, raw in cluster.report_status["nodeStates"].items()}
    assert states == {"a": "Failed", "b": "Waiting", "c": "Waiting"}


def test_records_go_to_the_shard_of_the_evidence_or_one_with_room():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    first = cluster.report()
    second = replace(first, name="second", shard=1, evidence={"b": done("b")})
    plan = decide(cluster.snapshot(reports=(second, replace(first))), NOW)
    by_name = {a.name: a.status.to_raw() for a in acts(plan, WriteReportStatus)}
    assert set(by_name["second"]["nodeStates"]) == {"b"}
    assert set(by_name[first.name]["nodeStates"]) == {"a"}
    assert "phase" not in by_name["second"]


def test_large_runs_get_further_shards():
    cluster = make_cluster(*[f"n{number}" for number in range(2500)], running=False, gated=True)
    plan = decide(cluster.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1, 2]


def test_evidence_of_nodes_that_left_needs_room_as_well():
    gone = {f"gone-{n:04}": done(f"gone-{n:04}") for n in range(1000)}
    cluster = make_cluster("a", gated=True, evidence=gone)
    plan = decide(cluster.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1]


def test_no_shard_takes_more_records_than_its_share(monkeypatch):
    monkeypatch.setattr("job_controller.core.render.shards.NODES_PER_SHARD", 2)
    cluster = make_cluster("a", "b", "c", "d", gated=True)
    active = NodeRecord(uid="u", state="Active")
    first = replace(cluster.report(), status=ReportStatus(node_states={"a": active, "b": active}))
    # The evidence of c is recorded where there is no room for its record.
    first = replace(first, evidence={"c": done("c"), "d": done("d")})
    second = replace(cluster.report(), name="second", shard=1)
    plan = decide(cluster.snapshot(reports=(first, second)), NOW)
    by_name = {a.name: set(a.status.node_states) for a in acts(plan, WriteReportStatus)}
    assert by_name == {first.name: {"a", "b"}, "second": {"c", "d"}}


def test_completed_node_does_not_replace_one_whose_pod_is_terminating():
    """Of three nodes two are desired: b, whose pod cannot end, and c. a completed, and was left."""
    cluster = make_cluster(
        "a", "b", "c", gated=True, desired=2, scheduled=2, evidence={"a": done("a")}
    )
    cluster.nodes["a"] = replace(cluster.nodes["a"], taints=(Taint("maintenance", "NoSchedule"),))
    cluster.nodes["b"] = lost("b")
    cluster.pods = [replace(make_pod("b"), is_terminating=True), make_pod("c")]
    plan = run(cluster)
    assert cluster.job.status.to_raw()["nodes"]["completed"] == 0
    assert reason_of(plan) == "NodesUnreachable"


def test_past_refusal_does_not_hide_why_pods_are_missing():
    cluster = make_cluster("a", "b", gated=True, failed_create_message="exceeded quota: pods=0")
    cluster.nodes["b"] = lost("b")
    cluster.pods = [make_pod("a"), replace(make_pod("b"), is_terminating=True)]
    assert reason_of(run(cluster)) == "NodesUnreachable"
    cluster.nodes["c"] = make_node("c")
    plan = run(cluster)
    assert reason_of(plan) == "FailedCreate"


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({}, False),
        ({"pods": []}, True),
        ({"pods": [], "observed": False}, False),
        ({"pods": [], "has_daemon_set": False}, False),
        ({"pods": [], "desired": 0}, False),
        ({"pods": [], "evidence": {"a": done("a"), "b": done("b")}}, False),
        ({"pods": [make_pod("a")]}, True),
    ],
    ids=["all there", "none", "unobserved", "no set", "none desired", "rest", "one"],
)
def test_events_are_listed_only_if_no_other_reason_is_known(changes, lacks):
    cluster = make_cluster("a", "b", gated=True)
    for field, value in changes.items():
        setattr(cluster, field, value)
    assert decide(cluster.snapshot(), NOW).has_missing_pods is lacks


def test_pods_of_nodes_that_are_down_are_not_asked_about():
    cluster = make_cluster("a", "b", gated=True)
    cluster.nodes["b"] = lost("b")
    cluster.pods = [make_pod("a"), replace(make_pod("b"), is_terminating=True)]
    assert not decide(cluster.snapshot(), NOW).has_missing_pods


def test_a_reported_refusal_stays_until_the_next_search():
    """As after a restart of the controller, which knows no event yet."""
    cluster = make_cluster(
        "a", "b", gated=True, running=False, desired=2, failed_create_message="exceeded quota"
    )
    run(cluster)
    before = cluster.job.status.to_raw()["conditions"]
    cluster.failed_create_message = None
    plan = run(cluster)
    assert (cluster.job.status.to_raw()["conditions"], plan.events) == (before, ())
    cluster.failed_create_message = ""
    assert reason_of(run(cluster)) != "FailedCreate"


def test_run_waiting_for_a_pod_of_a_down_node_reports_it():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a"), "b": done("b")})
    cluster.nodes["b"] = lost("b")
    cluster.pods = [make_pod("a"), replace(make_pod("b"), is_terminating=True)]
    plan = run(cluster)
    assert cluster.job.status.to_raw()["nodes"]["completed"] == 2
    assert not cluster.job.is_true(ConditionType.COMPLETE)
    assert reason_of(plan) == "NodesUnreachable"


def test_failure_recorded_before_a_retry_does_not_count():
    cluster = make_cluster("a", gated=True)
    record = NodeRecord(uid="a-uid", state="Failed", pod_uid="gone", retry="0")
    cluster.report_status = {"nodeStates": {"a": record.to_raw()}}
    cluster.job = replace(started(make_job()), annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    assert cluster.job.status.to_raw()["nodes"]["active"] == 1


def test_the_message_of_a_failed_run_counts_nodes_that_fail_later():
    cluster = three_nodes()
    run(cluster)
    cluster.pods[2] = failing("c")
    plan = run(cluster)
    words = "2 of 3 nodes failed: b exit 2 after 10 attempts; c exit 2 after 10 attempts"
    written = {c.type: c.message for c in cluster.job.status.conditions}
    assert written["Failed"] == written["Progressing"] == words
    assert cluster.report_status["message"] == words
    assert not plan.events
    assert run(cluster).actions == ()


def test_the_message_of_a_failed_run_stays_when_its_unreachable_node_is_back():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["b"] = lost("b")
    run(cluster)
    before = cluster.job.status.condition(ConditionType.FAILED)
    cluster.nodes["b"] = make_node("b")
    run(cluster)
    assert cluster.job.status.condition(ConditionType.FAILED) == before


def test_the_status_of_a_completed_job_shows_a_node_that_fails_later():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "AllNodesCompleted")
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(failing("b"))
    run(cluster)
    written = {c.type: c.message for c in cluster.job.status.conditions}
    assert written["Complete"] == "1 of 1 nodes completed"
    assert written["Progressing"] == "1 of 2 nodes completed, 1 failed (b)"
    assert cluster.report_status["message"] == written["Progressing"]
    assert cluster.job.status.nodes.failed == 1


def completed_on_a(**changes):
    """Return a kept Job that completed on node a, the only one that it selected."""
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    raw = {"image": "i", "nodes": {"include": ["a"]}}
    cluster.job = replace(cluster.job, spec=parse_spec(raw), raw_spec=raw)
    spec(cluster, **changes)
    run(cluster)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    return cluster


def widened(cluster, nodes):
    """Have a user change spec.nodes; returns the snapshot with the DaemonSet as it was applied."""
    before = cluster.daemon_set()
    job, raw = cluster.job, {**cluster.job.raw_spec}
    raw.pop("nodes", None)
    if nodes:
        raw["nodes"] = nodes
    new = replace(job.spec, nodes=parse_spec(raw).nodes)
    cluster.job = replace(job, generation=2, spec=new, raw_spec=raw)
    return cluster.snapshot(daemon_set=before)


def test_a_completed_job_whose_selection_is_widened_is_open_again():
    cluster = completed_on_a(ttl_seconds_after_finished=3600, active_deadline_seconds=100)
    cluster.nodes["b"] = make_node("b")
    cluster.desired = 1
    changed = widened(cluster, None)
    plan = decide(changed, NOW + timedelta(hours=1))
    (status,) = [a.status for a in plan.actions if isinstance(a, WriteStatus)]
    complete = status.condition(ConditionType.COMPLETE)
    assert (complete.status, complete.reason) == (False, "NodesAdded")
    assert (status.phase, status.completion_time) == ("Running", None)
    assert status.observed_generation == 2
    # The status is written before the DaemonSet: afterwards nothing else shows the change.
    assert not acts(plan, ApplyDaemonSet)
    (report,) = acts(plan, WriteReportStatus)
    assert report.status.phase == "Running"
    assert [event.reason for event in plan.events] == ["NodesAdded"]
    # The next reconcile applies the selection, and waits for the DaemonSet controller to count.
    cluster.job = replace(cluster.job, status=status)
    cluster.report_status = report.status.to_raw()
    reports = cluster.snapshot().reports
    later = decide(replace(changed, job=cluster.job, reports=reports), NOW + timedelta(hours=1))
    assert acts(later, ApplyDaemonSet)
    assert all(a.status.phase == "Running" for a in acts(later, WriteStatus))


@pytest.mark.parametrize(
    ("nodes", "node"),
    [
        ({"include": ["a", "c"]}, make_node("b")),
        (None, make_node("b", taints=(Taint("gpu", "NoSchedule"),))),
        ({"include": ["z"]}, make_node("b")),
    ],
    ids=["not selected", "tainted", "narrowed"],
)
def test_a_change_that_adds_no_node_leaves_a_completed_job_complete(nodes, node):
    cluster = completed_on_a(ttl_seconds_after_finished=3600)
    cluster.nodes["b"] = node
    cluster.desired = 1
    plan = decide(widened(cluster, nodes), NOW)
    assert acts(plan, ApplyDaemonSet)
    for action in acts(plan, WriteStatus):
        assert action.status.condition(ConditionType.COMPLETE).status is True


def test_a_node_that_failed_within_the_limit_is_not_added():
    cluster = completed_on_a(ttl_seconds_after_finished=3600)
    cluster.nodes["b"] = make_node("b")
    cluster.desired = 1
    cluster.report_status["nodeStates"]["b"] = {"uid": "b-uid", "state": "Failed"}
    plan = decide(widened(cluster, None), NOW)
    assert not any(event.reason == "NodesAdded" for event in plan.events)


def test_the_pod_of_a_task_that_exits_after_its_token_is_replaced_by_a_gated_one():
    cluster = make_cluster("a", "b", gated=False, evidence={"a": done("a")})
    container = Container(state="running", restart_count=1, last_exit_code=0, last_finished_at=NOW)
    cluster.pods[0] = make_pod("a", container=container)
    plan = run(cluster)
    assert not acts(plan, DeletePods)  # its successor would start
    assert [event.reason for event in plan.events] == ["TaskExited"]
    assert "the task on a printed the token and ended with exit 0" in plan.events[0].message
    cluster.gated = True
    plan = run(cluster)
    (deletion,) = acts(plan, DeletePods)
    assert [pod.name for pod in deletion.pods] == ["sample-a-1"]
    assert not plan.events  # reported once
