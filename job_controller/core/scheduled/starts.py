"""Which start of a schedule is due. Each has one name, so that it happens once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from daemonset_job.api.scheduled_job import ScheduledJob
from job_controller.core.cron.cron_schedule import CronSchedule, cron_problem
from job_controller.core.cron.time_zones import time_zone_problem

_MINUTE_SECONDS = 60
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Starts:
    """The newest start that is due, one that is missed, and the next one; None for none each."""

    due: datetime | None = None
    missed: datetime | None = None
    next: datetime | None = None


def schedule_problem(scheduled: ScheduledJob) -> str:
    """Return what is wrong with the schedule or the time zone, with the field; "" for nothing."""
    if problem := cron_problem(scheduled.spec.schedule):
        return f"spec.schedule: {problem}"
    if problem := time_zone_problem(scheduled.spec.time_zone):
        return f"spec.timeZone: {problem}"
    return ""


def schedule_text(scheduled: ScheduledJob) -> str:
    """Return schedule and time zone as one text, by which a change is seen."""
    return f"{scheduled.spec.schedule} {scheduled.spec.time_zone}"


def find_starts(scheduled: ScheduledJob, now: datetime) -> Starts:
    """Return which start is due of a schedule without a mistake.

    Of all starts that nothing was done for, only the newest counts, as for a CronJob. However many
    there are, finding it costs the same.
    """
    spec, status = scheduled.spec, scheduled.status
    schedule = CronSchedule(spec.schedule, spec.time_zone)
    # `schedule_time` is never in the future. The time of the creation may be: the clock of the API
    # server may be ahead of ours.
    beginning = status.schedule_time or scheduled.created_at
    times = (beginning, status.last_schedule_time)
    since = max((each for each in times if each is not None), default=_BEGINNING)
    # A clock that was ahead, and is right again, has left a time that is yet to come.
    following = _next_start(schedule, max(now, since))
    latest = schedule.latest_start(now)
    if latest is None or latest <= since:
        return Starts(next=following)
    limit = spec.starting_deadline_seconds
    # In whole seconds: a timer is never early, so that 0 would leave out each start.
    if limit is not None and now - latest >= timedelta(seconds=limit + 1):
        return Starts(missed=latest, next=following)
    return Starts(due=latest, next=following)


def _next_start(schedule: CronSchedule, moment: datetime) -> datetime | None:
    try:
        return schedule.next_start(moment)
    except OverflowError:
        return None  # after the last year that there is


def run_name(scheduled_name: str, moment: datetime) -> str:
    """Return the name of the Job of a start: `<name>-<minutes since 1970>`, as of a CronJob."""
    return f"{scheduled_name}-{int(moment.timestamp()) // _MINUTE_SECONDS}"


def scheduled_name(job_name: str) -> str:
    """Return the name of the ScheduledJob that a Job of this name may be of, "" for none."""
    name, _, minutes = job_name.rpartition("-")
    return name if minutes.isascii() and minutes.isdigit() else ""
