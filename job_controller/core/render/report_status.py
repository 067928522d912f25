"""The controller's half of a JobReport: the record that outlives the Job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from daemonset_job.api import names
from daemonset_job.api import report as reports_api
from daemonset_job.api.deleted_nodes import find_dropped_nodes
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_row import NodeRow
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.report import JobReport, new_report, of_schedule, with_annotations
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.shard_room import nodes_per_shard
from daemonset_job.api.states import FINAL_PHASES, ConditionType, NodeState, Phase
from job_controller.core.desired.strategic_merge import diff_merge_patch
from job_controller.core.render.node_changes import with_node_changes
from job_controller.core.render.node_failures import has_failures, keep_failures
from job_controller.core.render.node_list import build_node_list
from job_controller.core.render.omitted_results import with_omitted_results
from job_controller.core.render.record_texts import fit_record_texts
from job_controller.core.render.run_history import with_history
from job_controller.core.render.selections import mark_completed, mark_undone
from job_controller.core.render.shard_size import has_room_for_list
from job_controller.core.render.shards import assign_to_shards
from job_controller.core.render.subscriptions import with_subscriptions
from job_controller.core.render.timeline import build_timeline
from job_controller.core.render.turns import with_turns
from job_controller.core.rollout.kept_nodes import (
    find_opened,
    find_untaken,
    has_taken_turn,
)
from job_controller.core.rollout.rollout_state import RolloutState
from job_controller.core.rollout.written_progress import reported_progress
from job_controller.core.state.absence import complete_record, has_begun
from job_controller.core.state.desired_count import find_selections, has_changed_selection
from job_controller.core.state.due_again import (
    ANOTHER_SELECTION,
    has_left_by_labels,
    selection_of,
    stamp,
)
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

# The manifest has command and arguments too. If they are longer than this, they are not repeated.
ARGUMENTS_LIMIT = 16 * 1024
# Conditions of a Job that its report has too: how the run ended.
_REPORTED_CONDITIONS = frozenset(
    {ConditionType.COMPLETE, ConditionType.FAILED, ConditionType.ROLLED_BACK}
)


def build_report(job: Job, shard: int = 0) -> dict[str, Any]:
    """Return the JobReport to create for a Job, with what it runs."""
    spec = job.spec
    recorded: dict[str, Any] = {"image": spec.image} if spec.image else {}
    if not shard:
        recorded["manifest"] = job.manifest()
    if _size(spec.command) + _size(spec.args) <= ARGUMENTS_LIMIT:
        if spec.command:
            recorded["command"] = list(spec.command)
        if spec.args:
            recorded["args"] = list(spec.args)
    if spec.mount_path:
        recorded["mountPath"] = spec.mount_path
    report = new_report(
        namespace=job.namespace,
        name=job.report_name,
        job_name=job.name,
        job_uid=job.uid,
        shard=shard,
        spec=recorded,
    )
    report = of_schedule(report, job.scheduled_by)
    return with_annotations(report, {names.ANNOTATION_SELECTION_HASH: job.selection_hash})


def _size(words: tuple[str, ...]) -> int:
    return sum(len(word.encode()) for word in words)


def next_report_statuses(
    snapshot: Snapshot,
    counts: NodeCounts,
    job_status: JobStatus,
    rollout: RolloutState,
    now: datetime,
) -> list[tuple[JobReport, ReportStatus]]:
    """Return each shard with the status it should have, in the order in which to write them.

    The first shard has the summary and comes last, when all other shards are up to date.
    """
    reports = sorted(snapshot.reports, key=lambda report: report.shard)
    records = with_turns(snapshot, _next_records(snapshot, counts), rollout, now)
    records = keep_failures(reports, records)
    records = _without_deleted_nodes(snapshot, records)
    first = snapshot.first_report
    if job_status.phase not in FINAL_PHASES:
        known = "" if first is None else first.selection_hash
        is_changed = has_changed_selection(snapshot)
        records = {
            name: record
            for name, record in records.items()
            if _is_informative(record)
            or _is_chosen_after_a_change(record, known, is_changed=is_changed)
        }
    spec = snapshot.job.spec
    shares = assign_to_shards(reports, records, nodes_per_shard(spec))
    for report in reports:
        share = shares[report.shard]
        shares[report.shard] = fit_record_texts(report, share, has_results=bool(spec.results))
        records.update(shares[report.shard])
    before = first.status if first is not None else ReportStatus()
    summary = _summary(snapshot.job, job_status, before)
    summary = with_history(before, summary, snapshot.job, job_status, now)
    summary = with_subscriptions(before, summary, spec.notify)
    summary = replace(
        summary, timeline=tuple(build_timeline(summary, records, job_status.conditions, before))
    )
    ledger = merge_evidence(snapshot) if job_status.phase in FINAL_PHASES else None
    return [
        (
            report,
            replace(
                summary if report.shard == 0 else ReportStatus(),
                node_states=shares[report.shard],
                node_list=_node_list(
                    report, shares[report.shard], ledger, has_failed=summary.phase == Phase.FAILED
                ),
            ),
        )
        for report in (*reports[1:], *reports[:1])
    ]


def _without_deleted_nodes(
    snapshot: Snapshot, records: Mapping[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Return the records without those of the oldest deleted nodes, for a Job that has no end."""
    if not snapshot.job.spec.is_continuous:
        return dict(records)
    deleted = {
        name: record.finished_at for name, record in records.items() if name not in snapshot.nodes
    }
    dropped = find_dropped_nodes(deleted)
    return {name: record for name, record in records.items() if name not in dropped}


