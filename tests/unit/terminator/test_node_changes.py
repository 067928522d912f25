"""A Job stays until each completed node is recorded as changed."""

from dataclasses import replace

from daemonset_job.api.node_changes import OnSuccess
from terminator.node_changes import unchanged_nodes
from tests.unit.terminator.builders import COMPLETE, NOW, done, make_job
from tests.unit.terminator.snapshots import record, world

JOB = make_job(COMPLETE, spec={"on_success": OnSuccess(labels={"a": "b"})})


def test_a_job_that_changes_no_node_waits_for_none():
    assert unchanged_nodes(world()) == []


def test_completed_nodes_without_a_recorded_change_are_waited_for():
    snapshot = world(job=JOB)
    assert unchanged_nodes(snapshot) == ["a", "b", "c"]
    changed = {name: replace(r, node_changed_at=NOW) for name, r in snapshot.records.items()}
    assert unchanged_nodes(replace(snapshot, records=changed)) == []
    changed["b"] = replace(changed["b"], uid="earlier")
    assert unchanged_nodes(replace(snapshot, records=changed)) == ["b"]
    del changed["c"]
    assert unchanged_nodes(replace(snapshot, records=changed)) == ["b", "c"]


def test_neither_failed_nor_deleted_nodes_are_waited_for():
    snapshot = world(completed=("a", "b"), job=JOB)
    nodes = {name: node for name, node in snapshot.nodes.items() if name != "a"}
    nodes["b"] = replace(nodes["b"], uid="new")
    ledger = {**snapshot.ledger, "gone": done("gone")}
    records = {**snapshot.records, "c": record()}
    assert unchanged_nodes(replace(snapshot, nodes=nodes, ledger=ledger, records=records)) == []
