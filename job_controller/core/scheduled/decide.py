"""The decision about a ScheduledJob: what to delete, what to start, what to write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from daemonset_job.api.job_status import Condition
from daemonset_job.api.schedule_reasons import ScheduleEventReason, SchedulingReason
from daemonset_job.api.scheduled_job import (
    SCHEDULING,
    ActiveRun,
    ConcurrencyPolicy,
    ScheduledJob,
    ScheduleStatus,
)
from daemonset_job.api.states import Phase
from daemonset_job.api.times import add_seconds, format_time, whole_seconds
from job_controller.core.scheduled.snapshot import (
    DeleteRun,
    Run,
    ScheduleEvent,
    SchedulePlan,
    ScheduleSnapshot,
    StartResult,
    StartRun,
)
from job_controller.core.scheduled.starts import (
    Starts,
    find_starts,
    run_name,
    schedule_problem,
    schedule_text,
)
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line

# Runs of one ScheduledJob that have not ended. Each has a pod on each node.
ACTIVE_LIMIT = 50
# How many of them the status lists: by hand there may be more Jobs that it owns.
LISTED_LIMIT = 100
# One reconcile deletes at most this many Jobs, so that others have their turn.
DELETIONS_AT_ONCE = 20
# The longest time until the clock is looked at again: it may have been set.
LONGEST_WAIT_SECONDS = 600.0
REFUSED_SECONDS = 30.0
# After the end of a run its results may still be read for a time (terminator.deleter: 15 s).
READ_SECONDS = 20.0
# The terminator deletes a completed Job within that time, or has a reason for which it stays.
DELETED_SECONDS = 900.0
# A start is missed when its deadline has passed, and not at that moment.
_AFTER_DEADLINE_SECONDS = 1.0

_Found = tuple[SchedulingReason, str]
_WARNINGS = frozenset(
    {
        SchedulingReason.INVALID_SCHEDULE,
        SchedulingReason.JOB_REFUSED,
        SchedulingReason.JOB_NAME_TAKEN,
        SchedulingReason.START_MISSED,
        SchedulingReason.TOO_MANY_RUNS,
    }
)
_WAITS = frozenset({SchedulingReason.WAITING_FOR_RUN, SchedulingReason.TOO_MANY_RUNS})
_WORKS = frozenset(
    {
        SchedulingReason.SCHEDULED,
        SchedulingReason.WAITING_FOR_RUN,
        SchedulingReason.START_MISSED,
        SchedulingReason.JOB_NAME_TAKEN,
    }
)


def decide_schedule(snapshot: ScheduleSnapshot, now: datetime) -> SchedulePlan:
    """Return what to do for one ScheduledJob. Pure: the same snapshot and time give the same plan.

    A start is done before it is written that it was. A crash in between does no harm: the Job has
    the start in its name, and the run's report outlives it.
    """
    scheduled = snapshot.scheduled
    if scheduled.is_terminating:
        return SchedulePlan(status=scheduled.status)
    scheduled = _with_schedule(scheduled, now)
    snapshot = replace(snapshot, scheduled=scheduled)
    if problem := schedule_problem(scheduled):
        return _finish(snapshot, Starts(), (SchedulingReason.INVALID_SCHEDULE, problem), now)
    starts = _with_done(snapshot, find_starts(scheduled, now))
    if snapshot.tried is not None:
        return _after_start(snapshot, starts, now)
    if (held := _hold(snapshot)) is not None:
        return _finish(_with_record(snapshot, starts), starts, held, now)
    found = _wait(snapshot, starts)
    if found is not None or starts.due is None:
        return _finish(snapshot, starts, found or _left_out(scheduled) or _scheduled(), now)
    deletions = tuple(
        DeleteRun(run.name, run.uid, run.resource_version, is_replaced=True)
        for run in _active(snapshot.runs)
        if scheduled.spec.concurrency_policy == ConcurrencyPolicy.REPLACE
        and run.name != run_name(scheduled.name, starts.due)
        and not run.is_being_deleted
    )
    return SchedulePlan(
        deletions=deletions,
        start=StartRun(starts.due, run_name(scheduled.name, starts.due)),
        status=scheduled.status,
        events=tuple(
            ScheduleEvent(
                is_warning=False,
                reason=ScheduleEventReason.RUN_REPLACED,
                message=f"deleted Job {each.name}, which had not ended: the next start is due",
            )
            for each in deletions
        ),
    )


def _with_schedule(scheduled: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return the ScheduledJob with a status that says since when it has this schedule.

    Starts of a changed schedule that would have been before the change are left out: the newest
    would come at once, in the middle of a day. A controller that was away sees the change later
    than it was.
    """
    text, status = schedule_text(scheduled), scheduled.status
    if status.schedule == text:
        return scheduled
    since = min(_changed_at(scheduled, now), now)
    changed = replace(status, schedule=text, schedule_time=whole_seconds(since))
    return replace(scheduled, status=changed)


