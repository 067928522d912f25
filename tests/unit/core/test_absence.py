"""Nodes that have begun, and whose own condition keeps pods off them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.job import FailurePolicy, NodeSelection
from daemonset_job.api.report import Evidence, NodeRecord
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import WriteReportStatus, WriteStatus
from job_controller.core.state.first_seen import (
    UNSCHEDULABLE,
    ObservedObjects,
    node_not_ready,
    update_sightings,
)
from job_controller.core.state.node_counts import count_nodes, current_pods
from tests.unit.builders import (
    NOW,
    START,
    done,
    make_job,
    make_node,
    make_pod,
    seen_before,
    started,
    world,
)

NOT_READY = Taint("node.kubernetes.io/not-ready", "NoSchedule")
NO_NETWORK = Taint("node.kubernetes.io/network-unavailable", "NoSchedule")
SHUT_DOWN = Taint("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule")
CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
CHOSEN = Taint("maintenance", "NoSchedule")
ACTIVE = NodeRecord(uid="c-uid", state="Active", attempts=1, pod_uid="pod-c-1")


def lost(name="c", *taints, **changes):
    since = START - timedelta(hours=1)
    found = replace(
        make_node(name, ready=False, ready_changed_at=since), taints=(NOT_READY, *taints)
    )
    return replace(found, **changes)


def away(record=ACTIVE, node=None, done_nodes=("a", "b"), policy=None, **changes):
    """Three nodes: a and b completed; c went, its pod too, and the DaemonSet has two nodes left."""
    w = world("a", "b", "c", gated=True, evidence={name: done(name) for name in done_nodes})
    w.pods, w.desired = [make_pod("a"), make_pod("b")], 2
    w.nodes["c"] = node or lost()
    w.report_status = {"nodeStates": {"c": record.to_raw()}} if record else {}
    if policy:
        w.job = replace(w.job, spec=replace(w.job.spec, failure_policy=policy))
    for name, value in changes.items():
        setattr(w, name, value)
    return w


def count(w, seen=timedelta(minutes=2)):
    return count_nodes(seen_before(w.snapshot(), seen), NOW)


def run(w, seen=timedelta(minutes=2)):
    """Decide and return the Job's status and the records that the plan leaves."""
    plan = decide(seen_before(w.snapshot(), seen), NOW)
    for action in plan.actions:
        if isinstance(action, WriteStatus):
            w.job = replace(w.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            w.report_status = action.status
    return w.job.status, (w.report_status or {}).get("nodeStates", {})


def conditions(status):
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_a_run_is_not_complete_without_a_node_that_was_shut_down_at_work():
    w = away(policy=FailurePolicy("Continue"))
    status, records = run(w)
    assert "Complete" not in conditions(status)
    assert conditions(status)["Progressing"] == ("False", "NodesUnreachable")
    assert (status["nodes"]["desired"], status["nodes"]["completed"]) == (3, 2)
    assert status["nodes"]["unreachableNames"] == "c"
    assert records["c"]["state"] == "Unreachable"
    assert records["c"]["reason"] == "NodeNotReady"
    assert records["c"]["attempts"] == 1
    # It stays so, and nothing is written again.
    assert not decide(seen_before(w.snapshot(), timedelta(minutes=2)), NOW).actions


def test_it_counts_against_the_limit_of_failed_nodes_after_a_minute():
    w = away()
    status, records = run(w, seen=timedelta(seconds=59))
    assert "Failed" not in conditions(status)
    assert records["c"]["state"] == "Active"
    assert decide(seen_before(w.snapshot(), timedelta(seconds=59)), NOW).requeue_after == 1.0
    status, _ = run(w, seen=timedelta(seconds=60))
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert (failed["status"], failed["message"]) == ("True", "1 unreachable (c)")


def test_a_node_on_record_as_unreachable_stays_so_whatever_this_process_has_seen():
    w = away(replace(ACTIVE, state="Unreachable"))
    assert count(w, seen=timedelta(0)).names("Unreachable") == ["c"]


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (replace(ACTIVE, state="Waiting"), "Waiting"),
        (replace(ACTIVE, state="Unreachable", attempts=0), "Unreachable"),
        # It had an administrator's taint for a time.
        (replace(ACTIVE, state="Removed"), "Waiting"),
        # A retry was asked for.
        (replace(ACTIVE, state="Failed", retry="older"), "Waiting"),
    ],
)
def test_nodes_that_have_begun_stay_wanted(record, state):
    w = away(record)
    found = count(w, seen=timedelta(0))
    assert (found.desired, found.absent["c"].state, found.absent["c"].retry) == (3, state, "")
    assert found.is_exact
    assert not found.is_complete


