"""The decision: what to do next for a Job, from everything known about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import ConditionType, Phase
from job_controller.core.daemon_set_actions import create_again_actions, daemon_set_actions
from job_controller.core.job_actions import CreateJob
from job_controller.core.owned_jobs.part import part_actions
from job_controller.core.owned_jobs.rollback import evaluate_rollback
from job_controller.core.plan import (
    Action,
    ApplyDaemonSet,
    ChangeNodes,
    CreateReport,
    Event,
    Plan,
    RefusedWrite,
    WriteReportStatus,
    WriteStatus,
    refused_write,
)
from job_controller.core.pod_actions import last_deletions, pod_actions
from job_controller.core.preparation import plan_deleted, prepare_nodes, with_preparation
from job_controller.core.render.events import (
    exit_events,
    is_alteration_unrecorded,
    recreation_events,
    rerun_events,
    state_events,
)
from job_controller.core.render.frozen_status import counted_generation, frozen_status
from job_controller.core.render.job_status import (
    Findings,
    next_status,
)
from job_controller.core.render.messages import token_hint_at, with_message
from job_controller.core.render.node_changes import record_changes
from job_controller.core.render.report_status import (
    build_report,
    next_report_statuses,
)
from job_controller.core.render.revision_status import revision_status
from job_controller.core.render.rollback import (
    record_late_starts,
    record_rollback,
    rollback_events,
    with_rollback,
)
from job_controller.core.render.selections import record_selections
from job_controller.core.render.shards import missing_shards
from job_controller.core.render.turns import record_returned
from job_controller.core.rollout.rollout_state import (
    RolloutState,
    evaluate_rollout,
    find_facts,
    with_rollout,
)
from job_controller.core.rollout.source_answers import due_queries
from job_controller.core.scheduling_gates import pods_with_removable_gate
from job_controller.core.start import plan_unstarted
from job_controller.core.state.active_progress import NO_PROGRESS, find_progress
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.blockers import (
    find_blocker,
    find_unexplained_pod,
)
from job_controller.core.state.counting import count_nodes
from job_controller.core.state.last_lines import pods_stay_until
from job_controller.core.state.node_changes import find_pending_changes
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.placement_blockers import count_unexplained
from job_controller.core.state.run_state import RunOutcome, RunState, evaluate_run
from job_controller.core.state.snapshot import (
    Snapshot,
    find_unrecorded,
    merge_evidence,
    merge_records,
)
from job_controller.core.taken_back_start import find_uncorrectable

# A DaemonSet that other clients or a webhook keep changing is reconciled even without an event.
_ALTERED_RETRY_SECONDS = 15.0


def decide(snapshot: Snapshot, now: datetime) -> Plan:
    """Return what to do for one Job. Pure: the same snapshot and time give the same plan.

    The order within a plan: actions that make the work happen, then the reports, then the Job's
    status. So `Complete` and `Failed` are written only when the report already says so. Pods that
    show what is recorded just now are deleted last.
    """
    job = snapshot.job
    if (other := plan_deleted(snapshot) or plan_unstarted(snapshot, now)) is not None:
        return other
    counts = count_nodes(snapshot, now)
    run = evaluate_run(snapshot, counts, now)
    facts = find_facts(snapshot, counts, run, now)
    run = with_message(with_rollout(run, snapshot, facts), counts, job)
    rollout = evaluate_rollout(snapshot, counts, run, facts, now)
    due = pods_with_removable_gate(snapshot, counts, run, rollout)
    prepared = prepare_nodes(snapshot, counts, run, due, now)
    counts = with_preparation(counts, prepared)
    blocker = find_blocker(snapshot, counts)
    stays_until = pods_stay_until(snapshot, counts, now)
    work = _work_actions(snapshot, _Work(counts, run, rollout, blocker, stays_until))
    work += [
        *prepared.actions,
        *pod_actions(snapshot, counts, rollout, prepared.ready),
        *part_actions(
            snapshot,
            rollout.parts,
            may_create=rollout.may_create_parts,
            keeps_others=rollout.keeps_parts,
        ),
    ]
    ours = snapshot.owned_daemon_set
    alteration = ours.alteration if ours is not None else ""
    progress = NO_PROGRESS if run.has_ended else find_progress(merge_evidence(snapshot), counts)
    ended_at, token = _ended_at(snapshot, run), snapshot.settings.token
    begun = find_uncorrectable(snapshot)
    found = Findings(counts, run, blocker, ended_at, alteration, progress, token, rollout, begun)
    status = next_status(job, found, now)
    if find_unrecorded(snapshot):
        # The request stays open: only the report says which nodes follow it.
        status = replace(status, observed_rerun=job.status.observed_rerun)
    if job.has_new_revision:
        return _plan_revision(snapshot, counts, revision_status(job, status, run))
    rollback = evaluate_rollback(snapshot, counts, run, now)
    status = with_rollback(job, status, rollback, now)
    if rollback.action is not None:
        work.append(rollback.action)
    record = _record_actions(snapshot, found, status, now)
    pending = find_pending_changes(snapshot, now)
    changes = [ChangeNodes(pending.due)] if pending.due else []
    # No node starts after a failure. After a success, one that joins late does.
    has_failed = run.outcome == RunOutcome.FAILED
    is_reopened = job.is_true(ConditionType.COMPLETE) and not run.has_ended
    has_news = is_reopened or is_alteration_unrecorded(job, status)
    unrecorded = has_news and any(isinstance(action, WriteStatus) for action in record)
    if unrecorded:
        # After the DaemonSet is applied nothing shows the change, so it is recorded first.
        work = [action for action in work if not isinstance(action, ApplyDaemonSet)]
    times = [counts.wake_at, run.wake_at, rollout.wake_at, prepared.wake_at]
    times += [stays_until, pending.wake_at, _hint_due_at(counts, job, run, now)]
    moments = [moment for moment in times if moment is not None]
    waits = [max((moment - now).total_seconds(), 0.0) for moment in moments]
    if snapshot.refusals:
        waits.append(snapshot.retry_seconds)
    if counts.is_altered:
        waits.append(_ALTERED_RETRY_SECONDS)
    if rollback.wake_seconds is not None:
        waits.append(rollback.wake_seconds)
    return Plan(
        actions=tuple(
            action
            for action in (*work, *changes, *record, *last_deletions(snapshot, counts))
            if not _is_refused(snapshot, action)
        ),
        events=(
            *(recreation_events(job) if _is_recreated(job, work) else ()),
            *_status_events(snapshot, counts, status, record),
            *exit_events(merge_records(snapshot), counts),
        ),
        requeue_after=min(waits, default=None),
        is_urgent=counts.is_record_urgent
        or unrecorded
        or bool(rollout.turns or rollout.set_aside or prepared.is_unrecorded)
        or _adds_history(snapshot, record),
        has_missing_pods=not has_failed and count_unexplained(snapshot, counts) > 0,
        unexplained_pod="" if has_failed else find_unexplained_pod(counts),
        pod_query=rollout.query,
        source_queries=() if run.has_ended else due_queries(job, now),
    )


def _hint_due_at(counts: NodeCounts, job: Job, run: RunState, now: datetime) -> datetime | None:
    """Return when the message has a hint that no token was printed; None for never, or already."""
    due = None if run.has_ended else token_hint_at(counts, job)
    return due if due is not None and now < due else None


def _plan_revision(snapshot: Snapshot, counts: NodeCounts, status: JobStatus) -> Plan:
    """Return the write of a new revision's number, which comes before all that is done for it.

    If the change is undone before that, the write fails, and nothing has followed the change. If
    it is undone later, that is a revision of its own.
    """
    events = state_events(snapshot, status, counts)
    return Plan(actions=(WriteStatus(status),), events=tuple(events), is_urgent=True)


def _adds_history(snapshot: Snapshot, record: list[Action]) -> bool:
    """Return whether a write adds to the history of the run.

    What it records may be over a moment later, and would then be in no report.
    """
    first = snapshot.first_report
    return first is not None and any(
        isinstance(action, WriteReportStatus)
        and action.uid == first.uid
        and action.status.history != first.status.history
        for action in record
    )


def _is_recreated(job: Job, work: list[Action]) -> bool:
    """Return whether a DaemonSet that had nodes is created again."""
    had_nodes = bool(job.reported_desired)
    return had_nodes and any(isinstance(a, ApplyDaemonSet) and not a.uid for a in work)


def _is_refused(snapshot: Snapshot, action: Action) -> bool:
    """Return whether the API server has just refused such a write.

    Actions that do not depend on it are executed, above all the status, which reports the refusal.
    """
    if isinstance(action, CreateJob) and RefusedWrite.OWNED_JOB_NAME in snapshot.refusals:
        return True
    return refused_write(action) in snapshot.refusals


def _ended_at(snapshot: Snapshot, run: RunState) -> datetime | None:
    """Return the time of the run's end in its report, None if the report does not have this end.

    A report whose writes are refused may still have an earlier end: of an older spec, or from
    before a retry.
    """
    first, job = snapshot.first_report, snapshot.job
    if first is None or not run.has_ended:
        return None
    phase = Phase.SUCCEEDED if run.outcome == RunOutcome.SUCCEEDED else Phase.FAILED
    if (first.status.phase, first.status.job_generation) != (phase, job.generation):
        return None
    ended, reopened = first.status.completion_time, _reopened_at(job)
    if ended is None or (reopened is not None and ended <= reopened):
        return None
    return ended


def _reopened_at(job: Job) -> datetime | None:
    """Return when a retry last opened a failed run again, None if none did.

    While that is about to be decided, it is the time of the failure, which is earlier.
    """
    failed = job.status.condition(ConditionType.FAILED)
    if failed is None:
        return None
    if failed.status is False:
        return failed.last_transition_time
    is_retried = job.status.observed_retry != job.retry_request
    return job.status.completion_time if is_retried else None


def _status_events(
    snapshot: Snapshot, counts: NodeCounts, status: JobStatus, record: list[Action]
) -> Iterator[Event]:
    """Return what is reported with the write of a status; without it, it would be each time."""
    for written in (action.status for action in record if isinstance(action, WriteStatus)):
        if written == status:
            yield from state_events(snapshot, status, counts)
        yield from rerun_events(snapshot, counts, written)
        yield from rollback_events(snapshot.job, written)


def _record_actions(
    snapshot: Snapshot, found: Findings, status: JobStatus, now: datetime
) -> list[Action]:
    """Return the writes of the record: the reports, then the Job's status.

    After the end of a run is recorded, only an exact count may change it: a node that joined late,
    or nodes that continued after a failure. While the Job is being deleted its pods disappear, and
    that says nothing about the run. After a success, the Job's status shows what keeps a late node
    from starting, too. Its report stays as it is: the Job may be deleted at any moment. Only what
    was changed on a completed node is always added.
    """
    job, counts, run = snapshot.job, found.counts, found.run
    is_frozen = not counts.is_exact
    first = snapshot.first_report
    report_is_final = first is not None and _has_this_end(first.status, status)
    # An abort makes the end of a failed run final, which is on record before the request may go.
    is_aborted_now = run.reason == FailedReason.ABORTED and not job.is_aborted
    is_recorded = job.status.phase == status.phase and report_is_final and not is_aborted_now
    ended = run.has_ended and is_recorded
    has_succeeded = run.outcome == RunOutcome.SUCCEEDED and job.is_true(ConditionType.COMPLETE)
    late: list[tuple[JobReport, ReportStatus]] = []
    if is_frozen:
        late = record_late_starts(snapshot, record_changes(snapshot))
        late = record_rollback(snapshot, late, status, now)
        late = record_returned(snapshot, counts, late)
        late = record_selections(snapshot, counts, late)
    actions: list[Action] = [
        WriteReportStatus(report.name, report.uid, body) for report, body in late
    ]
    if ended and is_frozen:
        generation = counted_generation(snapshot, counts)
        if has_succeeded and found.blocker is not None:
            seen = replace(status, observed_generation=generation)
        else:
            seen = frozen_status(job, status, generation, now)
        return actions if seen == job.status else [*actions, WriteStatus(seen)]
    if run.outcome == RunOutcome.SUCCEEDED and report_is_final and is_frozen:
        # The report is final; only the Job's status has to follow.
        recorded = first.status.nodes if first is not None else None
        return [*actions, WriteStatus(replace(status, nodes=recorded or status.nodes))]
    actions = [
        WriteReportStatus(report.name, report.uid, body)
        for report, body in next_report_statuses(snapshot, counts, status, found.rollout, now)
        if body != report.status
    ]
    if status != job.status:
        actions.append(WriteStatus(status))
    return actions


def _has_this_end(recorded: ReportStatus, status: JobStatus) -> bool:
    """Return whether a report says how the run has ended: the same as the next status of the Job.

    A run that failed, was retried, and has failed again has another end than before.
    """
    if recorded.phase != status.phase:
        return False
    return status.phase != Phase.FAILED or recorded.completion_time == status.completion_time


@dataclass(frozen=True, slots=True)
class _Work:
    """What the actions for the work itself follow from."""

    counts: NodeCounts
    run: RunState
    rollout: RolloutState
    blocker: Blocker | None
    stays_until: datetime | None


def _work_actions(snapshot: Snapshot, work: _Work) -> list[Action]:
    """Return the actions for the work itself, before those for pods: reports, DaemonSet."""
    job, counts, run = snapshot.job, work.counts, work.run
    actions: list[Action] = [
        CreateReport(build_report(job, shard)) for shard in missing_shards(snapshot, counts)
    ]
    actions.extend(
        daemon_set_actions(snapshot, counts, run, work.rollout, work.stays_until)
        or create_again_actions(snapshot, counts, run, work.blocker)
    )
    return actions
