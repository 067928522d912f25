"""The history of a run: what users requested, and how the run changed, in order of time.

It is derived from the report itself: from how its status differs from the next one. Both are
written in one patch. So a crash neither loses an entry nor repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.fold_names import fold
from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.reasons import FailedReason, HistoryReason, SuspendedReason
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.rollback import is_rollback_requested
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import FINAL_PHASES, ConditionType, Phase
from daemonset_job.api.times import whole_seconds
from job_controller.core.text.sanitize import single_line

# A history that becomes longer keeps its beginning and its end.
FIRST_KEPT: Final = 10
NEWEST_KEPT: Final = 40
_MESSAGE_LIMIT: Final = 400
_CLIENT_LIMIT: Final = 128
# Of a retry request, which has no bound that a line could show.
_REQUEST_LIMIT: Final = 60
# Bytes of the names of nodes in a message.
_NAMES_LIMIT: Final = 200


def with_history(
    before: ReportStatus, after: ReportStatus, job: Job, status: JobStatus, now: datetime
) -> ReportStatus:
    """Return the summary `after` with the history of `before`, and what it adds to that.

    `status` is the Job's next status, from which `after` was made; `job` has the present one.
    """
    entries = _new_entries(before, job, status, now)
    retry, rerun = status.observed_retry, status.observed_rerun
    after = replace(after, observed_retry=retry, observed_rerun=rerun)
    return append_history(after, before, entries)


def append_history(
    status: ReportStatus, before: ReportStatus, entries: list[HistoryEntry]
) -> ReportStatus:
    """Return the status with the history of `before`, followed by the new entries.

    No entry is older than the one before it, nor than the start: a new leader's clock may be behind
    that of the old.
    """
    history = list(before.history)
    start = status.start_time or before.start_time
    for entry in entries:
        history.append(
            replace(
                entry,
                time=_time_of(entry, history, start),
                message=single_line(entry.message, _MESSAGE_LIMIT),
                by=single_line(entry.by, _CLIENT_LIMIT),
            )
        )
    excess = max(len(history) - FIRST_KEPT - NEWEST_KEPT, 0)
    del history[FIRST_KEPT : FIRST_KEPT + excess]
    return replace(status, history=tuple(history), omitted_history=before.omitted_history + excess)


def _time_of(
    entry: HistoryEntry, history: list[HistoryEntry], start: datetime | None
) -> datetime | None:
    """Return the time of an entry: not before that of the last one, nor that of its like.

    To a receiver of notifications, two pauses of one time are the same.
    """
    last = history[-1].time if history else start
    if entry.time is None or last is None:
        return entry.time
    time = max(entry.time, last)
    is_known = any((each.reason, each.time) == (entry.reason, time) for each in history)
    return time + timedelta(seconds=1) if is_known else time


def _new_entries(
    before: ReportStatus, job: Job, status: JobStatus, now: datetime
) -> list[HistoryEntry]:
    """Return what happened between a report's status and the Job's next one."""
    moment = whole_seconds(now)
    # A report that does not name a generation is new, or of version 0.1.0: it shows no request.
    is_known = before.job_generation is not None
    found: list[HistoryEntry] = []
    if is_known and status.observed_retry != before.observed_retry:
        request = single_line(status.observed_retry, _REQUEST_LIMIT)
        words = f"retry requested: {request}"
        found.append(HistoryEntry(moment, HistoryReason.RETRY_REQUESTED, words, job.retry_manager))
    if is_known:
        found += _rerun_entries(before, job, status, moment)
    found += _earlier_failure(before, job)
    is_changed = is_known and status.observed_generation > (before.job_generation or 0)
    client = job.spec_manager if is_changed else ""
    if is_changed:
        words = f"spec changed (generation {status.observed_generation})"
        found.append(HistoryEntry(moment, HistoryReason.SPEC_CHANGED, words, client))
    found += _rollout_entries(before.rollout, status, job, moment)
    found += _altered_entries(before, job, status, moment)
    followed = replace(before, history=(*before.history, *found))
    found += _phase_entries(followed, job, status, moment, client)
    found += rollback_entries(before, job, status, moment)
    return found


def _rerun_entries(
    before: ReportStatus, job: Job, status: JobStatus, moment: datetime
) -> Iterator[HistoryEntry]:
    """Return which nodes a rerun was requested for, once it is acted on.

    A report of an earlier version has no request. Then that in the status is no new one.
    """
    rerun = job.rerun
    known = before.observed_rerun or job.status.observed_rerun
    if status.observed_rerun != rerun.id or rerun.id == known:
        return
    if rerun.characters:
        words = f"{rerun.characters} characters, not followed"
    elif rerun.is_for_all:
        words = "all nodes"
    elif rerun.nodes:
        count = len(rerun.nodes)
        words = f"{count} node{'' if count == 1 else 's'}: {fold(rerun.nodes, limit=_NAMES_LIMIT)}"
    else:
        return
    words = f"rerun requested: {words}"
    yield HistoryEntry(moment, HistoryReason.RERUN_REQUESTED, words, job.rerun_manager)


def _earlier_failure(before: ReportStatus, job: Job) -> Iterator[HistoryEntry]:
    """Return how a start failed that was taken back before this one, for a new report."""
    failed = job.condition(ConditionType.FAILED)
    if failed is None or failed.reason != FailedReason.START_TAKEN_BACK:
        return
    if not any(entry.reason == HistoryReason.START_TAKEN_BACK for entry in before.history):
        time = failed.last_transition_time
        yield HistoryEntry(time, HistoryReason.START_TAKEN_BACK, failed.message)


def _rollout_entries(
    before: RolloutProgress | None, status: JobStatus, job: Job, moment: datetime
) -> Iterator[HistoryEntry]:
    """Return that a person approved a step or promoted the run, and that a step began."""
    after = status.rollout
    if before is None or after is None:
        return
    if after.approved_step > before.approved_step:
        words = f"step {after.approved_step} approved"
        by = job.requests.approved_by
        yield HistoryEntry(moment, HistoryReason.STEP_APPROVED, words, by)
    if after.is_promoted and not before.is_promoted:
        words = "promoted: the remaining soaks and approvals are left out"
        yield HistoryEntry(moment, HistoryReason.PROMOTED, words, job.requests.promoted_by)
    if after.step > before.step:
        words = f"step {after.step} of {after.steps} began"
        if after.is_in_rest:
            more = _has_more_nodes(status)
            others = "the other nodes follow" if more else "no node is left to start"
            words = f"all steps are over: {others}"
        yield HistoryEntry(moment, HistoryReason.STEP_STARTED, words)


def _has_more_nodes(status: JobStatus) -> bool:
    """Return whether nodes of a run may start that have not started yet."""
    totals = status.nodes
    if status.phase == Phase.SUCCEEDED or totals is None:
        return False
    return totals.completed + totals.failed < totals.desired


def _phase_entries(
    before: ReportStatus, job: Job, status: JobStatus, moment: datetime, client: str
) -> Iterator[HistoryEntry]:
    """Return that the run was paused, resumed or opened again, or that it ended."""
    old, new = before.phase, status.phase
    if new == Phase.PAUSED:
        yield from _pause_entries(before, job, status, moment, client)
    if old == Phase.PAUSED and new != Phase.PAUSED and new not in FINAL_PHASES:
        yield HistoryEntry(moment, HistoryReason.RESUMED, "run resumed", client)
    if old == Phase.SUCCEEDED and new not in FINAL_PHASES:
        complete = status.condition(ConditionType.COMPLETE)
        words = complete.message if complete is not None else "nodes were added"
        yield HistoryEntry(moment, HistoryReason.NODES_ADDED, words)
    if new not in FINAL_PHASES:
        return
    type_, reason = _ENDS[new]
    ended = status.condition(type_)
    words = ended.message if ended is not None else ""
    is_aborted = ended is not None and ended.reason == FailedReason.ABORTED
    by = job.requests.aborted_by if is_aborted else ""
    if (old, before.completion_time) != (new, status.completion_time):
        yield HistoryEntry(status.completion_time or moment, reason, words, by)
    elif is_aborted and not (job.is_aborted or _has_abort(before)):
        # The run had failed. The time of its end stays, but no retry revives it any more.
        yield HistoryEntry(moment, reason, words, by)


def _has_abort(report: ReportStatus) -> bool:
    """Return whether the report says already that the run was aborted.

    It is written before the Job's status.
    """
    failed = next((each for each in report.conditions if each.type == ConditionType.FAILED), None)
    return failed is not None and failed.reason == FailedReason.ABORTED


def _pause_entries(
    before: ReportStatus, job: Job, status: JobStatus, moment: datetime, client: str
) -> Iterator[HistoryEntry]:
    """Return why the run is paused, unless the history has it.

    A pause may begin while another one lasts: a node fails, or a step ends, while a person has
    suspended the run. Once he resumes it, it is still paused, and by something else.

    The history of `before` has what was requested just now. An earlier pause that it answers is
    over, also if the next one has the same words.
    """
    suspended = status.condition(ConditionType.SUSPENDED)
    reason = suspended.reason if suspended is not None else ""
    words = suspended.message if suspended is not None else ""
    is_new = before.phase != Phase.PAUSED
    if reason in _ASKING:
        asked = _open_pause(before, _ANSWERS_TO_STEP)
        if is_new or asked is None or asked.reason != HistoryReason.WAITING_FOR_APPROVAL:
            yield HistoryEntry(moment, HistoryReason.WAITING_FOR_APPROVAL, words)
        return
    last = _open_pause(before, _ANSWERS_TO_FAILURE)
    if is_new or (reason in _FAILURES and _has_other_cause(job, reason, last, words)):
        by = client if reason == SuspendedReason.SUSPENDED else ""
        yield HistoryEntry(moment, HistoryReason.PAUSED, words or "paused", by)


def _open_pause(before: ReportStatus, answers: frozenset[str]) -> HistoryEntry | None:
    """Return the last pause in the history, None if there is none, or an answer follows it."""
    ends = (each for each in reversed(before.history) if each.reason in _PAUSES | answers)
    last = next(ends, None)
    return last if last is not None and last.reason in _PAUSES else None


def _has_other_cause(job: Job, reason: str, last: HistoryEntry | None, words: str) -> bool:
    """Return whether the Job's status has another reason for the pause than this one.

    The report is written before the Job's status. After a crash in between, its `last` pause is
    this one.
    """
    known = job.condition(ConditionType.SUSPENDED)
    if known is None or not known.status or known.reason == reason:
        return False
    recorded = last.message if last is not None and last.reason == HistoryReason.PAUSED else ""
    return recorded != single_line(words, _MESSAGE_LIMIT)


def rollback_entries(
    before: ReportStatus, job: Job, status: JobStatus, moment: datetime
) -> Iterator[HistoryEntry]:
    """Return what has happened in the rollback of the run."""
    old, new = before.rollback, status.rollback
    if new is None:
        return
    if old is None and is_rollback_requested(job):
        words = f"rollback requested: {job.requests.rollback}"
        by = job.requests.rollback_by
        yield HistoryEntry(moment, HistoryReason.ROLLBACK_REQUESTED, words, by)
    if new.start_time is not None and (old is None or old.start_time is None):
        words = f"rollback of {new.desired} nodes began"
        yield HistoryEntry(moment, HistoryReason.ROLLBACK_STARTED, words)
    if new.completion_time is not None and (old is None or old.completion_time is None):
        is_over = status.is_true(ConditionType.ROLLED_BACK)
        reason = HistoryReason.ROLLED_BACK if is_over else HistoryReason.ROLLBACK_FAILED
        verb = "ended" if is_over else "failed"
        yield HistoryEntry(moment, reason, f"rollback {verb}: {new.message}")


# Why a run is paused until a person decides on a step.
_ASKING: Final = frozenset(
    {SuspendedReason.WAITING_FOR_APPROVAL, SuspendedReason.CHECK_INCONCLUSIVE}
)
# Why a run is paused until a person has looked at nodes that failed.
_FAILURES: Final = frozenset(
    {SuspendedReason.MAX_FAILED_NODES_EXCEEDED, SuspendedReason.CHECK_FAILED}
)
_PAUSES: Final[frozenset[str]] = frozenset(
    {HistoryReason.PAUSED, HistoryReason.WAITING_FOR_APPROVAL}
)
# What ends a pause for a failure, and one for a step, whether or not another one follows at once.
_ANSWERS_TO_FAILURE: Final[frozenset[str]] = frozenset({HistoryReason.RETRY_REQUESTED})
_ANSWERS_TO_STEP: Final[frozenset[str]] = _ANSWERS_TO_FAILURE | {HistoryReason.STEP_STARTED}
_ENDS: Final = {
    Phase.SUCCEEDED: (ConditionType.COMPLETE, HistoryReason.COMPLETED),
    Phase.FAILED: (ConditionType.FAILED, HistoryReason.FAILED),
}


def _altered_entries(
    before: ReportStatus, job: Job, status: JobStatus, moment: datetime
) -> Iterator[HistoryEntry]:
    """Return that another client changed the DaemonSet, if neither Job nor report says so yet.

    The report is written before the Job's status. After a crash in between only it has the entry.
    """
    altered = status.condition(ConditionType.ALTERED)
    known = job.condition(ConditionType.ALTERED)
    if altered is None or (known is not None and known.message == altered.message):
        return
    words = single_line(altered.message, _MESSAGE_LIMIT)
    recorded = [e for e in before.history if e.reason == HistoryReason.DAEMON_SET_ALTERED]
    if not recorded or recorded[-1].message != words:
        yield HistoryEntry(moment, HistoryReason.DAEMON_SET_ALTERED, words)
