"""The run as a whole: when it fails, is held, completes, and what the status says of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.job import FailurePolicy, NodeSelection
from daemonset_job.api.objects import Container
from daemonset_job.api.report import NodeRecord
from daemonset_job.api.taints import Taint
from daemonset_job.api.times import format_time
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ApplyDaemonSet,
    DeleteDaemonSet,
    DeletePods,
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
    make_job,
    make_node,
    make_pod,
    seen_before,
    started,
    world,
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
    (status,) = [a.status for a in plan.actions if isinstance(a, WriteStatus)]
    (found,) = [c["reason"] for c in status["conditions"] if c["type"] == "Progressing"]
    return found


def run(w, now=NOW, seen=timedelta(minutes=1)):
    """Decide, take over what the plan writes, and return the plan.

    `seen` is for how long the controller has seen all that is there. The API server would take the
    DaemonSet of a Job that has not started.
    """
    plan = decide(seen_before(w.snapshot(is_dry_run_done=True), seen, now), now)
    for action in plan.actions:
        if isinstance(action, WriteStatus):
            w.job = replace(w.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            w.report_status = action.status
    return plan


def spec(w, **changes):
    w.job = replace(w.job, spec=replace(w.job.spec, **changes))
    return w


def three(action="FailFast", allowed=0, **changes):
    """Return a world in which b fails, a is done and c works."""
    w = world("a", "b", "c", gated=True, evidence={"a": done("a")}, **changes)
    w.pods[1] = failing("b")
    return spec(w, failure_policy=FailurePolicy(action, allowed))


def conditions(w):
    return {c["type"]: (c["status"], c["reason"]) for c in w.job.status["conditions"]}


def acts(plan, kind):
    return [action for action in plan.actions if isinstance(action, kind)]


@pytest.mark.parametrize(
    ("limit", "desired", "allowed"),
    [(0, 9, 0), (2, 1, 2), ("10%", 5, 0), ("10%", 19, 1), ("100%", 7, 7), ("34%", 3, 1)],
)
def test_allowed_failures(limit, desired, allowed):
    assert allowed_failures(limit, desired) == allowed


def test_fail_fast_fails_with_the_first_node_too_many():
    w = three()
    plan = run(w)
    assert conditions(w)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert w.job.status["phase"] == "Failed"
    assert w.job.status["completionTime"]
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "Failed")]
    assert plan.events[0].message == "1 of 3 nodes failed: b exit 2 after 10 attempts"
    assert w.report_status["phase"] == "Failed"
    assert run(w).actions == ()


def test_failures_within_a_percentage_do_not_fail_a_run_whose_daemon_set_is_made_again():
    w = world(*(f"n{i}" for i in range(20)), gated=True)
    w.pods[0] = failing("n0")
    spec(w, failure_policy=FailurePolicy("FailFast", "10%"))
    run(w)
    assert w.job.status["phase"] == "Running"
    w.has_daemon_set = False
    run(w)
    assert "Failed" not in conditions(w)


def test_nodes_that_all_leave_at_once_complete_nothing():
    """The last pod is being deleted, and the DaemonSet's counters are those of before."""
    w = world("a", gated=True, evidence={})
    w.job = replace(w.job, raw_spec={"nodes": {"selector": {"matchLabels": {"zone": "a"}}}})
    selector = {"matchLabels": {"zone": "a"}}
    spec(w, nodes=NodeSelection(selector=selector))
    w.pods = [replace(make_pod("a"), is_terminating=True)]
    run(w)
    assert "Complete" not in conditions(w)


def test_the_start_of_a_nodes_deadline_is_on_record_while_its_task_waits():
    w = world("a", gated=True)
    w.pods = [replace(make_pod("a", state="waiting"), started_at=START)]
    spec(w, node_deadline_seconds=60)
    run(w, seen=timedelta(0))
    assert w.report_status["nodeStates"]["a"]["activeSince"] == "2026-01-02T03:04:05Z"
    run(w, NOW + timedelta(seconds=61), seen=timedelta(0))
    assert w.report_status["nodeStates"]["a"]["reason"] == "DeadlineExceeded"


