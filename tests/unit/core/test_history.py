"""How long reports are kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.notifications import Delivery
from daemonset_job.api.reasons import HistoryReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import parse_phase
from job_controller.core.history import closed_status, excess_reports, expired_reports
from tests.unit.builders import NOW


def report(uid, minutes_old, shard=0, phase="Succeeded"):
    return JobReport(
        "default",
        f"r-{uid}-{shard}",
        f"ruid-{uid}-{shard}",
        "1",
        "job",
        uid,
        shard,
        status=ReportStatus(phase=parse_phase(phase)),
        created_at=NOW - timedelta(minutes=minutes_old),
    )


def expired(reports, limit=10, age=None, living="", now=NOW, since=None):
    found, wake = expired_reports(
        reports, current_uid=living, limit=limit, max_age_seconds=age, now=now, since=since
    )
    return sorted(r.name for r in found), wake


def test_the_newest_runs_are_kept_with_all_their_shards():
    reports = [report("old", 30), report("old", 30, 1), report("new", 1), report("mid", 10)]
    assert expired(reports, limit=2) == (["r-old-0", "r-old-1"], None)
    assert expired(reports, limit=0)[0] == ["r-mid-0", "r-new-0", "r-old-0", "r-old-1"]


def test_a_run_is_as_old_as_its_name_says_though_it_was_put_back_today():
    def named(time, minutes_old):
        name = f"job-{time}-abcde"
        return replace(report(time, minutes_old), name=name, is_restored=True)

    restored, genuine = named("20250101000000", 0), named("20251231000000", 60)
    assert expired([restored, genuine], limit=1)[0] == [restored.name]
    nonsense = replace(named("20251399000000", 90), name="job-20251399000000-abcde")
    assert expired([nonsense, genuine], limit=1)[0] == [genuine.name]


def test_reports_older_than_the_limit_are_deleted_on_time():
    reports = [report("old", 30), report("new", 1)]
    names, wake = expired(reports, age=600.0)
    assert names == ["r-old-0"]
    assert wake == NOW + timedelta(minutes=9)


def test_a_report_stays_until_its_notification_is_sent_or_given_up():
    ended = NOW - timedelta(minutes=65)
    entry = HistoryEntry(ended, HistoryReason.COMPLETED, "done")
    due = {"ops": Delivery(("Succeeded",))}
    waiting = report("due", 65)
    status = replace(waiting.status, completion_time=ended, history=(entry,), notifications=due)
    waiting = replace(waiting, status=status)
    given_up = NOW + timedelta(minutes=5)
    assert expired([waiting], limit=0) == ([], given_up)
    assert expired([waiting], age=60.0) == ([], given_up)
    later = given_up + timedelta(seconds=1)
    assert expired([waiting], limit=0, now=later)[0] == ["r-due-0"]
    assert expired([waiting], age=60.0, now=later)[0] == ["r-due-0"]
    # A controller that has just begun may find what waited for days.
    assert expired([waiting], limit=0, now=later, since=NOW) == ([], NOW + timedelta(minutes=10))
    sent = replace(due["ops"], event="Succeeded", time=ended)
    status = replace(status, notifications={"ops": sent})
    assert expired([replace(waiting, status=status)], limit=0)[0] == ["r-due-0"]


def test_the_living_jobs_report_always_stays():
    assert expired([report("me", 99)], limit=0, age=1.0, living="me") == ([], None)


def test_a_report_is_closed_once():
    assert closed_status(report("a", 1), NOW) is None
    assert closed_status(report("a", 1, shard=1, phase="Running"), NOW) is None
    closed = closed_status(report("a", 1, phase="Running"), NOW)
    assert (closed.phase, closed.completion_time) == ("Cancelled", NOW)
    (cancelled,) = closed.conditions
    assert (cancelled.type, cancelled.status, cancelled.reason) == ("Cancelled", True, "JobDeleted")
    assert cancelled.last_transition_time == NOW


def test_a_report_that_was_put_back_without_its_status_is_left_as_it_is():
    new = report("a", 1, phase="")
    assert closed_status(new, NOW).phase == "Cancelled"
    assert closed_status(replace(new, is_restored=True), NOW) is None
    running = report("a", 1, phase="Running")
    assert closed_status(replace(running, is_restored=True), NOW).phase == "Cancelled"


def test_the_runs_that_ended_first_are_in_excess():
    def report(name, uid, created, ended=None):
        status = ReportStatus(completion_time=ended)
        return JobReport("default", name, name, "1", "job", uid, status=status, created_at=created)

    hours = [NOW + timedelta(hours=n) for n in range(6)]
    long, long_too = report("a", "a", hours[0], hours[5]), report("a-1", "a", hours[0])
    short, cancelled = report("b", "b", hours[1], hours[2]), report("c", "c", hours[3])
    found = [long_too, cancelled, short, long]
    assert excess_reports(found, 0) == []
    assert excess_reports(found, 1) == [short]
    assert excess_reports(found, 2) == [short, cancelled]
    assert excess_reports(found, 3) == [short, cancelled, long_too, long]


def test_the_age_of_a_run_counts_from_its_end():
    ended = ReportStatus(phase="Succeeded", completion_time=NOW)
    begun = NOW - timedelta(days=40)
    run = JobReport("default", "a", "a", "1", "job", "a", status=ended, created_at=begun)
    found = expired_reports([run], current_uid="", limit=10, max_age_seconds=60.0, now=NOW)
    assert found == ([], NOW + timedelta(seconds=60))


def test_a_run_that_ended_in_the_last_year_of_all_is_kept():
    ended = ReportStatus(phase="Succeeded", completion_time=datetime.max.replace(tzinfo=UTC))
    run = JobReport("default", "a", "a", "1", "job", "a", status=ended)
    found, _ = expired_reports([run], current_uid="", limit=10, max_age_seconds=60.0, now=NOW)
    assert found == []
