"""Failures of nodes, and what `failurePolicy` makes of them: the run fails, goes on or pauses."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode, PodPolicy, RuleAction
from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import Completion, FailurePolicy, FailureRule, NodeSelection
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import ConditionType
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
from job_controller.core.state.failure_budget import allowed_failures
from job_controller.core.state.first_seen import update_sightings
from job_controller.sightings import observe
from tests.unit.builders import (
    NOW,
    START,
    done,
    gated_pod,
    make_cluster,
    make_node,
    make_pod,
    seen_before,
)
from tests.unit.core.runs import acts, conditions, failing, lost, retried, run, spec, three_nodes


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


@pytest.mark.parametrize(
    ("failed", "away", "fails"),
    [
        (1, None, True),  # the lost node counts as a failed one
        (2, None, False),
        (1, 1, False),
        (1, "34%", False),
        (1, "33%", True),
        (1, 0, True),
        (0, 1, True),
    ],
)
def test_unreachable_nodes_have_a_limit_of_their_own_if_there_is_one(failed, away, fails):
    """One node fails, and one is lost."""
    cluster = make_cluster("a", "b", "c", gated=True)
    cluster.pods[1] = failing("b")
    cluster.nodes["c"] = lost("c")
    policy = FailurePolicy(max_failed_nodes=failed, max_unreachable_nodes=away, pods=PodPolicy.KEEP)
    run(spec(cluster, failure_policy=policy), seen=timedelta(hours=1))
    expected = ("True", "MaxFailedNodesExceeded") if fails else None
    assert conditions(cluster).get("Failed") == expected


def test_the_message_has_both_limits():
    cluster = make_cluster("a", "b", "c", gated=True)
    cluster.pods[1] = failing("b")
    cluster.nodes["c"] = lost("c")
    policy = FailurePolicy(max_failed_nodes=1, max_unreachable_nodes=0, pods=PodPolicy.KEEP)
    plan = run(spec(cluster, failure_policy=policy), seen=timedelta(hours=1))
    words = "(maxFailedNodes allows 1, maxUnreachableNodes allows 0)"
    assert plan.events[0].message.endswith(words)


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


def test_many_failed_nodes_are_summarized():
    cluster = make_cluster(*(f"n{i}" for i in range(9)), gated=True)
    for code, index in enumerate((0, 0, 1, 2, 3, 4)):
        pod = failing(f"n{code}")
        cluster.pods[code] = replace(
            pod, container=replace(pod.container, last_exit_code=index + 1)
        )
    run(cluster)
    failed = next(c for c in cluster.job.status.to_raw()["conditions"] if c["type"] == "Failed")
    assert failed["message"].startswith("6 of 9 nodes failed: n[0-1] exit 1")
    assert failed["message"].endswith("; n3 exit 3 after 10 attempts; and n[4-5]")


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


def test_unreachable_nodes_count_in_the_budget_as_a_state_of_their_own():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["b"] = lost("b")
    run(cluster)
    assert cluster.job.status.to_raw()["nodes"]["unreachable"] == 1
    assert cluster.job.status.to_raw()["nodes"]["failed"] == 0
    failed = next(c for c in cluster.job.status.to_raw()["conditions"] if c["type"] == "Failed")
    assert failed["message"] == "1 unreachable (b)"


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
    cluster = spec(
        three_nodes(), failure_policy=FailurePolicy(pods=PodPolicy.DELETE), failure_log_lines=0
    )
    assert not acts(run(cluster), DeleteDaemonSet)
    plan = run(cluster)
    assert acts(plan, DeleteDaemonSet)
    assert [pod.node_name for pod in acts(plan, DeletePods)[0].pods] == ["b"]


def test_the_gate_comes_before_the_deletion_which_may_be_refused():
    """Seed 7400423 of the simulation: a node that joins would start the task of a failed Job."""
    cluster = spec(
        three_nodes(), failure_policy=FailurePolicy(pods=PodPolicy.DELETE), failure_log_lines=0
    )
    run(cluster)
    cluster.gated = False
    plan = run(cluster)
    assert acts(plan, ApplyDaemonSet)
    assert not acts(plan, DeleteDaemonSet)
    refused = cluster.snapshot(refusals={RefusedWrite.DAEMON_SET: "a policy says no"})
    assert acts(decide(refused, NOW), DeleteDaemonSet)


def test_pods_of_a_failed_run_stay_until_its_failure_is_on_record():
    """Without them nothing would say that it failed, and the DaemonSet would be made again."""
    cluster = spec(
        three_nodes(), failure_policy=FailurePolicy(pods=PodPolicy.DELETE), failure_log_lines=0
    )
    status = cluster.job.status
    run(cluster)
    cluster.job = replace(cluster.job, status=status)  # this write was refused
    assert cluster.report_status["phase"] == "Failed"
    assert not acts(run(cluster), DeleteDaemonSet)
    assert acts(run(cluster), DeleteDaemonSet)


def test_pods_that_failed_again_stay_until_that_is_on_record():
    """Found by the simulation, seed 5155049: the status of the retry was refused."""
    cluster = spec(
        three_nodes(), failure_policy=FailurePolicy(pods=PodPolicy.DELETE), failure_log_lines=0
    )
    run(cluster)
    status = cluster.job.status
    assert acts(run(cluster), DeleteDaemonSet)
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    cluster.pods = [
        replace(failing("b"), uid="next") if p.node_name == "b" else p for p in cluster.pods
    ]
    run(cluster)
    assert cluster.job.is_true(ConditionType.FAILED)
    cluster.job = replace(cluster.job, status=status)  # these writes were refused
    assert not acts(run(cluster), DeleteDaemonSet)
    assert acts(run(cluster), DeleteDaemonSet)


def test_undeletable_pods_of_a_failed_run_are_reported():
    cluster = spec(
        three_nodes(), failure_policy=FailurePolicy(pods=PodPolicy.DELETE), failure_log_lines=0
    )
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


def test_the_message_of_a_failed_run_counts_nodes_that_fail_later():
    cluster = three_nodes()
    run(cluster)
    cluster.pods[2] = failing("c")
    plan = run(cluster)
    words = "2 of 3 nodes failed: b,c exit 2 after 10 attempts"
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


def overdue(pods):
    """Return a world in which the time of the run is over; a is done, b and c are at work."""
    cluster = make_cluster("a", "b", "c", gated=True, evidence={"a": done("a")})
    spec(cluster, active_deadline_seconds=90, failure_policy=FailurePolicy(pods=pods))
    run(cluster, START + timedelta(seconds=90))
    assert conditions(cluster)["Failed"] == ("True", "DeadlineExceeded")
    return cluster


@pytest.mark.parametrize(
    ("pods", "ends"), [("DeleteFailed", True), ("Delete", True), ("Keep", False)]
)
def test_the_deadline_of_the_run_ends_its_tasks_once_their_last_lines_are_recorded(pods, ends):
    cluster, now = overdue(PodPolicy(pods)), START + timedelta(seconds=92)
    for node in "bc":
        plan = decide(cluster.snapshot(), now)
        assert not acts(plan, DeleteDaemonSet)
        assert plan.requeue_after == (8.0 if ends else None)
        cluster.evidence[node] = Evidence(f"{node}-uid", pod_uid=f"pod-{node}-1", last_lines=("x",))
    assert bool(acts(decide(cluster.snapshot(), now), DeleteDaemonSet)) == ends


def test_the_deadline_of_the_run_ends_tasks_that_print_nothing():
    cluster = overdue(PodPolicy.DELETE_FAILED)
    late = START + timedelta(seconds=100)
    assert not acts(decide(cluster.snapshot(), late - timedelta(seconds=1)), DeleteDaemonSet)
    assert acts(decide(cluster.snapshot(), late), DeleteDaemonSet)
    spec(cluster, failure_log_lines=0)
    assert acts(decide(cluster.snapshot(), START + timedelta(seconds=91)), DeleteDaemonSet)


def test_a_first_failed_node_ends_no_other_task():
    cluster = spec(three_nodes(), failure_policy=FailurePolicy(pods=PodPolicy.DELETE_FAILED))
    run(cluster)
    plan = run(cluster)
    assert [pod.node_name for pod in acts(plan, DeletePods)[0].pods] == ["b"]
    assert not acts(plan, DeleteDaemonSet)


def test_a_paused_run_stays_paused_while_the_pod_of_a_failed_node_is_replaced():
    cluster = three_nodes("Pause")
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] == "Paused"
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "b"]
    plan = run(cluster, seen=timedelta(seconds=1))
    assert cluster.job.status.to_raw()["phase"] == "Paused"
    assert not plan.events
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] != "Paused"


NO_RESTART = FailurePolicy(rules=(FailureRule((3,), RuleAction.FAIL),))


def ended(cluster, *codes):
    """Have the task of node a end with each of these exit codes, a pass after each."""
    for count, code in enumerate(codes, start=1):
        newest = Container("running", restart_count=count, last_exit_code=code, last_reason="Error")
        cluster.pods[0] = replace(make_pod("a"), container=newest)
        plan = run(cluster, seen=timedelta(seconds=1))
    return plan


@pytest.mark.parametrize("mode", list(CompletionMode))
@pytest.mark.parametrize("later", [1, 75, 255])
def test_a_rule_fails_a_node_although_its_next_attempt_ends_before_that(mode, later):
    """The kubelet starts the task again at once; the failure waits for the log."""
    cluster = spec(make_cluster("a", "b"), failure_policy=NO_RESTART, completion=Completion(mode))
    plan = ended(cluster, 3, later)
    assert plan.requeue_after <= 30.0
    lines = Evidence(
        "a-uid", pod_uid=cluster.pods[0].uid, last_lines=("of the next one",), attempt=2
    )
    cluster.evidence["a"] = lines
    run(cluster, seen=timedelta(seconds=1))
    assert not acts(run(cluster, seen=timedelta(seconds=1)), WriteReportStatus)
    run(cluster, seen=timedelta(minutes=1))
    record = cluster.report_status["nodeStates"]["a"]
    assert (record["state"], record["reason"]) == ("Failed", "FailurePolicyRule")
    assert (record["exitCode"], record["finishedInPod"], record["attempts"]) == (3, 1, 3)
    assert record["message"] == "exit 3 at the first attempt"


def test_a_later_attempt_that_succeeds_before_that_completes_the_node():
    cluster = spec(
        make_cluster("a"), failure_policy=NO_RESTART, completion=Completion(CompletionMode.EXIT)
    )
    ended(cluster, 3, 0)
    run(cluster, seen=timedelta(minutes=1))
    record = cluster.report_status["nodeStates"]["a"]
    assert (record["state"], record["exitCode"]) != ("Failed", 3)


def test_an_end_that_a_rule_fails_is_recorded_at_once():
    """The kubelet shows only the newest end."""
    cluster = spec(make_cluster("a", "b"), failure_policy=NO_RESTART)
    assert ended(cluster, 3).is_urgent
    assert not run(cluster, seen=timedelta(seconds=1)).is_urgent


def test_later_ends_do_not_postpone_the_failure_by_a_rule():
    """It comes 30 s after the end that the rule names, if the terminator has not read the log."""
    cluster = spec(make_cluster("a", "b"), failure_policy=NO_RESTART)
    ended(cluster, 3, 1)
    before = cluster.snapshot()
    first = update_sightings({}, observe(before), NOW - timedelta(seconds=29))
    cluster.pods[0] = replace(
        cluster.pods[0], container=replace(cluster.pods[0].container, restart_count=3)
    )
    seen = update_sightings(first, observe(cluster.snapshot()), NOW)
    plan = decide(cluster.snapshot(seen=seen), NOW)
    assert plan.requeue_after == 1.0
    later = decide(cluster.snapshot(seen=seen), NOW + timedelta(seconds=1))
    assert acts(later, WriteStatus)[0].status.condition(ConditionType.FAILED).status


@pytest.mark.parametrize("mode", list(CompletionMode))
@pytest.mark.parametrize("is_retried", [False, True])
def test_a_rule_fails_a_node_although_its_pod_is_deleted_before_that(mode, is_retried):
    """The next pod would run what the rule forbids."""
    cluster = spec(make_cluster("a", "b"), failure_policy=NO_RESTART, completion=Completion(mode))
    ended(cluster, 3)
    cluster.pods[0] = gated_pod("a")
    if is_retried:
        cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    record = cluster.report_status["nodeStates"]["a"]
    if is_retried:
        assert record["state"] == "Waiting"
        return
    assert (record["state"], record["reason"]) == ("Failed", "FailurePolicyRule")
    assert record["message"].startswith("exit 3 at the first attempt")


def test_the_end_of_a_task_that_was_ended_with_its_pod_fails_no_node():
    cluster = spec(make_cluster("a", "b"), failure_policy=NO_RESTART)
    run(cluster)
    newest = Container("terminated", exit_code=3, reason="Error")
    pod = make_pod("a", is_terminating=True, container=newest)
    for pods in ([pod], [replace(pod, is_terminating=False, disruption_reason="EvictionByAPI")]):
        cluster.pods[:1] = pods
        run(cluster)
        cluster.pods[0] = gated_pod("a")
        run(cluster)
        assert cluster.report_status["nodeStates"]["a"]["state"] == "Waiting"