def _node_list(
    report: JobReport,
    records: Mapping[str, NodeRecord],
    ledger: Mapping[str, Evidence] | None,
    *,
    has_failed: bool,
) -> tuple[NodeRow, ...]:
    """Return the list of a shard's nodes, none for a run that has not ended (no `ledger`).

    While a node of an ended run is unfinished, the list stays as it was. A shard that is nearly as
    large as the API server takes has none.
    """
    if ledger is None:
        return ()
    found = build_node_list(records, ledger, has_failed=has_failed)
    if found is None:
        return report.status.node_list
    return found if has_room_for_list(report, records, found) else ()


def _is_informative(record: NodeRecord) -> bool:
    """Return whether the record says more than that the node's first pod is on its way.

    Other nodes are only counted while a run is in progress. A large report is costly to write, and
    at the start of a run half of it would be such nodes. The final report has all nodes.
    """
    return record.state != NodeState.WAITING or bool(
        record.reason
        or record.attempts
        or record.active_since
        or record.earlier_pods
        or record.rerun
        or record.turn_at
        or record.step
        or has_failures(record)
    )


def _is_chosen_after_a_change(record: NodeRecord, known: str, *, is_changed: bool) -> bool:
    """Return whether the node was chosen once the selection was changed, for policy Continuous.

    `known`: the hash of the selection of the start. If the node completes unseen, and the change is
    undone, or its labels leave, only its record says which selection had chosen it: see
    `find_completed_others`. That the selection was ever changed is not known while a client has
    taken the annotation away.
    """
    selection = selection_of(record)
    return bool(known and selection) and (selection != known or is_changed)


def _next_records(snapshot: Snapshot, counts: NodeCounts) -> dict[str, NodeRecord]:
    """Return every node's record, also those of nodes that are no longer desired."""
    records, retry = merge_records(snapshot), snapshot.job.retry_request
    records.update(_completed_without_pod(snapshot, counts, records))
    records.update(mark_completed(snapshot, counts, records))
    records.update(_left_since(snapshot, records))
    recorded = reports_api.merge_records(snapshot.reports)
    ledger = merge_evidence(snapshot)
    # Only with a rollout do records have steps.
    opened = find_opened(snapshot) if snapshot.job.spec.rollout is not None else set()
    uids = snapshot.pod_uids
    untaken = find_untaken(snapshot, counts, records)
    for name, record in list(records.items()):
        # A deleted node is counted until its pod is gone, and then nothing shows that it began.
        is_deleted = name in opened and name not in snapshot.nodes
        if name in counts.nodes or name in counts.absent:
            continue
        if not (
            counts.is_exact
            or is_deleted
            or name in untaken
            # A pod of another node that cannot end keeps a count from being exact for long.
            or (counts.desired_is_current and has_left_by_labels(snapshot, name, record))
        ):
            continue
        entry = ledger.get(name)
        if entry is not None and entry.completes(record.uid):
            # It has left since, and that it had completed is not on record yet.
            if record.state != NodeState.COMPLETED:
                completed = complete_record(record, entry)
                records[name] = stamp(snapshot.job, name, completed, record, chosen_by="")
        elif record.state in {NodeState.ACTIVE, NodeState.UNREACHABLE} or (
            record.state == NodeState.WAITING
            and (
                record.attempts
                or has_failures(record)
                or (record.step and (name in opened or has_taken_turn(record, entry, uids)))
                or record.earlier_pods
                or has_begun(recorded.get(name))
            )
        ):
            # It has begun, perhaps an earlier try, which still counts when it comes back, or its
            # failures are kept. So it is if it had a turn that it took, or waits for the next one.
            words = "the node left before its task had finished"
            records[name] = _removed(snapshot, name, record, words)
        elif record.state == NodeState.FAILED and not record.has_failed(retry):
            words = "the node left before its task was retried"
            records[name] = _removed(snapshot, name, record, words)
        elif record.state not in {NodeState.COMPLETED, NodeState.FAILED, NodeState.REMOVED}:
            del records[name]
    records.update(mark_undone(snapshot, counts, records))
    records.update(counts.ending)
    records.update(counts.absent)
    records.update({name: node.record for name, node in counts.nodes.items()})
    records = with_node_changes(records, snapshot)
    return with_omitted_results(records, ledger, snapshot.job.spec.results)