def test_many_failed_nodes_are_told_in_brief():
    w = world(*(f"n{i}" for i in range(9)), gated=True)
    w.pods = [failing(f"n{i}") for i in range(6)] + [make_pod(f"n{i}") for i in range(6, 9)]
    run(w)
    failed = next(c for c in w.job.status["conditions"] if c["type"] == "Failed")
    assert failed["message"].startswith("6 of 9 nodes failed: n0 exit 2")
    assert failed["message"].endswith("; and n[3-5]")


def test_continue_waits_for_the_others():
    w = three("Continue")
    run(w)
    assert "Failed" not in conditions(w)
    w.evidence = {"a": done("a"), "c": done("c")}
    run(w)
    assert conditions(w)["Failed"] == ("True", "MaxFailedNodesExceeded")


def test_continue_within_the_limit_completes_and_names_the_failed():
    w = three("Continue", "34%")
    w.evidence = {"a": done("a"), "c": done("c")}
    run(w)
    assert conditions(w)["Complete"] == ("True", "CompletedWithinFailureLimit")
    complete = next(c for c in w.job.status["conditions"] if c["type"] == "Complete")
    assert complete["message"] == "2 of 3 nodes completed, 1 failed (b)"


def test_a_failed_node_that_is_excluded_in_the_edit_of_the_limit_fails_nothing():
    """The newest limit says nothing of the nodes of an older spec.nodes."""
    w = world("a", "b", "c", gated=True)
    w.pods[2] = failing("c")
    changed = replace(w.job.spec, failure_policy=FailurePolicy("FailFast", 1))
    w.job = replace(w.job, spec=changed)
    run(w)
    assert w.job.status["phase"] == "Running"
    job = replace(
        w.job,
        generation=2,
        raw_spec={"nodes": {"exclude": ["c"]}},
        spec=replace(
            changed,
            nodes=NodeSelection(exclude=("c",)),
            failure_policy=FailurePolicy("FailFast", 0),
        ),
    )
    seen = seen_before(replace(w.snapshot(), job=job), timedelta(minutes=1))
    (told,) = [a.status for a in decide(seen, NOW).actions if isinstance(a, WriteStatus)]
    assert told["phase"] == "Running"


def test_pause_holds_turns_until_more_is_allowed():
    w = three("Pause")
    w.nodes["d"] = make_node("d")
    w.pods.append(gated_pod("d"))
    plan = run(w)
    assert conditions(w)["Suspended"] == ("True", "MaxFailedNodesExceeded")
    assert w.job.status["phase"] == "Paused"
    assert not acts(plan, RemoveSchedulingGates)
    spec(w, failure_policy=FailurePolicy("Pause", 1))
    plan = run(w)
    assert conditions(w)["Suspended"] == ("False", "Resumed")
    assert acts(plan, RemoveSchedulingGates)


def test_a_run_that_its_policy_holds_does_not_hear_its_deadline_and_has_all_of_it_again():
    w = three("Pause")
    spec(w, active_deadline_seconds=600)
    run(w)
    assert w.job.status["phase"] == "Paused"
    later = NOW + timedelta(hours=1)
    run(w, later)
    assert w.job.status["phase"] == "Paused"
    spec(w, failure_policy=FailurePolicy("Pause", 1))
    run(w, later)
    assert w.job.status["phase"] == "Running"
    run(w, later + timedelta(seconds=599))
    assert w.job.status["phase"] == "Running"
    run(w, later + timedelta(seconds=600))
    assert w.job.status["phase"] == "Failed"


def test_unreachable_nodes_count_in_the_budget_and_are_told_apart():
    w = world("a", "b", gated=True, evidence={"a": done("a")})
    w.nodes["b"] = lost("b")
    run(w)
    assert w.job.status["nodes"]["unreachable"] == 1
    assert w.job.status["nodes"]["failed"] == 0
    failed = next(c for c in w.job.status["conditions"] if c["type"] == "Failed")
    assert failed["message"] == "1 unreachable (b)"


