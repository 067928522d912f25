"""The record of what was changed on completed nodes: when, and which results could not be set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.shard_room import nodes_per_shard
from daemonset_job.api.states import NodeState
from job_controller.core.render.shards import assign_to_shards
from job_controller.core.state.absence import complete_record
from job_controller.core.state.node_changes import describe_unset_results
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

# A result that is not set on the node matters more than one that the report lacks.
_REPLACED_REASONS: Final = frozenset({"", NodeReason.RESULT_TOO_LONG, NodeReason.RESULT_NOT_LISTED})


def with_node_changes(
    records: Mapping[str, NodeRecord], snapshot: Snapshot
) -> dict[str, NodeRecord]:
    """Return the records with the changes of nodes that this process has made."""
    marked = dict(records)
    if not snapshot.changed_nodes:
        return marked
    for name, evidence in merge_evidence(snapshot).items():
        uid, record, node = evidence.node_uid, records.get(name), snapshot.nodes.get(name)
        if not evidence.is_completed or evidence.completion_id not in snapshot.changed_nodes:
            continue
        # A node that was created again under this name has a record of its own.
        if (record is not None and record.uid == uid) or (node is not None and node.uid == uid):
            marked[name] = _with_change(record, evidence, snapshot)
    return marked


def record_changes(snapshot: Snapshot) -> list[tuple[JobReport, ReportStatus]]:
    """Return the reports that lack changes of nodes, each with the status that has them.

    Nothing else in them differs: it is for reports that keep what they say at the end of a run.
    """
    if not snapshot.changed_nodes:
        return []
    records = merge_records(snapshot)
    new = {
        name: record
        for name, record in with_node_changes(records, snapshot).items()
        if record != records.get(name)
    }
    if not new:
        return []
    reports = sorted(snapshot.reports, key=lambda report: report.shard)
    room = assign_to_shards(reports, {**records, **new}, nodes_per_shard(snapshot.job.spec))
    places = {name: shard for shard, share in room.items() for name in share}
    shares: dict[int, dict[str, NodeRecord]] = {}
    for name, record in new.items():
        # Without room in any shard it goes to that of its evidence: a change is to be on record.
        named_in = (report.shard for report in reports if name in report.evidence)
        place = places[name] if name in places else next(named_in)
        shares.setdefault(place, {})[name] = record
    return [
        (report, replace(report.status, node_states={**report.records, **shares[report.shard]}))
        for report in snapshot.reports
        if report.shard in shares
    ]


def _with_change(record: NodeRecord | None, evidence: Evidence, snapshot: Snapshot) -> NodeRecord:
    """Return the record of a node that was changed; the first time counts."""
    uid = evidence.node_uid
    if record is None or record.uid != uid:
        record = complete_record(NodeRecord(uid, NodeState.WAITING), evidence)
    if record.node_changed_at is not None:
        return record
    record = replace(record, node_changed_at=snapshot.changed_nodes[evidence.completion_id])
    problem = describe_unset_results(evidence, snapshot.job.spec.on_success)
    if not problem or record.reason not in _REPLACED_REASONS:
        return record
    return replace(record, reason=NodeReason.RESULT_NOT_SET, message=problem)