def _changed_at(scheduled: ScheduledJob, now: datetime) -> datetime:
    """Return since when the spec has its schedule, which the status does not have.

    Before the first record, any change of the spec may have been one of the schedule. Without a
    change of the spec, a later time of its fields is of labels. An earlier one than the creation is
    of another object, from which a client has copied it.
    """
    if scheduled.status.schedule:
        return scheduled.spec_time or now
    written = scheduled.spec_time if scheduled.generation > 1 else None
    times = (scheduled.created_at, written)
    return max((each for each in times if each is not None), default=now)


def _with_done(snapshot: ScheduleSnapshot, starts: Starts) -> Starts:
    """Return the starts, without a missed one whose Job exists: only the status has to follow."""
    if starts.missed is None or not _exists(snapshot, starts.missed):
        return starts
    return Starts(due=starts.missed, next=starts.next)


def _exists(snapshot: ScheduleSnapshot, moment: datetime) -> bool:
    """Return whether the Job of a start exists."""
    name = run_name(snapshot.scheduled.name, moment)
    return any(run.name == name for run in snapshot.runs)


def _with_record(snapshot: ScheduleSnapshot, starts: Starts) -> ScheduleSnapshot:
    """Return the snapshot with the newest start in its status, if the Job of that one exists.

    Nothing is started while starts are held. But a start that was done and not recorded would be
    done again afterwards, if its Job and its report are gone by then.
    """
    if starts.due is None or not _exists(snapshot, starts.due):
        return snapshot
    status = replace(snapshot.scheduled.status, last_schedule_time=starts.due)
    return replace(snapshot, scheduled=replace(snapshot.scheduled, status=status))


def _hold(snapshot: ScheduleSnapshot) -> _Found | None:
    """Return what keeps all starts back, None for nothing."""
    if snapshot.stop_message:
        return SchedulingReason.CLUSTER_STOPPED, snapshot.stop_message
    if snapshot.scheduled.spec.suspend:
        words = "spec.suspend is true: no run starts; a run that has started goes on"
        return SchedulingReason.SUSPENDED, words
    return None


def _wait(snapshot: ScheduleSnapshot, starts: Starts) -> _Found | None:
    """Return why the newest start was missed, or waits; None for neither."""
    spec, active = snapshot.scheduled.spec, _active(snapshot.runs)
    if starts.due is None:
        return _missed(starts.missed, snapshot.scheduled) if starts.missed else None
    if _exists(snapshot, starts.due):
        return None  # it is started: only the status has to follow
    due = format_time(starts.due)
    undone = next((run.name for run in active if run.is_rolling_back), "")
    if undone and spec.concurrency_policy == ConcurrencyPolicy.REPLACE:
        words = f"the start at {due} waits until Job {undone} is rolled back"
        return SchedulingReason.WAITING_FOR_RUN, words
    if active and spec.concurrency_policy == ConcurrencyPolicy.FORBID:
        words = f"the start at {due} waits until Job {active[0].name} has ended"
        return SchedulingReason.WAITING_FOR_RUN, words
    if len(active) >= ACTIVE_LIMIT and spec.concurrency_policy == ConcurrencyPolicy.ALLOW:
        words = (
            f"the start at {due} waits: {len(active)} runs have not ended; set "
            "spec.concurrencyPolicy to Forbid or Replace, or find out why they do not end"
        )
        return SchedulingReason.TOO_MANY_RUNS, words
    return None


def _left_out(scheduled: ScheduledJob) -> _Found | None:
    """Return that the last start was left out because of its name, until the next one is done."""
    old = scheduled.status.scheduling
    if old is None or old.reason != SchedulingReason.JOB_NAME_TAKEN:
        return None
    return SchedulingReason.JOB_NAME_TAKEN, old.message


def _scheduled() -> _Found:
    return SchedulingReason.SCHEDULED, "runs start as scheduled"


def _missed(moment: datetime, scheduled: ScheduledJob) -> _Found:
    words = (
        f"the start at {format_time(moment)} was missed: it was more than "
        f"{scheduled.spec.starting_deadline_seconds} s ago (spec.startingDeadlineSeconds) when it "
        "could be done; the next one comes as scheduled"
    )
    return SchedulingReason.START_MISSED, words


