"""A run that has ended and is kept: what happens to its nodes later is recorded, once."""

from dataclasses import replace
from datetime import timedelta

from daemonset_job.api.choices import PodPolicy
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.states import ConditionType
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import CreatePodsAgain
from tests.unit.builders import NOW, done, gated_pod, make_cluster, make_node, make_pod
from tests.unit.core.runs import acts, failing, lost, run, spec

UNREACHABLE = "node.kubernetes.io/unreachable"


def kept(*names, **changes):
    """Return a cluster whose Job has completed on these nodes, and is kept for an hour."""
    cluster = make_cluster(*names, gated=True, evidence={name: done(name) for name in names})
    spec(cluster, ttl_seconds_after_finished=3600, **changes)
    run(cluster)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    return cluster


def progressing(cluster):
    return cluster.job.status.condition(ConditionType.PROGRESSING)


def events(plan):
    return [(event.reason, event.message) for event in plan.events]


def with_late_failure():
    """Node b is down, and its pod cannot end; node d joins and fails."""
    cluster = kept("a", "b", failure_policy=FailurePolicy(pods=PodPolicy.KEEP))
    cluster.pods[1] = replace(cluster.pods[1], is_terminating=True)
    taints = (Taint(UNREACHABLE, "NoSchedule"), Taint(UNREACHABLE, "NoExecute"))
    cluster.nodes["b"] = replace(lost("b"), taints=taints)
    cluster.nodes["d"] = make_node("d")
    cluster.pods.append(failing("d"))
    cluster.desired, cluster.scheduled, cluster.misscheduled = 2, 2, 1
    return cluster


def test_a_late_failure_is_recorded_once_though_a_pod_cannot_end():
    cluster = with_late_failure()
    plan = run(cluster, NOW + timedelta(hours=1), seen=timedelta(hours=1))
    nodes = cluster.job.status.nodes
    assert (nodes.desired, nodes.completed, nodes.failed_names) == (3, 2, "d")
    assert cluster.report_status["nodeStates"]["d"]["state"] == "Failed"
    assert progressing(cluster).message.startswith("2 of 3 nodes completed, 1 failed (d)")
    ((reason, message),) = events(plan)
    assert reason == "NodeFailed"
    assert message.startswith("1 of 3 nodes failed: d exit 2 after 10 attempts")
    again = run(cluster, NOW + timedelta(hours=2), seen=timedelta(hours=2))
    assert (again.actions, again.events) == ((), ())


def test_a_node_that_fails_while_another_heals_is_reported():
    cluster = kept("a")
    spec(cluster, failure_policy=FailurePolicy("Continue", 3))
    cluster.nodes |= {"d": make_node("d"), "e": make_node("e")}
    cluster.pods += [failing("d"), make_pod("e")]
    assert [reason for reason, _ in events(run(cluster))] == ["NodeFailed"]
    cluster.evidence["d"] = done("d")
    cluster.pods[2] = failing("e")
    assert [reason for reason, _ in events(run(cluster))] == ["NodeFailed"]
    cluster.evidence["e"] = done("e")
    assert not [e for e in events(run(cluster)) if e[0] == "NodeFailed"]


def test_an_event_is_sent_only_with_the_status_that_it_is_about():
    """The count is not exact: b has no pod yet, and another pod is being deleted."""
    cluster = kept("a")
    cluster.nodes |= {"b": make_node("b"), "c": make_node("c")}
    cluster.pods += [replace(failing("c")), replace(gated_pod("b"), is_terminating=True)]
    cluster.desired, cluster.scheduled = 3, 3
    plan = decide(cluster.snapshot(seen={}), NOW + timedelta(hours=1))
    assert not plan.events


def test_a_late_node_whose_pod_is_refused_is_shown_and_its_pod_created_again():
    cluster = kept("a")
    cluster.nodes["b"] = make_node("b")
    cluster.desired, cluster.scheduled = 2, 1
    assert run(cluster).has_missing_pods
    cluster.failed_create_message = "exceeded quota"
    plan = run(cluster)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    nodes = cluster.job.status.nodes
    assert (nodes.desired, nodes.completed, nodes.waiting) == (2, 1, 1)
    assert "1 of 2 pods cannot be created: exceeded quota" in progressing(cluster).message
    assert plan.has_missing_pods
    read = replace(cluster.snapshot(), failed_create_reads=2)
    assert acts(decide(read, NOW), CreatePodsAgain)
    assert not run(cluster).actions


def test_after_a_failure_no_pod_is_created_again_and_no_cause_is_looked_for():
    cluster = make_cluster("a", gated=True)
    cluster.pods = [failing("a")]
    run(cluster)
    assert cluster.job.is_true(ConditionType.FAILED)
    cluster.nodes["b"] = make_node("b")
    cluster.desired, cluster.scheduled = 2, 1
    cluster.failed_create_message = "exceeded quota"
    plan = decide(replace(cluster.snapshot(), failed_create_reads=2), NOW)
    assert not acts(plan, CreatePodsAgain)
    assert not plan.has_missing_pods


def test_a_failed_run_records_what_becomes_of_its_other_nodes_though_one_is_down():
    cluster = make_cluster("b", "c", "d", "e", gated=True)
    spec(cluster, failure_policy=FailurePolicy(pods=PodPolicy.KEEP))
    cluster.pods[0] = failing("b")
    run(cluster)
    cluster.pods[1] = replace(cluster.pods[1], is_terminating=True)
    cluster.nodes["c"] = replace(lost("c"), taints=(Taint(UNREACHABLE, "NoSchedule"),))
    cluster.desired, cluster.scheduled, cluster.misscheduled = 3, 3, 1
    cluster.evidence["d"] = done("d")
    cluster.pods[3] = failing("e")
    hours = timedelta(hours=1)
    run(cluster, NOW + hours, seen=hours)
    states = {name: raw["state"] for name, raw in cluster.report_status["nodeStates"].items()}
    assert states == {"b": "Failed", "c": "Unreachable", "d": "Completed", "e": "Failed"}
    nodes = cluster.job.status.nodes
    assert (nodes.desired, nodes.completed, nodes.failed_names) == (4, 1, "b,e")
    assert not run(cluster, NOW + 2 * hours, seen=2 * hours).actions


def test_a_failed_run_keeps_the_record_of_a_node_whose_pod_is_being_deleted():
    """As while it is drained, or while all of the run is being deleted: that says nothing of it."""
    cluster = make_cluster("b", "c", gated=True)
    cluster.pods[0] = failing("b")
    run(cluster)
    cluster.pods[1] = replace(cluster.pods[1], is_terminating=True)
    run(cluster, NOW + timedelta(hours=1))
    assert cluster.report_status["nodeStates"]["c"]["state"] == "Active"
    cluster.pods = [replace(pod, is_terminating=True) for pod in cluster.pods]
    run(cluster, NOW + timedelta(hours=1))
    assert cluster.report_status["nodeStates"]["b"]["state"] == "Failed"


def test_the_report_of_a_failed_run_lists_its_nodes_though_some_wait_at_the_gate():
    cluster = make_cluster("a", "b", gated=True)
    cluster.pods = [failing("a"), gated_pod("b")]
    run(cluster)
    rows = {row["name"]: row["state"] for row in cluster.report_status["nodeList"]}
    assert rows == {"a": "Failed", "b": "Waiting"}
    cluster = make_cluster("a", "b", gated=True)
    cluster.pods[0] = failing("a")
    run(cluster)
    assert "nodeList" not in cluster.report_status  # b is still at work
