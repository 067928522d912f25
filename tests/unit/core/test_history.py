"""How long reports are kept."""

from datetime import timedelta

from job_controller.api.report import JobReport
from job_controller.core.report import closed_status, expired_reports
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
        status={"phase": phase},
        created_at=NOW - timedelta(minutes=minutes_old),
    )


def expired(reports, limit=10, age=None, living=""):
    found, wake = expired_reports(
        reports, living_uid=living, limit=limit, max_age_seconds=age, now=NOW
    )
    return sorted(r.name for r in found), wake


def test_the_newest_runs_are_kept_with_all_their_shards():
    reports = [report("old", 30), report("old", 30, 1), report("new", 1), report("mid", 10)]
    assert expired(reports, limit=2) == (["r-old-0", "r-old-1"], None)
    assert expired(reports, limit=0)[0] == ["r-mid-0", "r-new-0", "r-old-0", "r-old-1"]


def test_none_is_kept_longer_than_the_age_and_the_next_moment_is_known():
    reports = [report("old", 30), report("new", 1)]
    names, wake = expired(reports, age=600.0)
    assert names == ["r-old-0"]
    assert wake == NOW + timedelta(minutes=9)


def test_the_living_jobs_report_always_stays():
    assert expired([report("me", 99)], limit=0, age=1.0, living="me") == ([], None)


def test_a_report_is_closed_once():
    assert closed_status(report("a", 1)) is None
    assert closed_status(report("a", 1, shard=1, phase="")) is None
    closed = closed_status(report("a", 1, phase="Running"))
    assert closed["phase"] == "Cancelled"