def test_continue_waits_for_unreachable_nodes_and_says_so():
    w = world("a", "b", gated=True, evidence={"a": done("a")})
    spec(w, failure_policy=FailurePolicy("Continue"))
    w.nodes["b"] = lost("b")
    run(w)
    assert conditions(w)["Progressing"] == ("False", "NodesUnreachable")
    assert "Failed" not in conditions(w)


def test_a_failed_run_gives_no_turns_and_its_daemon_set_is_not_made_again():
    w = three()
    run(w)
    w.nodes["d"] = make_node("d")
    w.pods.append(gated_pod("d"))
    assert not acts(run(w), RemoveSchedulingGates)
    w.has_daemon_set = False
    assert not acts(decide(w.snapshot(pods=()), NOW), ApplyDaemonSet)


def test_a_run_that_fails_early_still_gets_its_gate():
    w = three()
    w.gated = False
    plan = run(w)
    (apply,) = acts(plan, ApplyDaemonSet)
    assert "schedulingGates" in apply.body["spec"]["template"]["spec"]


def test_pods_of_a_failed_run_go_when_asked_and_told():
    w = spec(three(), failure_policy=FailurePolicy(pods="Delete"))
    assert not acts(run(w), DeleteDaemonSet)
    plan = run(w)
    assert acts(plan, DeleteDaemonSet)
    assert [pod.node_name for pod in acts(plan, DeletePods)[0].pods] == ["b"]


def test_pods_of_a_failed_run_stay_until_its_failure_is_on_record():
    """Without them nothing would say that it failed, and the DaemonSet would be made again."""
    w = spec(three(), failure_policy=FailurePolicy(pods="Delete"))
    status = w.job.status
    run(w)
    w.job = replace(w.job, status=status)  # this write was refused
    assert w.report_status["phase"] == "Failed"
    assert not acts(run(w), DeleteDaemonSet)
    assert acts(run(w), DeleteDaemonSet)


def test_pods_of_a_failed_run_that_may_not_be_deleted_are_told_and_hold_up_no_record():
    w = spec(three(), failure_policy=FailurePolicy(pods="Delete"))
    run(w)
    plan = decide(w.snapshot(deletion_refusal="the policy says no"), NOW)
    assert not acts(plan, DeleteDaemonSet)
    assert not acts(plan, DeletePods)
    (status,) = [a.status for a in acts(plan, WriteStatus)]
    (told,) = [c for c in status["conditions"] if c["type"] == "Progressing"]
    assert (told["status"], told["reason"]) == ("False", "Failed")
    assert "deletion of pods of failed nodes: the policy says no" in told["message"]
    assert plan.requeue_after is not None
    assert plan.requeue_after <= 15.0


def retried(w):
    """Ask for a retry; return a world in which the failed node has its next pod, which waits."""
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(w)
    w.pods[1] = gated_pod("b", serial=5)
    return w


def test_a_deletion_that_is_refused_lets_gates_be_opened_and_a_gate_lets_pods_be_deleted():
    w = retried(three("Continue"))
    w.nodes["d"] = make_node("d")
    w.pods.append(replace(failing("d"), is_terminating=False))
    w.desired = w.scheduled = 4
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "2"})
    record = NodeRecord(uid="d-uid", state="Failed", pod_uid=w.pods[3].uid, retry="1")
    w.report_status["nodeStates"]["d"] = record.to_raw()
    refused = {"gate_refusal": "no gates", "deletion_refusal": "no deletions"}

    everything = decide(w.snapshot(), NOW)
    assert acts(everything, RemoveSchedulingGates)
    assert acts(everything, DeletePods)
    without_deletion = decide(w.snapshot(deletion_refusal="no deletions"), NOW)
    assert acts(without_deletion, RemoveSchedulingGates) == acts(everything, RemoveSchedulingGates)
    assert not acts(without_deletion, DeletePods)
    without_gates = decide(w.snapshot(gate_refusal="no gates"), NOW)
    assert acts(without_gates, DeletePods) == acts(everything, DeletePods)
    assert not acts(without_gates, RemoveSchedulingGates)

    both = decide(w.snapshot(**{key: f"{text} {'x' * 4000}" for key, text in refused.items()}), NOW)
    (status,) = [a.status for a in acts(both, WriteStatus)]
    (told,) = [c for c in status["conditions"] if c["type"] == "Progressing"]
    assert told["reason"] == "PodChangeRefused"
    assert "removal of scheduling gates: no gates" in told["message"]
    assert "deletion of pods of failed nodes: no deletions" in told["message"]
    assert len(told["message"]) < 1200


