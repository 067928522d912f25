"""How the report of a run ends whose Job is deleted, and which reports of past runs are deleted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from daemonset_job.api import names
from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.job_status import Condition
from daemonset_job.api.notifications import DELIVERY_LIMIT_SECONDS
from daemonset_job.api.reasons import CancelledReason, HistoryReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.report_summary import FINAL_REPORT_PHASES
from daemonset_job.api.states import ConditionType, Phase
from daemonset_job.api.times import add_seconds, whole_seconds
from job_controller.core.render.run_history import append_history
from job_controller.core.render.timeline import drop_current_lines

# What is due is sent, or given up and reported, within this time: after the hour for which it is
# tried, or after the start of a controller. A receiver may request a pause of 5 minutes meanwhile.
_SETTLING_SECONDS = 600.0


def closed_status(report: JobReport, now: datetime) -> ReportStatus | None:
    """Return the last status of a report whose Job is deleted, None when it is closed already.

    A report without a phase that another client created was put back from a backup: `kubectl apply`
    writes no status. It is left as it is.
    """
    phase = report.status.phase
    if report.shard or phase in FINAL_REPORT_PHASES or (phase is None and report.is_restored):
        return None
    message = "the Job was deleted before the run had ended"
    cancelled = Condition(
        ConditionType.CANCELLED,
        True,
        CancelledReason.JOB_DELETED,
        message,
        last_transition_time=whole_seconds(now),
    )
    entry = HistoryEntry(whole_seconds(now), HistoryReason.CANCELLED, message)
    closed = append_history(report.status, report.status, [entry])
    return replace(
        closed,
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
    since: datetime | None = None,
) -> tuple[list[JobReport], datetime | None]:
    """Return the reports of one Job name beyond the history limits, and when the next one expires.

    Of the finished runs, the newest `limit` are kept, none longer than `max_age_seconds`. A run
    counts as one however many shards it has. The report of the current Job always stays. That
    of a run of which a receiver is yet to be notified stays until that is over. It takes an hour,
    and the time to give up. `since` is when this controller began to notify receivers.
    """
    runs: dict[str, list[JobReport]] = {}
    for report in reports:
        if report.job_uid != current_uid:
            runs.setdefault(report.job_uid, []).append(report)
    by_age = sorted(runs.values(), key=_began, reverse=True)
    wakes: list[datetime] = []
    expired: list[JobReport] = []
    for run in by_age[limit:]:
        given_up = _given_up_at(run, since)
        if given_up is not None and given_up > now:
            wakes.append(given_up)
        else:
            expired.extend(run)
    for run in by_age[:limit]:
        if max_age_seconds is None:
            break
        end = add_seconds(_ended(run), max_age_seconds)
        end = max(end, _given_up_at(run, since) or end)
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


def _given_up_at(run: list[JobReport], since: datetime | None) -> datetime | None:
    """Return when all that is due of a run is sent or given up, None if nothing is due."""
    due = [
        occurrence.time
        for report in run
        for name in report.status.notifications
        for occurrence in report.status.due_notifications(name)
    ]
    if not due:
        return None
    given_up = add_seconds(max(due), DELIVERY_LIMIT_SECONDS)
    return add_seconds(max(given_up, since or given_up), _SETTLING_SECONDS)


def _ended(run: list[JobReport]) -> datetime:
    """Return when a run ended, or when it was created if its report has no end."""
    ends = [end for report in run if (end := report.status.completion_time)]
    return max(ends, default=_created(run))


def _began(run: list[JobReport]) -> datetime:
    """Return when the Job of a run was created, by the reports' names.

    A report that was put back from a backup has a new creation time, but is of an old run.
    """
    times = [found for report in run if (found := names.report_time(report.name))]
    return min(times, default=_created(run))


def _created(run: list[JobReport]) -> datetime:
    first = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return min((report.created_at or first for report in run), default=first)
