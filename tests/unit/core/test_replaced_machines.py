"""Nodes are read when another machine may have their name: the cache may not show that yet."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.times import format_time
from job_controller.core.state.counting import count_nodes
from job_controller.core.state.first_seen import Sighting, has_limits, node_not_ready
from job_controller.core.state.node_exits import READ_LIMIT
from job_controller.fresh_nodes import NodeRead, find_nodes_to_confirm
from tests.unit.builders import (
    NOW,
    done,
    gated_pod,
    make_cluster,
    make_job,
    make_node,
    make_pod,
    started,
)

SECONDS = 60


def names_of(nodes):
    return [node.name for node in nodes]


def completed_elsewhere(**entry):
    """Return a snapshot in which the terminator has seen the pod of a complete another node."""
    cluster = make_cluster("a", "b")
    cluster.evidence["a"] = replace(done("a", uid="another"), **entry)
    return cluster.snapshot()


def test_a_node_is_read_whose_pod_the_ledger_has_for_another_node_of_that_name():
    snapshot = completed_elsewhere()
    assert names_of(find_nodes_to_confirm(snapshot, NOW, {})) == ["a"]
    node = snapshot.nodes["a"]
    assert not find_nodes_to_confirm(snapshot, NOW, {"a": NodeRead(node, node, 0.0)})
    again = replace(snapshot, nodes={**snapshot.nodes, "a": replace(node, uid="another")})
    assert not find_nodes_to_confirm(again, NOW, {})
    assert count_nodes(snapshot, NOW).nodes["a"].state == "Active"
    assert count_nodes(again, NOW).nodes["a"].state == "Completed"


@pytest.mark.parametrize("pod_uid", ["", "pod-a-0"])
def test_what_another_pod_did_on_a_former_node_is_no_reason(pod_uid):
    assert not find_nodes_to_confirm(completed_elsewhere(pod_uid=pod_uid), NOW, {})


def test_a_pod_that_is_older_than_its_node_is_no_reason():
    """It is that of the former node, and is deleted."""
    snapshot = completed_elsewhere()
    younger = make_node("a", created_at=NOW + timedelta(seconds=1))
    snapshot = replace(snapshot, nodes={**snapshot.nodes, "a": younger})
    assert not find_nodes_to_confirm(snapshot, NOW, {})


def late(seconds, state="Active", **record):
    """Return a snapshot in which the time of node a began that many seconds ago."""
    began = format_time(NOW - timedelta(seconds=seconds))
    record = {"uid": "a-uid", "state": state, "activeSince": began, "podUID": "pod-a-1", **record}
    job = started(make_job(spec=JobSpec(image="example/task:1", node_deadline_seconds=SECONDS)))
    cluster = make_cluster("b", job=job, report_status={"nodeStates": {"a": record}})
    cluster.nodes["a"] = make_node("a")
    cluster.pods.append(make_pod("a"))
    return cluster.snapshot()


@pytest.mark.parametrize(
    ("seconds", "names"),
    [(SECONDS - 1, []), (SECONDS, ["a"]), (SECONDS + 119, ["a"]), (SECONDS + 120, [])],
)
def test_a_node_is_read_when_its_time_is_over(seconds, names):
    """It counts from the first pod, which may have been on another machine."""
    assert READ_LIMIT.total_seconds() == 120
    snapshot = late(seconds)
    assert names_of(find_nodes_to_confirm(snapshot, NOW, {})) == names
    assert (count_nodes(snapshot, NOW).nodes["a"].state == "Failed") == (seconds >= SECONDS)
    again = replace(snapshot, nodes={**snapshot.nodes, "a": make_node("a", uid="another")})
    assert count_nodes(again, NOW).nodes["a"].state == "Active"


@pytest.mark.parametrize(("limited", "names"), [(0, ["a"]), (119, ["a"]), (120, [])])
def test_a_node_is_read_when_its_time_is_over_by_a_lower_limit(limited, names):
    snapshot = late(SECONDS + 600)
    since = Sighting(NOW - timedelta(seconds=limited))
    snapshot = replace(snapshot, seen={has_limits(snapshot.job.spec): since})
    assert names_of(find_nodes_to_confirm(snapshot, NOW, {})) == names
    in_time = replace(late(SECONDS - 1), seen=snapshot.seen)
    assert not find_nodes_to_confirm(in_time, NOW, {})


@pytest.mark.parametrize("state", ["Failed", "Completed"])
def test_a_node_whose_end_is_on_record_is_not_read_for_that(state):
    assert not find_nodes_to_confirm(late(SECONDS, state), NOW, {})
    assert not find_nodes_to_confirm(late(SECONDS, activeSince=""), NOW, {})


@pytest.mark.parametrize(
    "pods",
    [(), (gated_pod("a"),), (replace(make_pod("a"), is_terminating=True),)],
    ids=["none", "gated", "terminating"],
)
def test_a_node_without_a_pod_that_may_run_is_not_read_for_its_time(pods):
    """It would be read in each reconcile for two minutes, and with it a whole zone."""
    snapshot = late(SECONDS)
    others = tuple(pod for pod in snapshot.pods if pod.node_name != "a")
    assert not find_nodes_to_confirm(replace(snapshot, pods=(*others, *pods)), NOW, {})


def test_a_node_that_does_not_fail_for_its_time_is_not_read_for_it():
    snapshot = late(SECONDS, "Unreachable")
    down = make_node("a", ready=False, ready_changed_at=NOW)
    since = Sighting(NOW - timedelta(hours=1))
    away = replace(
        snapshot, nodes={**snapshot.nodes, "a": down}, seen={node_not_ready(down, ""): since}
    )
    assert not find_nodes_to_confirm(away, NOW, {})
    assert not find_nodes_to_confirm(late(SECONDS, uid="former"), NOW, {})
    retried = replace(snapshot.job, annotations={names.ANNOTATION_RETRY: "1"})
    failed = replace(late(SECONDS, "Failed"), job=retried)
    assert not find_nodes_to_confirm(failed, NOW, {})


def test_a_node_that_the_ledger_completes_is_not_read_for_its_time():
    snapshot = late(SECONDS)
    (report,) = snapshot.reports
    done_already = replace(report, evidence={"a": done("a")})
    assert not find_nodes_to_confirm(replace(snapshot, reports=(done_already,)), NOW, {})