def completion_time(w):
    return w.job.status["completionTime"]


@pytest.mark.parametrize("later", [timedelta(hours=1), timedelta(0)])
def test_a_second_failure_has_its_own_time_though_the_report_still_tells_of_the_first(later):
    w = three()
    run(w)
    first = completion_time(w)
    told = w.report_status
    # The retry is on record in the Job; the report, whose writes are refused, says Failed.
    w = retried(w)
    flipped = [
        {**c, "lastTransitionTime": format_time(NOW + later)} if c["type"] == "Failed" else c
        for c in w.job.status["conditions"]
    ]
    w.job = replace(w.job, status={**w.job.status, "conditions": flipped})
    w.report_status = told
    w.pods[1] = replace(failing("b"), uid="pod-b-5")
    again = NOW + timedelta(hours=2)
    run(w, again)
    assert conditions(w)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert completion_time(w) == format_time(again) != first


def test_a_failure_that_only_the_report_tells_of_keeps_its_time_after_a_retry_too():
    w = three()
    run(w)
    w = retried(w)
    w.pods[1] = replace(failing("b"), uid="pod-b-5")
    before = w.job
    run(w, NOW + timedelta(hours=2))
    w.job = before  # the process died between the two writes
    run(w, NOW + timedelta(hours=3))
    assert completion_time(w) == format_time(NOW + timedelta(hours=2))


def test_an_end_that_the_report_tells_of_an_older_spec_is_no_end_of_this_one():
    w = world("a", gated=True, evidence={"a": done("a")})
    before = w.job
    run(w)
    w.job = replace(before, generation=2)
    again = NOW + timedelta(hours=2)
    run(w, again)
    assert w.job.is_true(names.CONDITION_COMPLETE)
    assert completion_time(w) == format_time(again)


def test_a_retry_opens_a_failed_run_for_its_failed_nodes_only():
    w = three()
    run(w)
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    plan = run(w)
    assert [pod.node_name for pod in acts(plan, DeletePods)[0].pods] == ["b"]
    assert conditions(w)["Failed"] == ("False", "Retrying")
    assert "Retrying" in [e.reason for e in plan.events]
    assert w.job.status["phase"] == "Running"
    assert "completionTime" not in w.job.status
    w.pods[1] = gated_pod("b", serial=5)
    plan = run(w)
    assert [pod.node_name for pod in acts(plan, RemoveSchedulingGates)[0].pods] == ["b"]
    assert w.job.status["nodes"]["failed"] == 0


def test_a_retry_that_finds_every_node_completed_ends_the_run_anew():
    # The failed node's task went on, and completed it before the retry was asked for.
    w = three()
    run(w)
    failed_at = completion_time(w)
    w.evidence = {name: done(name) for name in "abc"}
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    before, again = w.job, NOW + timedelta(hours=2)
    run(w, again)
    assert w.job.is_true(names.CONDITION_COMPLETE)
    assert completion_time(w) == format_time(again) != failed_at
    assert w.report_status["completionTime"] == completion_time(w)
    assert any(line.startswith("+2h") for line in w.report_status["timeline"]), w.report_status
    w.job = before  # the process died between the two writes
    run(w, again + timedelta(hours=1))
    assert completion_time(w) == format_time(again)