def _completed_without_pod(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Return the records of completed nodes that have lost their pod before they had one."""
    unrecorded = [
        name
        for name in counts.completed_without_pod | counts.completed_unselected
        if (record := records.get(name)) is None
        or record.state != NodeState.COMPLETED
        or record.uid != snapshot.nodes[name].uid
    ]
    ledger = merge_evidence(snapshot) if unrecorded else {}
    chosen = find_selections(snapshot, unrecorded)
    found = {}
    for name in unrecorded:
        uid, record = snapshot.nodes[name].uid, records.get(name)
        known = record if record is not None and record.uid == uid else None
        completed = complete_record(known or NodeRecord(uid, NodeState.WAITING), ledger[name])
        chosen_by = chosen.get(name, "")
        found[name] = stamp(snapshot.job, name, completed, known, chosen_by=chosen_by)
    return found


def _removed(snapshot: Snapshot, name: str, record: NodeRecord, message: str) -> NodeRecord:
    """Return the record of a node that left: only a taint keeps it out, or something else."""
    reason = NodeReason.NODE_REMOVED
    if _is_there(snapshot, name, record):
        taints = snapshot.tolerations.untolerated(snapshot.nodes[name].taints)
        reason = NodeReason.UNTOLERATED_TAINT if taints else reason
    if selection_of(record) not in {"", snapshot.job.selection_hash}:
        # An edit took it out. If another one chooses it as before, no labels have brought it back.
        record = replace(record, selection=ANOTHER_SELECTION)
    return replace(record, state=NodeState.REMOVED, reason=reason, message=message)


def _left_since(snapshot: Snapshot, records: Mapping[str, NodeRecord]) -> dict[str, NodeRecord]:
    """Return the new records of nodes that a taint had taken out, and that have left since."""
    return {
        name: replace(record, reason=NodeReason.NODE_REMOVED)
        for name, record in records.items()
        if record.reason == NodeReason.UNTOLERATED_TAINT and not _is_there(snapshot, name, record)
    }


def _is_there(snapshot: Snapshot, name: str, record: NodeRecord) -> bool:
    """Return whether the node is still the same one, and is chosen by its labels."""
    node = snapshot.nodes.get(name)
    if node is None or node.uid != record.uid:
        return False
    return snapshot.affinity.matches(name, node.labels)


def _summary(job: Job, job_status: JobStatus, before: ReportStatus) -> ReportStatus:
    """Return the status of the first shard without nodes, history and timeline."""
    return ReportStatus(
        phase=job_status.phase,
        job_generation=job_status.observed_generation,
        start_time=job_status.start_time,
        completion_time=job_status.completion_time,
        nodes=job_status.nodes,
        message=_message(job_status),
        conditions=reported_conditions(job_status, before.conditions),
        rollout=reported_progress(job, job_status.rollout),
        rollback=job_status.rollback,
        may_have_begun_on=before.may_have_begun_on,
    )


def reported_conditions(
    job_status: JobStatus, known: tuple[Condition, ...]
) -> tuple[Condition, ...]:
    """Return how the run ended, and its rollback, as conditions.

    They say nothing of a generation: `kubectl wait` would compare that of the Job with that of the
    report. One that is recorded keeps its time. While the API server refuses the status of the Job,
    each reconcile gives its conditions another one.
    """
    times = {(each.type, each.status): each.last_transition_time for each in known}
    return tuple(
        replace(
            each,
            observed_generation=0,
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
