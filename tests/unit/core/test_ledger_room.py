"""A log is not judged while no shard can hold what the terminator finds in it."""

from dataclasses import replace
from datetime import timedelta

from daemonset_job.api import shard_room
from daemonset_job.api.container import Container
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report_status import ReportStatus
from job_controller.core.decide import decide
from job_controller.core.state.ledger_room import has_ledger_room
from job_controller.core.state.node_exits import READ_LOG_GRACE, UNREAD_LOG_GRACE
from tests.unit.builders import NOW, SampleCluster, done, make_job, make_node, make_pod, started

ENDED = Container(state="terminated", exit_code=0, finished_at=NOW)


def cluster_of(*names, **changes):
    job = started(make_job())
    job = replace(job, spec=replace(job.spec, backoff_limit=0))
    pods = [make_pod(name, container=ENDED) for name in names]
    return SampleCluster(
        job=job, nodes={name: make_node(name) for name in names}, pods=pods, **changes
    )


def failed_nodes(snapshot, now):
    """Return the nodes that a plan records as failed."""
    found = set()
    for action in decide(snapshot, now).actions:
        if type(action).__name__ == "WriteStatus" and action.status.nodes is not None:
            found.add(action.status.nodes.failed_names)
    return found - {""}


def test_each_node_with_a_record_evidence_or_a_pod_needs_room(monkeypatch):
    monkeypatch.setattr(shard_room, "NODES_PER_SHARD", 3)
    cluster = cluster_of("a", "b")
    assert has_ledger_room(cluster.snapshot())
    gone = replace(cluster.report(), evidence={"gone": done("gone")})
    assert has_ledger_room(cluster.snapshot(reports=(gone,)))
    record = NodeRecord(uid="u", state="Completed")
    same = replace(gone, status=ReportStatus(node_states={"gone": record, "a": record}))
    assert has_ledger_room(cluster.snapshot(reports=(same,)))
    more = replace(gone, status=ReportStatus(node_states={"left": record}))
    assert not has_ledger_room(cluster.snapshot(reports=(more,)))
    second = replace(more, name="second", shard=1, evidence={}, status=ReportStatus())
    assert has_ledger_room(cluster.snapshot(reports=(more, second)))
    assert not has_ledger_room(cluster.snapshot(reports=()))


def test_an_exit_without_token_fails_its_node_once_its_log_could_be_recorded(monkeypatch):
    cluster = cluster_of("a", "b", gated=True, seen=2 * UNREAD_LOG_GRACE)
    assert failed_nodes(cluster.snapshot(), NOW) == {"a,b"}
    monkeypatch.setattr(shard_room, "NODES_PER_SHARD", 1)
    snapshot = cluster.snapshot()
    assert not failed_nodes(snapshot, NOW)
    assert not failed_nodes(snapshot, NOW + timedelta(hours=1))
    # What the ledger says of a log that was read holds all the same.
    read = {name: replace(done(name), completed_at="", attempt=1) for name in ("a", "b")}
    cluster = replace(cluster, evidence=read, seen=2 * READ_LOG_GRACE)
    assert failed_nodes(cluster.snapshot(), NOW) == {"a,b"}