def test_a_retry_gives_an_unreachable_node_its_time_to_come_back():
    w = world("a", "b", gated=True, evidence={"a": done("a")})
    w.nodes["b"] = replace(w.nodes["b"], ready=False, ready_changed_at=NOW)
    seen = seen_before(w.snapshot(is_dry_run_done=True), timedelta(hours=2), NOW).seen
    run(w)
    assert conditions(w)["Failed"] == ("True", "MaxFailedNodesExceeded")
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    plan = decide(replace(w.snapshot(is_dry_run_done=True), seen=seen), NOW)
    assert [event.reason for event in plan.events] == ["Retrying"]
    assert plan.requeue_after == 60.0
    assert acts(plan, WriteStatus)[0].status["phase"] == "Running"


def test_a_retry_whose_node_is_still_unreachable_a_minute_later_ends_the_run_anew():
    w = world("a", "b", gated=True, evidence={"a": done("a")})
    w.nodes["b"] = replace(w.nodes["b"], ready=False, ready_changed_at=NOW)
    run(w)
    failed_at = completion_time(w)
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    before, again = w.job, NOW + timedelta(hours=2)
    run(w, again)
    assert conditions(w)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert completion_time(w) == format_time(again) != failed_at
    assert w.report_status["completionTime"] == completion_time(w)
    w.job = before  # the process died between the two writes
    run(w, again + timedelta(hours=1))
    assert completion_time(w) == format_time(again)
    assert run(w, again + timedelta(hours=2)).actions == ()


def test_taking_the_retry_annotation_away_asks_for_nothing():
    w = three()
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(w)
    assert conditions(w)["Failed"] == ("True", "MaxFailedNodesExceeded")
    w.job = replace(w.job, annotations={})
    assert run(w).actions == ()


def test_a_suspension_asked_for_is_no_warning():
    w = spec(world("a", gated=True), suspend=True)
    assert [(e.type, e.reason) for e in run(w).events] == [("Normal", "Paused")]


def test_the_deadline_of_the_run_is_recomputed_and_fails_it():
    w = spec(world("a", "b", gated=True, evidence={"a": done("a")}), active_deadline_seconds=90)
    plan = run(w)
    assert plan.requeue_after == 30.0
    run(w, START + timedelta(seconds=90))
    assert conditions(w)["Failed"] == ("True", "DeadlineExceeded")


def test_suspended_time_does_not_count_toward_the_deadline():
    w = spec(world("a", gated=True), active_deadline_seconds=90, suspend=True)
    run(w)
    assert deadline(w.job, NOW) is None
    spec(w, suspend=False)
    run(w, NOW)
    assert deadline(w.job, NOW) == NOW + timedelta(seconds=90)


@pytest.mark.parametrize("asked", ["resume", "retry"])
def test_a_run_that_goes_on_after_its_deadline_has_the_whole_time_again(asked):
    later = START + timedelta(hours=1)
    w = spec(world("a", "b", gated=True, evidence={"a": done("a")}), active_deadline_seconds=90)
    if asked == "resume":
        run(spec(w, suspend=True), NOW)
        spec(w, suspend=False)
    else:
        run(w, START + timedelta(seconds=90))
        assert conditions(w)["Failed"] == ("True", "DeadlineExceeded")
        w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    plan = run(w, later)
    assert w.job.status["phase"] == "Running"
    assert plan.requeue_after == 90.0
    run(w, later + timedelta(seconds=89))
    assert w.job.status["phase"] == "Running"
    run(w, later + timedelta(seconds=91))
    assert conditions(w)["Failed"] == ("True", "DeadlineExceeded")


def test_a_job_suspended_before_its_start_makes_nothing():
    job = make_job()
    job = replace(job, spec=replace(job.spec, suspend=True))
    w = world("a", job=job, has_daemon_set=False, has_report=False, running=False)
    plan = run(w)
    assert [type(a) for a in plan.actions] == [WriteStatus]
    assert w.job.status["phase"] == "Paused"
    assert "startTime" not in w.job.status
    assert run(w).actions == ()
    spec(w, suspend=False)
    run(w)
    assert w.job.status["startTime"]
    assert conditions(w)["Suspended"] == ("False", "Resumed")