@pytest.mark.parametrize(
    ("record", "node"),
    [
        (None, None),
        (replace(ACTIVE, state="Waiting", attempts=0), None),
        (replace(ACTIVE, uid="another node of that name"), None),
        (ACTIVE, lost("c", CHOSEN)),
        (ACTIVE, replace(lost(), taints=(CHOSEN,))),
    ],
)
def test_nodes_that_have_not_begun_or_that_an_administrator_tainted_are_not(record, node):
    status, records = run(away(record, node))
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert status["nodes"]["desired"] == 2
    assert records.get("c", {}).get("state") != "Unreachable"


def test_a_node_that_is_deleted_or_does_not_match_any_more_leaves_the_count():
    w = away()
    del w.nodes["c"]
    status, records = run(w)
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert records["c"]["state"] == "Removed"
    raw = {"nodes": {"selector": {"matchLabels": {"zone": "x"}}}}
    selection = NodeSelection(selector=raw["nodes"]["selector"])
    job = started(make_job(raw_spec=raw))
    w = away(job=replace(job, spec=replace(job.spec, nodes=selection)))
    w.nodes = {name: replace(node, labels={"zone": "x"}) for name, node in w.nodes.items()}
    assert count(w).desired == 3
    w.nodes["c"] = replace(w.nodes["c"], labels={"zone": "y"})
    assert count(w).desired == 2
    assert count(w).is_complete


@pytest.mark.parametrize("state", ["Active", "Waiting"])
def test_a_node_that_has_begun_still_has_when_an_administrators_taint_has_gone(state):
    """Its task may have been started in a pod before the one that waits."""
    w = away(replace(ACTIVE, state=state), lost("c", CHOSEN), done_nodes=("a",))
    w.report_status = {"nodeStates": run(w)[1]}
    assert w.report_status["nodeStates"]["c"]["state"] == "Removed"
    w.nodes["c"] = lost()
    assert count(w).names("Unreachable") == ["c"]


@pytest.mark.parametrize("taints", [(NOT_READY, CORDON), (NOT_READY, SHUT_DOWN), (NO_NETWORK,)])
def test_taints_of_a_nodes_condition_leave_it_wanted(taints):
    found = count(away(node=lost(taints=taints)))
    assert found.names("Unreachable") == ["c"]


def test_a_ready_node_without_a_network_is_unreachable_and_says_why():
    w = away(node=make_node("c", taints=(NO_NETWORK,)), policy=FailurePolicy("Continue"))
    status, records = run(w)
    assert conditions(status)["Progressing"] == ("False", "NodesUnreachable")
    assert records["c"]["reason"] == "NodeTainted"
    assert records["c"]["message"] == (
        "the node has the taint node.kubernetes.io/network-unavailable, which keeps its pod off"
    )


def test_a_node_that_is_back_and_that_nobody_counts_yet_leaves_the_count_inexact():
    """Its taint has gone, and the DaemonSet controller has yet to look."""
    found = count(away(node=make_node("c")))
    assert not found.is_exact
    assert (found.desired, found.absent) == (3, {})
    # It has looked, and creates a pod.
    found = count(away(node=make_node("c"), desired=3, scheduled=2))
    assert (found.desired, found.missing) == (3, 1)


def test_a_node_is_counted_once_while_the_count_of_the_daemon_set_is_behind():
    """It had the pod and the taint when the DaemonSet controller looked last."""
    found = count(away(scheduled=2, misscheduled=1))
    assert found.desired == 3
    assert not found.is_exact


def test_a_node_that_completed_before_it_went_is_completed():
    w = away(done_nodes=("a", "b", "c"))
    status, records = run(w)
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert status["nodes"]["completed"] == status["nodes"]["desired"] == 3
    assert records["c"]["state"] == "Completed"
    assert records["c"]["attempts"] == 1
    assert not decide(seen_before(w.snapshot(), timedelta(minutes=2)), NOW).actions


