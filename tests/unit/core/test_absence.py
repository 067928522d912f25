"""Nodes that have begun, and whose own condition keeps pods off them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import WriteReportStatus, WriteStatus
from job_controller.core.state.counting import count_nodes
from job_controller.core.state.first_seen import (
    LEDGER_ROOM,
    UNSCHEDULABLE,
    ObservedObjects,
    node_not_ready,
    update_sightings,
)
from job_controller.core.state.node_pods import current_pods
from tests.unit.builders import (
    NOW,
    START,
    done,
    make_cluster,
    make_job,
    make_node,
    make_pod,
    seen_before,
    started,
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
    cluster = make_cluster(
        "a", "b", "c", gated=True, evidence={name: done(name) for name in done_nodes}
    )
    cluster.pods, cluster.desired = [make_pod("a"), make_pod("b")], 2
    cluster.nodes["c"] = node or lost()
    cluster.report_status = {"nodeStates": {"c": record.to_raw()}} if record else {}
    if policy:
        cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, failure_policy=policy))
    for name, value in changes.items():
        setattr(cluster, name, value)
    return cluster


def count(cluster, seen=timedelta(minutes=2)):
    return count_nodes(seen_before(cluster.snapshot(), seen), NOW)


def run(cluster, seen=timedelta(minutes=2)):
    """Decide and return the Job's status and the records that the plan leaves."""
    plan = decide(seen_before(cluster.snapshot(), seen), NOW)
    for action in plan.actions:
        if isinstance(action, WriteStatus):
            cluster.job = replace(cluster.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            cluster.report_status = action.status.to_raw()
    return cluster.job.status.to_raw(), (cluster.report_status or {}).get("nodeStates", {})


def conditions(status):
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_run_is_not_complete_without_a_node_shut_down_at_work():
    cluster = away(policy=FailurePolicy("Continue"))
    status, records = run(cluster)
    assert "Complete" not in conditions(status)
    assert conditions(status)["Progressing"] == ("False", "NodesUnreachable")
    assert (status["nodes"]["desired"], status["nodes"]["completed"]) == (3, 2)
    assert status["nodes"]["unreachableNames"] == "c"
    assert records["c"]["state"] == "Unreachable"
    assert records["c"]["reason"] == "NodeNotReady"
    assert records["c"]["attempts"] == 1
    # It stays so, and nothing is written again.
    assert not decide(seen_before(cluster.snapshot(), timedelta(minutes=2)), NOW).actions


@pytest.mark.parametrize(("is_suspended", "since"), [(False, START), (True, None)])
def test_a_suspended_run_does_not_count_the_time_of_a_node_that_can_have_no_pod(
    is_suspended, since
):
    cluster = away(replace(ACTIVE, active_since=START))
    spec = replace(cluster.job.spec, node_deadline_seconds=60, suspend=is_suspended)
    cluster.job = replace(cluster.job, spec=spec)
    for seen in (timedelta(seconds=30), timedelta(minutes=2)):
        assert count(cluster, seen).absent["c"].active_since == since


def test_it_counts_against_the_limit_of_failed_nodes_after_a_minute():
    cluster = away()
    status, records = run(cluster, seen=timedelta(seconds=59))
    assert "Failed" not in conditions(status)
    assert records["c"]["state"] == "Active"
    assert decide(seen_before(cluster.snapshot(), timedelta(seconds=59)), NOW).requeue_after == 1.0
    status, _ = run(cluster, seen=timedelta(seconds=60))
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert (failed["status"], failed["message"]) == ("True", "1 unreachable (c)")


def test_node_recorded_as_unreachable_stays_so_after_a_restart():
    cluster = away(replace(ACTIVE, state="Unreachable"))
    assert count(cluster, seen=timedelta(0)).names("Unreachable") == ["c"]


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
def test_nodes_that_have_begun_stay_desired(record, state):
    cluster = away(record)
    found = count(cluster, seen=timedelta(0))
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
def test_nodes_not_started_or_tainted_are_not_desired(record, node):
    status, records = run(away(record, node))
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert status["nodes"]["desired"] == 2
    assert records.get("c", {}).get("state") != "Unreachable"


def test_a_node_that_left_has_begun_only_if_its_task_was_started():
    """Found by the simulation, seed 5181354: a record kept for earlier failures counted again."""
    for attempts, desired in ((0, 2), (1, 3)):
        record = NodeRecord(uid="c-uid", state="Removed", reason="NodeRemoved", attempts=attempts)
        assert count(away(record)).desired == desired


def test_deleted_or_unselected_node_leaves_the_count():
    cluster = away()
    del cluster.nodes["c"]
    status, records = run(cluster)
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert records["c"]["state"] == "Removed"
    raw = {"nodes": {"selector": {"matchLabels": {"zone": "x"}}}}
    selection = NodeSelection(selector=raw["nodes"]["selector"])
    job = started(make_job(raw_spec=raw))
    cluster = away(job=replace(job, spec=replace(job.spec, nodes=selection)))
    cluster.nodes = {
        name: replace(node, labels={"zone": "x"}) for name, node in cluster.nodes.items()
    }
    assert count(cluster).desired == 3
    cluster.nodes["c"] = replace(cluster.nodes["c"], labels={"zone": "y"})
    assert count(cluster).desired == 2
    assert count(cluster).is_complete


def test_failed_node_that_leaves_before_its_retry_is_recorded_as_removed():
    """The terminator takes any other record for work that has begun, and waits for it."""
    cluster = away(replace(ACTIVE, state="Failed"), lost("c", CHOSEN))
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    status, records = run(cluster)
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert (records["c"]["state"], records["c"]["message"]) == (
        "Removed",
        "the node left before its task was retried",
    )


@pytest.mark.parametrize("state", ["Active", "Waiting"])
def test_started_node_stays_started_after_a_taint_is_removed(state):
    """Its task may have been started in a pod before the one that waits."""
    cluster = away(replace(ACTIVE, state=state), lost("c", CHOSEN), done_nodes=("a",))
    cluster.report_status = {"nodeStates": run(cluster)[1]}
    assert cluster.report_status["nodeStates"]["c"]["state"] == "Removed"
    cluster.nodes["c"] = lost()
    assert count(cluster).names("Unreachable") == ["c"]


@pytest.mark.parametrize("taints", [(NOT_READY, CORDON), (NOT_READY, SHUT_DOWN), (NO_NETWORK,)])
def test_taints_of_a_nodes_condition_leave_it_desired(taints):
    found = count(away(node=lost(taints=taints)))
    assert found.names("Unreachable") == ["c"]


def test_a_ready_node_without_a_network_is_unreachable_and_says_why():
    cluster = away(node=make_node("c", taints=(NO_NETWORK,)), policy=FailurePolicy("Continue"))
    status, records = run(cluster)
    assert conditions(status)["Progressing"] == ("False", "NodesUnreachable")
    assert records["c"]["reason"] == "NodeTainted"
    assert records["c"]["message"] == (
        "the node has the taint node.kubernetes.io/network-unavailable, which keeps its pod off"
    )


@pytest.mark.parametrize(("is_ready", "state"), [(True, "Active"), (False, "Unreachable")])
def test_a_node_that_had_a_network_meanwhile_has_its_whole_time_again(is_ready, state):
    """No reconcile saw it with one. The network of a node that is not Ready does not matter."""
    since = NOW - timedelta(minutes=2)
    first = lost(ready=is_ready, taints=(NO_NETWORK,), network_changed_at=since)
    before = away(node=first).snapshot()
    seen = update_sightings({}, ObservedObjects({}, before.nodes, tainted={"c"}), since)
    assert count_nodes(replace(before, seen=seen), NOW).absent["c"].state == "Unreachable"
    again = replace(first, network_changed_at=NOW - timedelta(seconds=10))
    after = away(node=again).snapshot()
    assert count_nodes(replace(after, seen=seen), NOW).absent["c"].state == state


def test_returned_node_without_a_pod_makes_the_count_inexact():
    """Its taint has gone, and the DaemonSet controller has yet to look."""
    found = count(away(node=make_node("c")))
    assert not found.is_exact
    assert (found.desired, found.absent) == (3, {})
    # It has looked, and creates a pod.
    found = count(away(node=make_node("c"), desired=3, scheduled=2))
    assert (found.desired, found.missing) == (3, 1)


def test_a_new_pod_that_the_daemon_set_does_not_count_yet_is_one_node():
    """Its number is that of before it created the pods of a and b. That of b is yet to be seen."""
    found = count(away(pods=[make_pod("a")], desired=2, scheduled=0))
    assert found.desired == 3


def test_node_counts_once_while_the_daemon_set_status_is_stale():
    """It had the pod and the taint when the DaemonSet controller looked last."""
    found = count(away(scheduled=2, misscheduled=1))
    assert found.desired == 3
    assert not found.is_exact


def test_a_node_that_completed_before_it_went_is_completed():
    cluster = away(done_nodes=("a", "b", "c"))
    status, records = run(cluster)
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert status["nodes"]["completed"] == status["nodes"]["desired"] == 3
    assert records["c"]["state"] == "Completed"
    assert records["c"]["attempts"] == 1
    assert not decide(seen_before(cluster.snapshot(), timedelta(minutes=2)), NOW).actions


def test_all_nodes_may_be_away_when_the_last_one_has_completed():
    cluster = away(None, done_nodes=("a", "b", "c"), pods=[], desired=0)
    cluster.nodes = {name: lost(name) for name in "abc"}
    status, records = run(cluster)
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert {record["state"] for record in records.values()} == {"Completed"}


def test_evidence_of_a_former_node_completes_nothing():
    cluster = away()
    cluster.evidence["c"] = Evidence("former", completed_at="2026-01-02T03:04:00Z")
    assert count(cluster).names("Unreachable") == ["c"]


def test_a_failed_node_is_not_forgiven_for_being_away():
    failed = NodeRecord(uid="c-uid", state="Failed", reason="ImagePullFailed", message="no image")
    cluster = away(failed, policy=FailurePolicy("Continue"))
    status, records = run(cluster)
    condition = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert condition["message"] == "1 of 3 nodes failed: c no image"
    assert records["c"]["state"] == "Failed"


def test_terminating_pod_on_an_unreachable_node_keeps_it_desired():
    cluster = away(desired=2, misscheduled=1, scheduled=2)
    cluster.pods.append(replace(make_pod("c"), is_terminating=True))
    found = count(cluster)
    assert found.desired == 3
    assert found.names("Unreachable") == ["c"]
    assert not found.is_exact


def ending(**changes):
    """A run whose node c has no record, and whose only pod on c is being deleted."""
    cluster = make_cluster("a", "b", "c", gated=True)
    pod = replace(cluster.pods[2], **{"is_terminating": True, **changes})
    cluster.pods, cluster.scheduled = [*cluster.pods[:2], pod], 3
    return cluster


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_start_that_only_a_pod_being_deleted_shows_is_recorded_at_once(phase):
    """The pod may be deleted by force while its node is down; then only the record shows it."""
    cluster = ending(phase=phase)
    assert decide(cluster.snapshot(), NOW).is_urgent
    _, records = run(cluster)
    assert (records["c"]["state"], records["c"]["attempts"]) == ("Active", 1)
    assert not decide(cluster.snapshot(), NOW).is_urgent
    # The pod is deleted by force while the node is not Ready.
    cluster.pods, cluster.nodes["c"], cluster.desired = cluster.pods[:2], lost(), 2
    assert count(cluster).names("Unreachable") == ["c"]


@pytest.mark.parametrize(
    "changes",
    [
        {"container": None},
        {"container": Container("waiting")},
        {"created_at": START - timedelta(days=900)},
        {"node_name": "gone"},
    ],
)
def test_pod_being_deleted_without_a_start_of_its_node_leaves_no_record(changes):
    cluster = ending(**changes)
    assert not count(cluster).ending
    assert not decide(cluster.snapshot(), NOW).is_urgent


def test_completed_node_whose_pod_is_being_deleted_has_no_start_to_record():
    cluster = ending()
    cluster.evidence = {"c": done("c")}
    assert not count(cluster).ending


# --- pods that wait to be scheduled -------------------------------------------------------


def waiting(taint, **changes):
    """A pod of a Ready node that got a taint before the pod was scheduled."""
    cluster = make_cluster("a", gated=True)
    cluster.nodes["a"] = replace(cluster.nodes["a"], taints=(taint,))
    pod = make_pod(
        "a", state="", is_scheduled=False, unschedulable_message="1 node(s) had untolerated taint"
    )
    cluster.pods = [replace(pod, **changes)]
    cluster.job = replace(
        cluster.job, spec=replace(cluster.job.spec, failure_policy=FailurePolicy("Continue"))
    )
    return cluster


def test_a_pod_that_a_nodes_condition_keeps_off_is_not_a_failure():
    cluster = waiting(NO_NETWORK)
    status, records = run(cluster, seen=timedelta(hours=1))
    assert records["a"]["state"] == "Unreachable"
    assert status["nodes"]["failed"] == 0
    # Other reasons to find no room fail the node with time.
    node = replace(cluster.nodes["a"], taints=())
    cluster.nodes = {"a": node}
    _, records = run(cluster, seen=timedelta(hours=1))
    assert (records["a"]["state"], records["a"]["reason"]) == ("Failed", "Unschedulable")


def test_scheduling_timeout_starts_when_the_condition_is_set():
    cluster = waiting(NO_NETWORK)
    pods, node = current_pods(cluster.snapshot()), cluster.nodes["a"]
    held = update_sightings({}, ObservedObjects(pods, cluster.nodes, tainted={"a"}), NOW)
    assert set(held) == {node_not_ready(node, ""), LEDGER_ROOM}
    free = update_sightings(held, ObservedObjects(pods, cluster.nodes), NOW)
    assert {(fact.uid, fact.kind) for fact in free.keys() - {LEDGER_ROOM}} == {
        (cluster.pods[0].uid, UNSCHEDULABLE)
    }


def test_a_node_that_may_lose_its_pod_is_recorded_at_once():
    """The pod is the only thing that says that its node has begun."""
    cluster = make_cluster("a", "b", gated=True)
    assert not decide(cluster.snapshot(), NOW).is_urgent
    ended = replace(cluster.pods[0], phase="Failed", reason="Terminated")
    for changes in (
        {"pods": (ended, cluster.pods[1])},
        {"nodes": {**cluster.nodes, "a": lost("a")}},
    ):
        assert decide(cluster.snapshot(**changes), NOW).is_urgent
    cluster.report_status = {"nodeStates": {"a": replace(ACTIVE, uid="a-uid").to_raw()}}
    assert not decide(cluster.snapshot(pods=(ended, cluster.pods[1])), NOW).is_urgent


def test_a_retry_keeps_a_failed_node_that_is_away():
    failed = replace(ACTIVE, state="Failed")
    cluster = away(failed)
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    found = count(cluster, seen=timedelta(0)).absent["c"]
    assert (found.state, found.retry, found.attempts) == ("Waiting", "1", 1)