def _after_start(snapshot: ScheduleSnapshot, starts: Starts, now: datetime) -> SchedulePlan:
    """Return the plan that records what became of a start."""
    tried = snapshot.tried
    assert tried is not None
    scheduled = snapshot.scheduled
    name, when = run_name(scheduled.name, tried.moment), format_time(tried.moment)
    if tried.result == StartResult.REFUSED:
        refusal = single_line(tried.message, REFUSAL_LIMIT)
        words = f"the API server refuses Job {name} for the start at {when}: {refusal}"
        return _finish(snapshot, starts, (SchedulingReason.JOB_REFUSED, words), now)
    before = scheduled.status.last_schedule_time
    moment = max(tried.moment, before) if before is not None else tried.moment
    status = replace(scheduled.status, last_schedule_time=moment)
    snapshot = replace(snapshot, scheduled=replace(scheduled, status=status))
    if tried.result == StartResult.NAME_TAKEN:
        words = (
            f"the start at {when} was left out: a Job {name} that is not of this ScheduledJob "
            "exists; delete or rename it"
        )
        return _finish(snapshot, starts, (SchedulingReason.JOB_NAME_TAKEN, words), now)
    plan = _finish(snapshot, starts, _scheduled(), now)
    if tried.result == StartResult.WAS_STARTED:
        return plan
    words = f"created Job {name} for the start at {when}"
    event = ScheduleEvent(is_warning=False, reason=ScheduleEventReason.RUN_STARTED, message=words)
    return replace(plan, events=(event, *plan.events))


def _finish(
    snapshot: ScheduleSnapshot, starts: Starts, found: _Found, now: datetime
) -> SchedulePlan:
    """Return the plan that starts nothing: the status, old Jobs, and when to look again."""
    scheduled, (reason, message) = snapshot.scheduled, found
    old = scheduled.status.scheduling
    is_new = old is None or (old.reason, old.message) != (str(reason), message)
    waits = [LONGEST_WAIT_SECONDS]
    if starts.next is not None:
        waits.append(max((starts.next - now).total_seconds(), 0.0))
    if reason == SchedulingReason.JOB_REFUSED:
        waits.append(REFUSED_SECONDS)
    limit = scheduled.spec.starting_deadline_seconds
    if starts.due is not None and limit is not None and reason in _WAITS:
        # From then on the start is missed, and the status says so.
        waits.append((starts.due - now).total_seconds() + limit + _AFTER_DEADLINE_SECONDS)
    deletions, read_at = _excess(snapshot, now)
    if read_at is not None:
        waits.append((read_at - now).total_seconds())
    event = ScheduleEvent(is_warning=reason in _WARNINGS, reason=reason, message=message)
    # The first condition says nothing new.
    is_reported = is_new and (old is not None or reason != SchedulingReason.SCHEDULED)
    return SchedulePlan(
        deletions=deletions,
        status=_next_status(snapshot, starts, found, now),
        events=(event,) if is_reported else (),
        requeue_after=min(waits),
    )


def _next_status(
    snapshot: ScheduleSnapshot, starts: Starts, found: _Found, now: datetime
) -> ScheduleStatus:
    scheduled, (reason, message) = snapshot.scheduled, found
    status, old = scheduled.status, scheduled.status.scheduling
    is_working = reason in _WORKS
    is_flipped = old is None or old.status is not is_working
    condition = Condition(
        SCHEDULING,
        is_working,
        reason,
        message,
        scheduled.generation,
        whole_seconds(now) if is_flipped or old is None else old.last_transition_time,
    )
    is_held = reason in {SchedulingReason.SUSPENDED, SchedulingReason.CLUSTER_STOPPED}
    ended = [run.ended_at for run in snapshot.runs if run.phase == Phase.SUCCEEDED]
    times = (status.last_successful_time, *snapshot.successes, *ended)
    return replace(
        status,
        active=tuple(ActiveRun(run.name, run.uid) for run in _active(snapshot.runs)[:LISTED_LIMIT]),
        observed_generation=scheduled.generation,
        last_successful_time=max((each for each in times if each is not None), default=None),
        next_schedule_time=None if is_held else starts.next,
        conditions=(condition,),
    )


def _active(runs: Iterable[Run]) -> list[Run]:
    return sorted((run for run in runs if not run.has_ended), key=lambda run: run.name)


def _excess(
    snapshot: ScheduleSnapshot, now: datetime
) -> tuple[tuple[DeleteRun, ...], datetime | None]:
    """Return the ended Jobs beyond the limits of the history, and when the next one may go.

    The oldest come first. Those of which a person wants more are left out, and do not count. Nor do
    those that delete themselves: the terminator counts their nodes first, and reads their results.
    One that is still there after DELETED_SECONDS stays for a reason, such as a node that failed.
    """
    spec = snapshot.scheduled.spec
    limits = ((Phase.SUCCEEDED, spec.successful_limit), (Phase.FAILED, spec.failed_limit))
    found: list[DeleteRun] = []
    read_at: list[datetime] = []
    for phase, limit in limits:
        ended = sorted(
            (run.ended_at, run.name, run.uid, run.resource_version)
            for run in snapshot.runs
            if run.ended_at is not None
            and run.phase == phase
            and not run.is_due_again
            and not (run.deletes_itself and now < add_seconds(run.ended_at, DELETED_SECONDS))
        )
        for ended_at, name, uid, version in ended[: max(len(ended) - limit, 0)]:
            if now >= (may_go_at := add_seconds(ended_at, READ_SECONDS)):
                found.append(DeleteRun(name, uid, version))
            else:
                read_at.append(may_go_at)
    return tuple(found[:DELETIONS_AT_ONCE]), min(read_at, default=None)