def test_all_nodes_may_be_away_when_the_last_one_has_completed():
    w = away(None, done_nodes=("a", "b", "c"), pods=[], desired=0)
    w.nodes = {name: lost(name) for name in "abc"}
    status, records = run(w)
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert {record["state"] for record in records.values()} == {"Completed"}


def test_evidence_of_a_former_node_completes_nothing():
    w = away()
    w.evidence["c"] = Evidence("former", completed_at="2026-01-02T03:04:00Z")
    assert count(w).names("Unreachable") == ["c"]


def test_a_failed_node_is_not_forgiven_for_being_away():
    failed = NodeRecord(uid="c-uid", state="Failed", reason="ImagePullFailed", message="no image")
    w = away(failed, policy=FailurePolicy("Continue"))
    status, records = run(w)
    told = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert told["message"] == "1 of 3 nodes failed: c no image"
    assert records["c"]["state"] == "Failed"


def test_a_pod_that_is_being_deleted_on_a_lost_node_keeps_the_node_wanted():
    w = away(desired=2, misscheduled=1, scheduled=2)
    w.pods.append(replace(make_pod("c"), is_terminating=True))
    found = count(w)
    assert found.desired == 3
    assert found.names("Unreachable") == ["c"]
    assert not found.is_exact


# --- pods that wait to be scheduled -------------------------------------------------------


def waiting(taint, **changes):
    """A pod of a Ready node that got a taint before the pod was scheduled."""
    w = world("a", gated=True)
    w.nodes["a"] = replace(w.nodes["a"], taints=(taint,))
    pod = make_pod(
        "a", state="", is_scheduled=False, unschedulable_message="1 node(s) had untolerated taint"
    )
    w.pods = [replace(pod, **changes)]
    w.job = replace(w.job, spec=replace(w.job.spec, failure_policy=FailurePolicy("Continue")))
    return w


def test_a_pod_that_a_nodes_condition_keeps_off_is_not_a_failure():
    w = waiting(NO_NETWORK)
    status, records = run(w, seen=timedelta(hours=1))
    assert records["a"]["state"] == "Unreachable"
    assert status["nodes"]["failed"] == 0
    # Other reasons to find no room fail the node with time.
    node = replace(w.nodes["a"], taints=())
    w.nodes = {"a": node}
    _, records = run(w, seen=timedelta(hours=1))
    assert (records["a"]["state"], records["a"]["reason"]) == ("Failed", "Unschedulable")


def test_the_patience_with_the_scheduler_begins_when_the_condition_has_passed():
    w = waiting(NO_NETWORK)
    pods, node = current_pods(w.snapshot()), w.nodes["a"]
    held = update_sightings({}, ObservedObjects(pods, w.nodes, tainted={"a"}), NOW)
    assert set(held) == {node_not_ready(node, "")}
    free = update_sightings(held, ObservedObjects(pods, w.nodes), NOW)
    assert [(fact.uid, fact.kind) for fact in free] == [(w.pods[0].uid, UNSCHEDULABLE)]


def test_a_node_that_may_lose_its_pod_is_recorded_at_once():
    """The pod is the only thing that says that its node has begun."""
    w = world("a", "b", gated=True)
    assert not decide(w.snapshot(), NOW).is_urgent
    ended = replace(w.pods[0], phase="Failed", reason="Terminated")
    for changes in ({"pods": (ended, w.pods[1])}, {"nodes": {**w.nodes, "a": lost("a")}}):
        assert decide(w.snapshot(**changes), NOW).is_urgent
    w.report_status = {"nodeStates": {"a": replace(ACTIVE, uid="a-uid").to_raw()}}
    assert not decide(w.snapshot(pods=(ended, w.pods[1])), NOW).is_urgent


def test_a_retry_keeps_a_failed_node_that_is_away():
    failed = replace(ACTIVE, state="Failed")
    w = away(failed)
    w.job = replace(w.job, annotations={names.ANNOTATION_RETRY: "1"})
    found = count(w, seen=timedelta(0)).absent["c"]
    assert (found.state, found.retry, found.attempts) == ("Waiting", "1", 1)
