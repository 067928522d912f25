"""What the terminator counts: pods of the Job's DaemonSet, entries of known nodes, all shards."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report_status import parse_report_status
from terminator.node_count import (
    count_nodes,
    merge_ledger,
    merge_records,
    owned_pods,
    pod_belongs_to_node,
)
from tests.unit.terminator.builders import (
    NOW,
    done,
    make_daemon_set,
    make_job,
    make_node,
    make_pod,
    make_report,
)
from tests.unit.terminator.snapshots import blocked_by, world


@pytest.mark.parametrize(
    "pod",
    [
        make_pod("c", owner_uid="another-ds"),
        make_pod("c", owner_uid=""),
        make_pod("c", namespace="elsewhere"),
        make_pod("c", is_terminating=True),
        make_pod("c", node_name=""),
    ],
)
def test_pods_that_do_not_count(pod):
    snapshot = world(pods=[make_pod("a"), make_pod("b"), pod])
    assert count_nodes(snapshot).desired == {"a", "b"}
    assert blocked_by(snapshot)


def test_a_gated_pod_counts_by_the_node_it_is_meant_for():
    snapshot = world(pods=[make_pod("a"), make_pod("b"), make_pod("c", is_scheduled=False)])
    assert count_nodes(snapshot).desired == {"a", "b", "c"}


@pytest.mark.parametrize(
    "ledger",
    [
        done("c", uid="an older node of that name"),
        Evidence("c-uid"),
        Evidence("c-uid", failed_at="2026-01-02T03:04:05Z"),
        Evidence("", completed_at="2026-01-02T03:04:05Z"),
    ],
)
def test_entries_that_complete_nothing(ledger):
    snapshot = world(ledger={"a": done("a"), "b": done("b"), "c": ledger})
    assert count_nodes(snapshot).completed == {"a", "b"}


def test_a_node_that_is_gone_completes_nothing():
    snapshot = world()
    nodes = {name: node for name, node in snapshot.nodes.items() if name != "c"}
    assert count_nodes(replace(snapshot, nodes=nodes)).completed == {"a", "b"}
    nameless = {**nodes, "c": make_node("c", uid="")}
    ledger = {**snapshot.ledger, "c": Evidence("", completed_at="x")}
    assert count_nodes(replace(snapshot, nodes=nameless, ledger=ledger)).completed == {"a", "b"}


def test_whose_log_a_pods_log_is():
    pod, node = make_pod("a"), make_node("a")
    assert pod_belongs_to_node(pod, node)
    assert pod_belongs_to_node(pod, replace(node, created_at=NOW))
    assert not pod_belongs_to_node(pod, replace(node, created_at=NOW + timedelta(seconds=1)))
    assert pod_belongs_to_node(replace(pod, created_at=None), node)
    assert pod_belongs_to_node(pod, replace(node, created_at=None))
    assert not pod_belongs_to_node(pod, None)
    assert not pod_belongs_to_node(pod, make_node("b"))
    assert not pod_belongs_to_node(pod, Node("a", "", "1"))


def test_owned_pods_follow_the_chain_of_uids():
    job, pods = make_job(), [make_pod("a"), make_pod("b", owner_uid="forged")]
    assert owned_pods(job, make_daemon_set(2), pods) == pods[:1]
    assert owned_pods(job, make_daemon_set(2, owner_uid="x"), pods) == []
    assert owned_pods(job, None, pods) == []
    assert owned_pods(replace(job, uid=""), make_daemon_set(2, owner_uid=""), pods) == []
    assert owned_pods(job, make_daemon_set(2, uid=""), [make_pod("a", owner_uid="")]) == []


def test_shards_are_one_ledger():
    job = make_job()
    reports = [
        make_report({"b": done("b"), "a": Evidence("a-uid")}, shard=0),
        make_report({"a": done("a"), "b": Evidence("b-uid")}, shard=1),
        make_report({"c": done("c")}, shard=2, job_uid="another run"),
        make_report({"c": done("c")}, shard=3, namespace="elsewhere"),
    ]
    for order in (reports, reports[::-1]):
        assert merge_ledger(job, order) == {"a": done("a"), "b": done("b")}


def test_records_are_merged_too():
    status = {"nodeStates": {"a": {"uid": "a-uid", "state": "Failed"}}}
    status = parse_report_status(status)
    reports = [make_report(status=status), make_report(shard=1, job_uid="x", status=status)]
    assert merge_records(make_job(), reports) == {"a": NodeRecord("a-uid", "Failed")}