def test_suspend_gates_new_pods_and_opens_none():
    w = spec(world("a", gated=False), suspend=True)
    w.nodes["b"] = make_node("b")
    w.pods.append(gated_pod("b"))
    plan = run(w)
    assert acts(plan, ApplyDaemonSet)
    assert not acts(plan, RemoveSchedulingGates)


def test_a_run_is_called_paused_when_the_gate_is_seen_to_be_up():
    w = spec(world("a", gated=False), suspend=True)
    run(w)
    assert w.job.status["phase"] == "Running"
    assert conditions(w)["Progressing"] == ("True", "NodesActive")
    w.gated, w.observed = True, False
    run(w)
    assert "Suspended" not in conditions(w)
    w.observed = True
    plan = run(w)
    assert conditions(w)["Suspended"] == ("True", "Suspended")
    assert w.job.status["phase"] == "Paused"
    assert [e.reason for e in plan.events] == ["Paused"]


def test_a_paused_run_stays_so_while_its_daemon_set_changes():
    w = spec(world("a", gated=True), suspend=True)
    run(w)
    w.observed = False
    assert run(w).actions == ()
    w.has_daemon_set = False
    run(w)
    assert conditions(w)["Suspended"] == ("True", "Suspended")


def test_a_daemon_set_that_goes_after_completion_is_made_again_for_the_second_count():
    w = world("a", gated=True, evidence={"a": done("a")})
    run(w)
    w.has_daemon_set = False
    assert acts(decide(w.snapshot(pods=()), NOW), ApplyDaemonSet)


def test_nodes_that_leave_are_kept_in_the_record_by_what_they_did():
    w = world("a", "b", "c", "d", gated=True, evidence={"a": done("a")})
    spec(w, failure_policy=FailurePolicy("Continue", 9))
    w.pods[1] = failing("b")
    w.pods[3] = make_pod("d", state="waiting")
    run(w)
    w.nodes = {"e": make_node("e")}
    w.pods = [make_pod("e")]
    run(w)
    states = {name: raw["state"] for name, raw in w.report_status["nodeStates"].items()}
    assert states == {"a": "Completed", "b": "Failed", "c": "Removed", "e": "Active"}


def test_a_node_that_merely_waits_is_on_record_only_once_the_run_has_ended():
    w = world("a", "b", "c", gated=True)
    w.pods = [make_pod("a"), make_pod("b", state="waiting"), gated_pod("c")]
    run(w, seen=timedelta(0))
    states = {name: raw["state"] for name, raw in w.report_status["nodeStates"].items()}
    assert states == {"a": "Active", "c": "Waiting"}  # the latter with a reason
    assert w.report_status["nodes"]["waiting"] == 2

    w.pods[0] = failing("a")
    spec(w, backoff_limit=0)
    run(w)
    assert w.job.status["phase"] == "Failed"
    states = {name: raw["state"] for name, raw in w.report_status["nodeStates"].items()}
    assert states == {"a": "Failed", "b": "Waiting", "c": "Waiting"}


def test_records_go_where_the_evidence_is_and_otherwise_where_there_is_room():
    w = world("a", "b", gated=True, evidence={"a": done("a")})
    first = w.report()
    second = replace(first, name="second", shard=1, evidence={"b": done("b")})
    plan = decide(w.snapshot(reports=(second, replace(first))), NOW)
    by_name = {a.name: a.status for a in acts(plan, WriteReportStatus)}
    assert set(by_name["second"]["nodeStates"]) == {"b"}
    assert set(by_name[first.name]["nodeStates"]) == {"a"}
    assert "phase" not in by_name["second"]


def test_large_runs_get_further_shards():
    w = world(*[f"n{number}" for number in range(2500)], running=False, gated=True)
    plan = decide(w.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1, 2]


def test_evidence_of_nodes_that_left_needs_room_as_well():
    gone = {f"gone-{n:04}": done(f"gone-{n:04}") for n in range(1000)}
    w = world("a", gated=True, evidence=gone)
    plan = decide(w.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1]


