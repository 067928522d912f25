"""The run as a whole: when it fails, is held, completes, and what the status says of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode, FailureAction
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import Completion, FailurePolicy, parse_spec
from daemonset_job.api.job_status import parse_job_status
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import ConditionType
from daemonset_job.api.taints import Taint
from daemonset_job.api.times import format_time
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ApplyDaemonSet,
    DeletePods,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.run_state import deadline
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
from tests.unit.core.runs import (
    acts,
    completion_time,
    conditions,
    failing,
    lost,
    reason_of,
    retried,
    run,
    spec,
    three_nodes,
)


def test_start_of_a_node_deadline_is_recorded_while_the_task_waits():
    cluster = make_cluster("a", gated=True)
    cluster.pods = [replace(make_pod("a", state="waiting"), started_at=START)]
    spec(cluster, node_deadline_seconds=60)
    run(cluster, seen=timedelta(0))
    assert cluster.report_status["nodeStates"]["a"]["activeSince"] == "2026-01-02T03:04:05Z"
    run(cluster, NOW + timedelta(seconds=61), seen=timedelta(0))
    assert cluster.report_status["nodeStates"]["a"]["reason"] == "DeadlineExceeded"


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


def test_continue_waits_for_unreachable_nodes_and_says_so():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    spec(cluster, failure_policy=FailurePolicy("Continue"))
    cluster.nodes["b"] = lost("b")
    run(cluster)
    assert conditions(cluster)["Progressing"] == ("False", "NodesUnreachable")
    assert "Failed" not in conditions(cluster)


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
    observed = replace(cluster.job.status, observed_retry="1")
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"}, status=observed)
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


def test_a_retry_of_failed_nodes_restarts_the_deadline_of_a_run_that_goes_on():
    cluster = spec(three_nodes("Continue"), active_deadline_seconds=90)
    run(cluster, START + timedelta(seconds=70))
    assert cluster.report_status["nodeStates"]["b"]["state"] == "Failed"
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    plan = run(cluster, START + timedelta(seconds=89))
    assert plan.requeue_after <= 90.0
    cluster.pods[1] = make_pod("b", serial=5)
    cluster.job = replace(cluster.job, annotations={})
    plan = run(cluster, START + timedelta(seconds=91))
    assert (cluster.job.status.phase, plan.requeue_after) == ("Running", 88.0)
    run(cluster, START + timedelta(seconds=179))
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
    assert run(cluster, seen=timedelta(seconds=1)).actions == ()
    cluster.has_daemon_set = False
    run(cluster)
    assert conditions(cluster)["Suspended"] == ("True", "Suspended")


def test_daemon_set_deleted_after_completion_is_recreated():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    run(cluster)
    cluster.has_daemon_set = False
    assert acts(decide(cluster.snapshot(pods=()), NOW), ApplyDaemonSet)


def test_completed_node_does_not_replace_one_whose_pod_is_terminating():
    """Of three nodes two are desired: b, whose pod cannot end, and c. a completed, and was left."""
    cluster = make_cluster(
        "a", "b", "c", gated=True, desired=2, scheduled=2, evidence={"a": done("a")}
    )
    cluster.nodes["a"] = replace(cluster.nodes["a"], taints=(Taint("maintenance", "NoSchedule"),))
    cluster.nodes["b"] = lost("b")
    cluster.pods = [replace(make_pod("b"), is_terminating=True), make_pod("c")]
    plan = run(spec(cluster, failure_policy=FailurePolicy(FailureAction.CONTINUE)))
    nodes = cluster.job.status.to_raw()["nodes"]
    assert (nodes["desired"], nodes["completed"], nodes["unreachable"]) == (3, 1, 1)
    assert reason_of(plan) == "NodesUnreachable"


def test_failure_recorded_before_a_retry_does_not_count():
    cluster = make_cluster("a", gated=True)
    record = NodeRecord(uid="a-uid", state="Failed", pod_uid="gone", retry="0")
    cluster.report_status = {"nodeStates": {"a": record.to_raw()}}
    cluster.job = replace(started(make_job()), annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    assert cluster.job.status.to_raw()["nodes"]["active"] == 1


def test_the_status_of_a_completed_job_shows_a_node_that_fails_later():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "AllNodesCompleted")
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(failing("b"))
    run(cluster)
    written = {c.type: c.message for c in cluster.job.status.conditions}
    assert written["Complete"] == "1 of 1 nodes completed"
    assert (
        written["Progressing"] == "1 of 2 nodes completed, 1 failed (b): b exit 2 after 10 attempts"
    )
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "0 of 2 nodes completed; a node is completed once its task prints the line 'done'"),
        ({"completion": Completion(match="Regex")}, "its task prints the token (spec.completion)"),
        ({"completion": Completion(mode=CompletionMode.EXIT)}, None),
        ({"script": "true"}, None),
    ],
)
def test_after_a_minute_without_a_token_the_message_says_what_completes_a_node(changes, words):
    cluster = spec(make_cluster("a", "b", gated=True), **changes)
    status = replace(cluster.job.status, completion_token="done")
    cluster.job = replace(cluster.job, status=status)
    before = START + timedelta(seconds=50)
    plan = run(cluster, before)
    progressing = cluster.job.status.condition(ConditionType.PROGRESSING)
    assert progressing.message == "0 of 2 nodes completed"
    assert plan.requeue_after == (10.0 if words else None)
    run(cluster, START + timedelta(seconds=60))
    after = cluster.job.status.condition(ConditionType.PROGRESSING).message
    assert (words or "0 of 2 nodes completed") in after
    cluster.evidence["a"] = done("a")
    run(cluster, START + timedelta(seconds=70))
    found = cluster.job.status.condition(ConditionType.PROGRESSING)
    assert found.message.startswith("1 of 2 nodes")
