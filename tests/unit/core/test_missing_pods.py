"""Nodes whose pods are missing: when events are searched for the reason, and what is reported."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction, PodPolicy
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.states import ConditionType
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.state.placement_wait import find_waiting
from tests.unit.builders import NOW, done, make_cluster, make_node, make_pod
from tests.unit.core.runs import failing, lost, reason_of, run, spec


def test_past_refusal_does_not_hide_why_pods_are_missing():
    cluster = make_cluster("a", "b", gated=True, failed_create_message="exceeded quota: pods=0")
    spec(cluster, failure_policy=FailurePolicy(FailureAction.CONTINUE))
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


def test_a_deleted_pod_that_has_ended_on_a_node_that_is_down_keeps_nothing_up():
    cluster = make_cluster("a", "b", gated=True, evidence={"b": done("b")}, desired=1)
    taint = Taint("node.kubernetes.io/not-ready", "NoSchedule")
    cluster.nodes["b"] = replace(lost("b"), taints=(taint,))
    ending = replace(make_pod("b"), is_terminating=True, phase="Failed")
    cluster.pods = [make_pod("a"), ending]
    assert reason_of(run(cluster)) == "NodesActive"
    # A pod that has not ended keeps its successor off, and the run waits for that one.
    cluster.pods = [make_pod("a"), replace(ending, phase="Running")]
    assert reason_of(run(cluster)) == "NodesUnreachable"


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


def looked(cluster, seconds, message=""):
    """Run a Job whose state the controller has seen for `seconds`, after it has listed events."""
    cluster.failed_create_message = message
    return run(cluster, seen=timedelta(seconds=seconds))


@pytest.mark.parametrize("changes", [{"pods": []}, {"pods": [], "observed": False}])
def test_a_controller_of_daemon_sets_that_is_away_is_told_after_a_minute(changes):
    cluster = make_cluster("a", "b", gated=True, scheduled=0)
    for field, value in changes.items():
        setattr(cluster, field, value)
    plan = looked(cluster, 59)
    assert reason_of(plan) in {"NodesActive", "Starting"}
    assert 0 < plan.requeue_after <= 1
    plan = looked(cluster, 60)
    assert reason_of(plan) == "DaemonSetStalled"
    assert "kube-controller-manager" in cluster.job.condition(ConditionType.PROGRESSING).message
    assert run(cluster, now=NOW + timedelta(hours=1), seen=timedelta(hours=1)).actions == ()


@pytest.mark.parametrize(("message", "reason"), [(None, "NodesActive"), ("quota", "FailedCreate")])
def test_events_come_first(message, reason):
    cluster = make_cluster("a", "b", gated=True, running=False, scheduled=0)
    assert reason_of(looked(cluster, 90, message)) == reason


def test_a_daemon_set_that_makes_progress_is_not_stalled():
    cluster = make_cluster("a", "b", gated=True, scheduled=0)
    waiting = find_waiting(cluster.snapshot())
    assert waiting == find_waiting(cluster.snapshot())
    cluster.scheduled = 1
    assert find_waiting(cluster.snapshot()) not in {waiting, None}
    cluster.scheduled = 2
    assert find_waiting(cluster.snapshot()) is None


def overlooked(*names, **changes):
    """Return a run that has completed on a and b; the DaemonSet controller counts none of `names`.

    So it is on OpenShift, if the node selector of the namespace leaves these nodes out.
    """
    evidence = {"a": done("a"), "b": done("b")}
    cluster = make_cluster("a", "b", gated=True, evidence=evidence, desired=2, **changes)
    cluster.nodes |= {name: make_node(name) for name in names}
    return cluster


def message_of(cluster):
    return cluster.job.condition(ConditionType.PROGRESSING).message


def test_a_node_that_is_never_counted_is_told_after_a_minute():
    cluster = overlooked("c")
    plan = looked(cluster, 59)
    assert reason_of(plan) == "NodesActive"
    assert 0 < plan.requeue_after <= 1
    plan = looked(cluster, 60)
    assert reason_of(plan) == "DaemonSetStalled"
    assert message_of(cluster).startswith("c matches the Job, and for over a minute the DaemonSet")
    assert "namespace default has a node selector" in message_of(cluster)
    assert plan.requeue_after is None


def test_a_run_goes_on_when_such_a_node_is_counted_or_goes():
    cluster = overlooked("c")
    looked(cluster, 60)
    del cluster.nodes["c"]
    looked(cluster, 60)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    cluster = overlooked("c")
    looked(cluster, 60)
    cluster.pods.append(make_pod("c"))
    cluster.desired = 3
    assert reason_of(looked(cluster, 60)) == "NodesActive"


def test_many_nodes_that_are_not_counted_are_folded():
    cluster = overlooked(*(f"node-{number:04d}.example.com" for number in range(500)))
    looked(cluster, 60)
    assert "match the Job" in message_of(cluster)
    assert len(message_of(cluster)) < 600


@pytest.mark.parametrize(
    "changes",
    [
        {"observed": False},
        {"desired": 3},
        {"pods": [make_pod("a")], "scheduled": 2},
        {"evidence": {"a": done("a")}},
    ],
    ids=["unobserved", "counted", "pod not cached", "at work"],
)
def test_a_node_that_may_yet_be_counted_is_not_named(changes):
    cluster = overlooked("c")
    for field, value in changes.items():
        setattr(cluster, field, value)
    looked(cluster, 3600)
    assert "matches the Job" not in message_of(cluster)


def test_a_node_with_a_pod_or_a_taint_is_none_that_is_not_counted():
    cluster = overlooked("c", "d", "e")
    cluster.nodes["c"] = replace(cluster.nodes["c"], taints=(Taint("gpu", "NoSchedule"),))
    cluster.pods.append(replace(make_pod("d"), is_terminating=True))
    cluster.scheduled = 2
    looked(cluster, 60)
    assert message_of(cluster).startswith("e matches")


def test_failed_nodes_have_ended_as_well():
    cluster = overlooked("c")
    spec(cluster, failure_policy=FailurePolicy(FailureAction.CONTINUE, 1, pods=PodPolicy.KEEP))
    cluster.evidence = {"a": done("a")}
    cluster.pods[1] = failing("b")
    run(cluster)
    assert reason_of(looked(cluster, 60)) == "DaemonSetStalled"


def test_if_no_node_at_all_is_counted_the_selection_is_not_blamed():
    cluster = make_cluster("a", "b", gated=True, running=False, desired=0)
    assert reason_of(looked(cluster, 59)) == "NoMatchingNodes"
    assert reason_of(looked(cluster, 60)) == "DaemonSetStalled"
    assert message_of(cluster).startswith("a,b match")


def test_a_node_that_joins_after_the_end_and_is_not_counted_is_told():
    cluster = overlooked()
    run(cluster)
    run(cluster)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    before = message_of(cluster)
    cluster.nodes["c"] = make_node("c")
    looked(cluster, 59)
    assert message_of(cluster) == before
    looked(cluster, 60)
    assert "; c matches the Job" in message_of(cluster)
    del cluster.nodes["c"]
    looked(cluster, 60)
    assert message_of(cluster) == before
