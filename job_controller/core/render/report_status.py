"""The controller's half of a JobReport: the record that outlives the Job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.report import JobReport, new_report
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import FINAL_PHASES, ConditionType, NodeState
from job_controller.core.desired.strategic_merge import diff_merge_patch
from job_controller.core.render.shards import assign_to_shards
from job_controller.core.render.timeline import build_timeline
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_records

# The manifest has command and arguments too. If they are longer than this, they are not repeated.
ARGUMENTS_LIMIT = 16 * 1024


def build_report(job: Job, shard: int = 0) -> dict[str, Any]:
    """Return the JobReport to create for a Job, with what it runs."""
    spec = job.spec
    recorded: dict[str, Any] = {"image": spec.image}
    if not shard:
        recorded["manifest"] = job.manifest()
    if _size(spec.command) + _size(spec.args) <= ARGUMENTS_LIMIT:
        if spec.command:
            recorded["command"] = list(spec.command)
        if spec.args:
            recorded["args"] = list(spec.args)
    if spec.mount_path:
        recorded["mountPath"] = spec.mount_path
    return new_report(
        namespace=job.namespace, job_name=job.name, job_uid=job.uid, shard=shard, spec=recorded
    )


def _size(words: tuple[str, ...]) -> int:
    return sum(len(word.encode()) for word in words)


def next_report_statuses(
    snapshot: Snapshot, counts: NodeCounts, job_status: JobStatus
) -> list[tuple[JobReport, ReportStatus]]:
    """Return each shard with the status it should have, in the order in which to write them.

    The first shard has the summary and comes last, when all other shards are up to date.
    """
    reports = sorted(snapshot.reports, key=lambda report: report.shard)
    records = _next_records(snapshot, counts)
    if job_status.phase not in FINAL_PHASES:
        records = {name: record for name, record in records.items() if _is_informative(record)}
    shares = assign_to_shards(reports, records)
    summary = _summary(job_status, records)
    return [
        (
            report,
            replace(
                summary if report.shard == 0 else ReportStatus(), node_states=shares[report.shard]
            ),
        )
        for report in (*reports[1:], *reports[:1])
    ]


def _is_informative(record: NodeRecord) -> bool:
    """Return whether the record says more than that the node's first pod is on its way.

    Other nodes are only counted while a run is in progress. A large report is costly to write, and
    at the start of a run half of it would be such nodes. The final report has all nodes.
    """
    return record.state != NodeState.WAITING or bool(
        record.reason or record.attempts or record.active_since
    )


def _next_records(snapshot: Snapshot, counts: NodeCounts) -> dict[str, NodeRecord]:
    """Return every node's record, also those of nodes that are no longer desired."""
    records, retry = merge_records(snapshot), snapshot.job.retry_request
    for name, record in list(records.items()):
        if name in counts.nodes or name in counts.absent or not counts.is_exact:
            continue
        if record.state in {NodeState.ACTIVE, NodeState.UNREACHABLE} or (
            record.state == NodeState.WAITING and record.attempts
        ):
            # It has begun, which still counts when it comes back.
            words = "the node left before its task had finished"
            records[name] = _removed(record, words)
        elif record.state == NodeState.FAILED and not record.has_failed(retry):
            records[name] = _removed(record, "the node left before its task was retried")
        elif record.state not in {NodeState.COMPLETED, NodeState.FAILED, NodeState.REMOVED}:
            del records[name]
    records.update(counts.ending)
    records.update(counts.absent)
    records.update({name: node.record for name, node in counts.nodes.items()})
    return records


def _removed(record: NodeRecord, message: str) -> NodeRecord:
    return replace(record, state=NodeState.REMOVED, reason=NodeReason.NODE_REMOVED, message=message)


def _summary(job_status: JobStatus, records: Mapping[str, NodeRecord]) -> ReportStatus:
    """Return the status of the first shard without its nodes."""
    summary = ReportStatus(
        phase=job_status.phase,
        observed_generation=job_status.observed_generation,
        start_time=job_status.start_time,
        completion_time=job_status.completion_time,
        nodes=job_status.nodes,
        message=_message(job_status),
    )
    timeline = build_timeline(summary, records, job_status.conditions)
    return replace(summary, timeline=tuple(timeline))


def _message(status: JobStatus) -> str:
    """Return the message of the newest state: the end of the run, else its progress."""
    for type_ in (ConditionType.FAILED, ConditionType.COMPLETE):
        found = status.condition(type_)
        if found is not None and found.status:
            return found.message
    progressing = status.condition(ConditionType.PROGRESSING)
    return progressing.message if progressing is not None else ""


def build_status_patch(old: ReportStatus, new: ReportStatus) -> dict[str, Any]:
    """Return the merge patch that turns one status into another; empty when they are equal.

    Only the nodes that differ become JSON: of a thousand, mostly few have changed.
    """
    patch = diff_merge_patch(
        replace(old, node_states={}).to_raw(), replace(new, node_states={}).to_raw()
    )
    nodes: dict[str, Any] = {name: None for name in old.node_states if name not in new.node_states}
    for name, record in sorted(new.node_states.items()):
        before = old.node_states.get(name)
        if before is None:
            nodes[name] = record.to_raw()
        elif before != record:
            nodes[name] = diff_merge_patch(before.to_raw(), record.to_raw())
    if nodes:
        patch["nodeStates"] = nodes if new.node_states else None
    return patch