def test_no_shard_takes_more_records_than_its_share(monkeypatch):
    monkeypatch.setattr("job_controller.core.render.report_status.NODES_PER_SHARD", 2)
    w = world("a", "b", "c", "d", gated=True)
    active = NodeRecord(uid="u", state="Active").to_raw()
    first = replace(w.report(), status={"nodeStates": {"a": active, "b": active}})
    # The evidence of c stands where there is no room for its record.
    first = replace(first, evidence={"c": done("c"), "d": done("d")})
    second = replace(w.report(), name="second", shard=1)
    plan = decide(w.snapshot(reports=(first, second)), NOW)
    by_name = {a.name: set(a.status["nodeStates"]) for a in acts(plan, WriteReportStatus)}
    assert by_name == {first.name: {"a", "b"}, "second": {"c", "d"}}


def test_a_completed_node_is_not_counted_in_the_place_of_one_whose_pod_is_ending():
    """Of three nodes two are wanted: b, whose pod cannot end, and c. a completed, and was left."""
    w = world("a", "b", "c", gated=True, desired=2, scheduled=2, evidence={"a": done("a")})
    w.nodes["a"] = replace(w.nodes["a"], taints=(Taint("maintenance", "NoSchedule"),))
    w.nodes["b"] = lost("b")
    w.pods = [replace(make_pod("b"), is_terminating=True), make_pod("c")]
    plan = run(w)
    assert w.job.status["nodes"]["completed"] == 0
    assert reason_of(plan) == "NodesUnreachable"


def test_a_refusal_that_is_over_does_not_hide_why_pods_are_missing_now():
    w = world("a", "b", gated=True, failed_create_message="exceeded quota: pods=0")
    w.nodes["b"] = lost("b")
    w.pods = [make_pod("a"), replace(make_pod("b"), is_terminating=True)]
    assert reason_of(run(w)) == "NodesUnreachable"
    w.nodes["c"] = make_node("c")
    plan = run(w)
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
    ids=["all there", "none", "unobserved", "no set", "none wanted", "rest", "one"],
)
def test_why_pods_are_missing_is_asked_when_nothing_else_tells(changes, lacks):
    w = world("a", "b", gated=True)
    for field, value in changes.items():
        setattr(w, field, value)
    assert decide(w.snapshot(), NOW).has_missing_pods is lacks


def test_pods_of_nodes_that_are_down_are_not_asked_about():
    w = world("a", "b", gated=True)
    w.nodes["b"] = lost("b")
    w.pods = [make_pod("a"), replace(make_pod("b"), is_terminating=True)]
    assert not decide(w.snapshot(), NOW).has_missing_pods


def test_a_refusal_that_was_told_stays_until_it_is_looked_for_again():
    """As after a restart of the controller, which knows no event yet."""
    w = world(
        "a", "b", gated=True, running=False, desired=2, failed_create_message="exceeded quota"
    )
    run(w)
    before = w.job.status["conditions"]
    w.failed_create_message = None
    plan = run(w)
    assert (w.job.status["conditions"], plan.events) == (before, ())
    w.failed_create_message = ""
    assert reason_of(run(w)) != "FailedCreate"


def test_a_run_that_waits_for_the_pod_of_a_completed_node_that_is_down_says_so():
    w = world("a", "b", gated=True, evidence={"a": done("a"), "b": done("b")})
    w.nodes["b"] = lost("b")
    w.pods = [make_pod("a"), replace(make_pod("b"), is_terminating=True)]
    plan = run(w)
    assert w.job.status["nodes"]["completed"] == 2
    assert not w.job.is_true(names.CONDITION_COMPLETE)
    assert reason_of(plan) == "NodesUnreachable"


def test_a_recorded_failure_under_an_old_retry_does_not_hold_in_a_started_job():
    w = world("a", gated=True)
    record = NodeRecord(uid="a-uid", state="Failed", pod_uid="gone", retry="0")
    w.report_status = {"nodeStates": {"a": record.to_raw()}}
    w.job = replace(started(make_job()), annotations={names.ANNOTATION_RETRY: "1"})
    run(w)
    assert w.job.status["nodes"]["active"] == 1
