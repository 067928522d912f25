"""Policy Continuous: nodes that are away, tainted, or have left while something new is asked."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import NodeSelection
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import Taint
from job_controller.core.state.counting import count_nodes
from tests.unit.builders import (
    NOW,
    START,
    SampleCluster,
    done,
    gated_pod,
    make_node,
    make_pod,
    seen_before,
)
from tests.unit.core.runs import conditions, run
from tests.unit.core.standing_jobs import (
    UNCONFIGURED,
    change,
    completed_by,
    configure,
    released,
    request,
    standing,
    totals_of,
)

NOT_READY = Taint("node.kubernetes.io/not-ready", "NoSchedule")
CHOSEN = Taint("maintenance", "NoSchedule")


def shut_down(cluster: SampleCluster, name: str, *taints: Taint) -> SampleCluster:
    """Have a node go, and its pod."""
    since = START - timedelta(hours=1)
    node = make_node(name, ready=False, ready_changed_at=since)
    cluster.nodes[name] = replace(node, taints=(NOT_READY, *taints))
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != name]
    cluster.desired = cluster.scheduled = len(cluster.pods)
    return cluster


def records(cluster: SampleCluster) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = (cluster.report_status or {}).get("nodeStates", {})
    return found


@pytest.mark.parametrize("ask", ["change", "request"])
def test_a_completed_node_that_is_away_is_due_again_when_it_is_asked(ask: str) -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    shut_down(cluster, "b")
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"
    if ask == "change":
        change(cluster, image="busybox:2")
        revision = cluster.job.revision
        cluster.pods = [replace(pod, revision=revision) for pod in cluster.pods]
    else:
        request(cluster, "b")
    run(cluster)
    run(cluster)
    counts = count_nodes(seen_before(cluster.snapshot(), timedelta(minutes=2)), NOW)
    assert counts.names(NodeState.UNREACHABLE) == ["b"]
    assert counts.desired == 2
    assert conditions(cluster)["Complete"][0] == "False"


def test_an_unreachable_node_that_a_request_names_stays_unreachable() -> None:
    cluster = standing("a", "b", completed=("a",))
    record = NodeRecord("b-uid", NodeState.UNREACHABLE, revision=cluster.job.revision)
    cluster.report_status = {"nodeStates": {"b": record.to_raw()}}
    shut_down(cluster, "b")
    request(cluster, "*")
    run(cluster)
    run(cluster)
    assert records(cluster)["b"]["state"] == "Unreachable"


def test_a_node_at_work_that_a_request_names_stays_desired_when_its_pod_is_gone() -> None:
    """Nothing of it is in the ledger: only its record shows that it has begun."""
    cluster = standing("a", "b", completed=("a",))
    record = NodeRecord(
        "b-uid",
        NodeState.ACTIVE,
        attempts=1,
        pod_uid="pod-b-1",
        revision=cluster.job.revision,
    )
    cluster.report_status = {"nodeStates": {"b": record.to_raw()}}
    request(cluster, "*")
    run(cluster)
    shut_down(cluster, "b")
    run(cluster)
    counts = count_nodes(seen_before(cluster.snapshot(), timedelta(minutes=2)), NOW)
    assert counts.names(NodeState.UNREACHABLE) == ["b"]


def test_a_node_that_had_only_begun_before_a_change_is_skipped_while_it_is_away() -> None:
    """What it had started counts no more. A node that was not Ready from the start is the same."""
    cluster = standing("a", "b", completed=("a",))
    run(cluster)
    assert records(cluster)["b"]["attempts"] == 1
    change(cluster, image="busybox:2")
    completed_by(cluster, "a", cluster.job.revision)
    cluster.pods = [
        replace(pod, revision=cluster.job.revision) if pod.node_name == "a" else pod
        for pod in cluster.pods
    ]
    run(cluster)
    cluster.pods = [
        replace(pod, is_terminating=True) if pod.node_name == "b" else pod for pod in cluster.pods
    ]
    run(cluster)
    assert totals_of(cluster).desired == 2
    shut_down(cluster, "b")
    run(cluster)
    counts = count_nodes(seen_before(cluster.snapshot(), timedelta(minutes=2)), NOW)
    assert (counts.desired, set(counts.skipped)) == (1, {"b"})
    assert conditions(cluster)["Complete"][0] == "True"


@pytest.mark.parametrize("is_controller_away", [True, False])
def test_a_node_that_failed_before_its_task_began_is_skipped_after_a_change_while_it_is_away(
    is_controller_away: bool,
) -> None:
    """It is away when the Job is changed. Its failure stays on record, and it joins once back."""
    cluster = standing("a", "b", completed=("a",))
    revision = cluster.job.revision
    failed = NodeRecord("b-uid", NodeState.FAILED, reason="ImagePullFailed", revision=revision)
    cluster.report_status = {"nodeStates": {"b": failed.to_raw()}}
    shut_down(cluster, "b")
    if not is_controller_away:
        run(cluster)
        assert totals_of(cluster).failed == 1
    change(cluster, image="busybox:2")
    completed_by(cluster, "a", cluster.job.revision)
    cluster.pods = [replace(pod, revision=cluster.job.revision) for pod in cluster.pods]
    for _ in range(3):
        run(cluster)
    totals = totals_of(cluster)
    assert (totals.desired, totals.skipped_names) == (1, "b")
    assert len(records(cluster)["b"]["failures"]) == 1
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(make_pod("b", serial=2, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2
    run(cluster)
    assert (totals_of(cluster).desired, totals_of(cluster).active) == (2, 1)


def test_the_failure_of_a_node_that_an_administrator_tainted_stays_after_a_change() -> None:
    cluster = standing("a", "b", completed=("a",))
    revision = cluster.job.revision
    record = NodeRecord("b-uid", NodeState.FAILED, reason="FailureToken", revision=revision)
    cluster.report_status = {"nodeStates": {"b": record.to_raw()}}
    cluster.nodes["b"] = replace(cluster.nodes["b"], taints=(CHOSEN,))
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "b"]
    cluster.desired = cluster.scheduled = 1
    change(cluster, image="busybox:2")
    for _ in range(3):
        run(cluster)
    assert len(records(cluster)["b"]["failures"]) == 1


def test_a_node_that_left_before_its_first_record_stays_counted() -> None:
    """Its task took its label away at once, as the first thing that it did."""
    cluster = standing("a", "b")
    selector = {"matchExpressions": [{"key": "configured", "operator": "DoesNotExist"}]}
    cluster.job = replace(
        cluster.job, spec=replace(cluster.job.spec, nodes=NodeSelection(selector=selector))
    )
    revision = cluster.job.revision
    cluster.nodes["b"] = replace(cluster.nodes["b"], labels={"configured": "yes"})
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "b"]
    cluster.desired = cluster.scheduled = 1
    record = NodeRecord("b-uid", NodeState.ACTIVE, attempts=1, revision=revision)
    cluster.report_status = {"nodeStates": {"b": record.to_raw()}}
    cluster.evidence = {
        "b": Evidence("b-uid", completed_at="2026-01-02T03:04:05Z", revision=revision)
    }
    counts = count_nodes(cluster.snapshot(), NOW)
    assert counts.completed_unselected == {"b"}


def test_a_node_that_came_back_and_is_kept_out_by_a_taint_is_skipped_until_it_runs_again() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=NodeSelection(selector={"matchLabels": {"zone": "a"}}))
    revision, inside = cluster.job.revision, replace(cluster.nodes["b"], labels={"zone": "a"})
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"zone": "a"})
    cluster.nodes["b"] = inside
    run(cluster)
    cluster.nodes["b"] = replace(inside, labels={"zone": "b"}, taints=(CHOSEN,))
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "b"]
    cluster.desired = cluster.scheduled = 1
    run(cluster)
    assert totals_of(cluster).completed == 2
    cluster.nodes["b"] = replace(inside, taints=(CHOSEN,))
    run(cluster)
    run(cluster)
    totals = totals_of(cluster)
    assert (totals.desired, totals.completed, totals.skipped_names) == (1, 1, "b")
    cluster.nodes["b"] = inside
    cluster.pods.append(gated_pod("b", serial=2, revision=revision))
    cluster.desired = cluster.scheduled = 2
    assert released(run(cluster)) == ["b"]
    totals = totals_of(cluster)
    assert (totals.desired, totals.completed, totals.waiting) == (2, 1, 1)


@pytest.mark.parametrize("completed", [("a", "b"), ("b",)])
def test_complete_stays_when_a_node_comes_back_that_a_taint_keeps_out(
    completed: tuple[str, ...],
) -> None:
    cluster = standing("a", "b", completed=completed)
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    run(cluster)
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={}, taints=(CHOSEN,))
    assert [event.reason for event in run(cluster).events] == []
    assert conditions(cluster)["Complete"][0] == "True"
    assert records(cluster)["a"]["earlierPods"] == ["pod-a-1"]
    cluster.nodes["a"] = replace(cluster.nodes["a"], taints=())
    cluster.desired = 2
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")


def test_late_evidence_completes_a_node_whose_pod_a_taint_took() -> None:
    """It has not come back meanwhile, as its labels always matched."""
    cluster = standing("a", "b")
    run(cluster)
    revision = cluster.job.revision
    cluster.nodes["b"] = replace(cluster.nodes["b"], taints=(CHOSEN,))
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "b"]
    cluster.desired = cluster.scheduled = 1
    for _ in range(3):
        run(cluster)
    assert (records(cluster)["b"]["state"], records(cluster)["b"]["reason"]) == (
        "Removed",
        "UntoleratedTaint",
    )
    cluster.evidence["b"] = replace(done("b"), pod_uid="pod-b-1", revision=revision)
    run(cluster)
    assert records(cluster)["b"]["state"] == "Completed"
    totals = totals_of(cluster)
    assert (totals.desired, totals.completed) == (2, 1)


def test_a_node_that_a_taint_took_out_leaves_once_its_labels_do() -> None:
    cluster = standing("a", "b")
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    inside = cluster.nodes["b"]
    cluster.nodes["b"] = replace(inside, taints=(CHOSEN,))
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "b"]
    cluster.desired = cluster.scheduled = 1
    run(cluster)
    assert records(cluster)["b"]["reason"] == "UntoleratedTaint"
    cluster.nodes["b"] = replace(inside, labels={"configured": "yes"}, taints=(CHOSEN,))
    run(cluster)
    assert records(cluster)["b"]["reason"] == "NodeRemoved"
    cluster.nodes["b"] = replace(inside, taints=(CHOSEN,))
    run(cluster)
    assert records(cluster)["b"]["earlierPods"] == ["pod-b-1"]


def test_a_node_that_joined_with_a_pod_that_seems_older_makes_complete_false() -> None:
    """The clocks of two API servers differ, and the pod cannot be deleted at the moment."""
    cluster = standing("a", "b", completed=("a",))
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "b"]
    node = cluster.nodes.pop("b")
    cluster.desired = cluster.scheduled = 1
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"
    cluster.nodes["b"] = replace(node, created_at=NOW)
    older = make_pod("b", created_at=NOW - timedelta(seconds=2))
    cluster.pods.append(replace(older, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "False"


def test_the_pod_of_an_earlier_try_that_ends_starts_nothing_of_the_next_one() -> None:
    cluster = change(standing("a", "b", completed=("a", "b")), node_deadline_seconds=600)
    run(cluster)
    request(cluster, "b")
    run(cluster)
    cluster.pods = [
        replace(pod, is_terminating=True) if pod.node_name == "b" else pod for pod in cluster.pods
    ]
    run(cluster)
    found = records(cluster)["b"]
    assert found["state"] == "Waiting"
    assert "attempts" not in found
    assert "activeSince" not in found
