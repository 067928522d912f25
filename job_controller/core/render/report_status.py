"""The controller's half of a JobReport: the record that outlives the Job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_row import NodeRow
from daemonset_job.api.reasons import CancelledReason, NodeReason
from daemonset_job.api.report import NODES_PER_SHARD, JobReport, new_report
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.report_summary import FINAL_REPORT_PHASES
from daemonset_job.api.states import FINAL_PHASES, ConditionType, NodeState, Phase
from daemonset_job.api.times import add_seconds, whole_seconds
from job_controller.core.desired.strategic_merge import diff_merge_patch
from job_controller.core.render.node_list import build_node_list
from job_controller.core.render.timeline import build_timeline, drop_current_lines
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

# The manifest has command and arguments too. If they are longer than this, they are not repeated.
ARGUMENTS_LIMIT = 16 * 1024
# Conditions of a Job that its report has too: how the run ended.
_REPORTED_CONDITIONS = frozenset({ConditionType.COMPLETE, ConditionType.FAILED})


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


def missing_shards(snapshot: Snapshot, counts: NodeCounts) -> list[int]:
    """Return the numbers of the shards that are needed and do not exist."""
    known = set(merge_records(snapshot)) | set(merge_evidence(snapshot)) | set(counts.nodes)
    # The DaemonSet's count may be forged: there cannot be more nodes than exist.
    count = max(min(counts.desired, len(snapshot.nodes)), len(known), 1)
    needed = range((count + NODES_PER_SHARD - 1) // NODES_PER_SHARD)
    there = {report.shard for report in snapshot.reports}
    return [shard for shard in needed if shard not in there]


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
    shares = _assign_to_shards(reports, records)
    first = snapshot.first_report
    summary = _summary(job_status, records, first.status.conditions if first is not None else ())
    ledger = merge_evidence(snapshot) if job_status.phase in FINAL_PHASES else None
    return [
        (
            report,
            replace(
                summary if report.shard == 0 else ReportStatus(),
                node_states=shares[report.shard],
                node_list=_node_list(report, shares[report.shard], ledger),
            ),
        )
        for report in (*reports[1:], *reports[:1])
    ]


def _node_list(
    report: JobReport, records: Mapping[str, NodeRecord], ledger: Mapping[str, Evidence] | None
) -> tuple[NodeRow, ...]:
    """Return the list of a shard's nodes, none for a run that has not ended (no `ledger`).

    While a node of an ended run is unfinished, the list stays as it was.
    """
    if ledger is None:
        return ()
    found = build_node_list(records, ledger)
    return report.status.node_list if found is None else found


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


def _assign_to_shards(
    reports: list[JobReport], records: Mapping[str, NodeRecord]
) -> dict[int, dict[str, NodeRecord]]:
    """Return the records by shard, at most NODES_PER_SHARD in each.

    A record stays in its shard. A new one goes to the shard of the node's evidence if that has
    room, else to the first shard with room.
    """
    shares: dict[int, dict[str, NodeRecord]] = {report.shard: {} for report in reports}
    record_shard: dict[str, int] = {}
    evidence_shard: dict[str, int] = {}
    for report in reports:
        for name in report.records:
            record_shard.setdefault(name, report.shard)
        for name in report.evidence:
            evidence_shard.setdefault(name, report.shard)

    def has_room(shard: int | None) -> bool:
        return shard is not None and len(shares[shard]) < NODES_PER_SHARD

    for name in sorted(
        records, key=lambda name: (name not in record_shard, name not in evidence_shard, name)
    ):
        place = record_shard.get(name)
        if place is None or not has_room(place):
            place = evidence_shard.get(name)
        if place is None or not has_room(place):
            place = next(filter(has_room, shares), None)
        if place is not None:
            shares[place][name] = records[name]
    return shares


def _summary(
    job_status: JobStatus, records: Mapping[str, NodeRecord], known: tuple[Condition, ...]
) -> ReportStatus:
    """Return the status of the first shard without its nodes; it has the conditions `known`."""
    summary = ReportStatus(
        phase=job_status.phase,
        observed_generation=job_status.observed_generation,
        start_time=job_status.start_time,
        completion_time=job_status.completion_time,
        nodes=job_status.nodes,
        message=_message(job_status),
        conditions=_reported_conditions(job_status, known),
    )
    timeline = build_timeline(summary, records, job_status.conditions)
    return replace(summary, timeline=tuple(timeline))


def _reported_conditions(
    job_status: JobStatus, known: tuple[Condition, ...]
) -> tuple[Condition, ...]:
    """Return how the run ended, as conditions.

    One that is recorded keeps its time. While the API server refuses the status of the Job, each
    reconcile gives its conditions another one.
    """
    times = {(each.type, each.status): each.last_transition_time for each in known}
    return tuple(
        replace(
            each,
            last_transition_time=times.get((each.type, each.status), each.last_transition_time),
        )
        for each in job_status.conditions
        if each.type in _REPORTED_CONDITIONS
    )


def _message(status: JobStatus) -> str:
    """Return the message of the newest state: the failure of the run, else its progress.

    Of a run that has succeeded that is what became of all nodes, those that joined later too.
    """
    failed = status.condition(ConditionType.FAILED)
    if failed is not None and failed.status:
        return failed.message
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


def closed_status(report: JobReport, now: datetime) -> ReportStatus | None:
    """Return the last status of a report whose Job is deleted, None when it is closed already.

    A report without a phase was put back from a backup: `kubectl apply` writes no status. It is
    left as it is. The controller gives each report that it creates a phase at once.
    """
    phase = report.status.phase
    if report.shard or phase is None or phase in FINAL_REPORT_PHASES:
        return None
    message = "the Job was deleted before the run had ended"
    cancelled = Condition(
        ConditionType.CANCELLED,
        True,
        CancelledReason.JOB_DELETED,
        message,
        last_transition_time=whole_seconds(now),
    )
    return replace(
        report.status,
        phase=Phase.CANCELLED,
        completion_time=whole_seconds(now),
        message=message,
        conditions=(*report.status.conditions, cancelled),
        timeline=(*drop_current_lines(report.status.timeline), message),
    )


def expired_reports(
    reports: list[JobReport],
    *,
    current_uid: str,
    limit: int,
    max_age_seconds: float | None,
    now: datetime,
) -> tuple[list[JobReport], datetime | None]:
    """Return the reports of one Job name beyond the history limits, and when the next one expires.

    Of the finished runs, the newest `limit` are kept, none longer than `max_age_seconds`. A run
    counts as one however many shards it has. The report of the current Job always stays.
    """
    runs: dict[str, list[JobReport]] = {}
    for report in reports:
        if report.job_uid != current_uid:
            runs.setdefault(report.job_uid, []).append(report)
    by_age = sorted(runs.values(), key=_created, reverse=True)
    expired = [report for run in by_age[limit:] for report in run]
    wakes: list[datetime] = []
    for run in by_age[:limit]:
        if max_age_seconds is None:
            break
        end = add_seconds(_ended(run), max_age_seconds)
        if end <= now:
            expired.extend(run)
        else:
            wakes.append(end)
    return expired, min(wakes, default=None)


def excess_reports(reports: Iterable[JobReport], count: int) -> list[JobReport]:
    """Return at least `count` reports, of the runs that ended first; all shards of a run."""
    if count <= 0:
        return []
    runs: dict[str, list[JobReport]] = {}
    for report in reports:
        runs.setdefault(report.job_uid, []).append(report)
    excess: list[JobReport] = []
    for run in sorted(runs.values(), key=_ended):
        if len(excess) >= count:
            break
        excess.extend(run)
    return excess


def _ended(run: list[JobReport]) -> datetime:
    """Return when a run ended, or when it was created if its report has no end."""
    ends = [end for report in run if (end := report.status.completion_time)]
    return max(ends, default=_created(run))


def _created(run: list[JobReport]) -> datetime:
    first = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return min((report.created_at or first for report in run), default=first)
