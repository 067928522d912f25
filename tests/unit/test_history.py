"""Which reports of the past have their tries. Not here: which of them history has room for."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.kube.client.errors import Forbidden, Unavailable
from job_controller.history import (
    EXCESS_AT_ONCE,
    EXCESS_SECONDS,
    HISTORY_RETRY_SECONDS,
    History,
)
from tests.clocks import FakeClock

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def report(number, phase="Succeeded", job="job"):
    """Return the report of the run that is the older the smaller its number is."""
    return JobReport(
        "default",
        f"r{number}",
        f"r{number}",
        "1",
        job,
        f"run-{number}",
        status=ReportStatus(phase=phase or None),
        created_at=NOW + timedelta(minutes=number),
    )


class Reports:
    """The reports of a namespace, and the API server for them."""

    def __init__(self, *reports, refused=()):
        self.kept = {each.name: each for each in reports}
        self.refused = set(refused)
        self.tried = []
        self.error = Forbidden("no", status=403, reason="Forbidden")

    def _change(self, each):
        self.tried.append(each.name)
        if each.name in self.refused:
            raise self.error

    async def write_status(self, _key, each, status):
        self._change(each)
        self.kept[each.name] = JobReport(
            "default", each.name, each.uid, "2", each.job_name, each.job_uid, status=status
        )

    async def delete(self, each, why):
        assert why
        self._change(each)
        del self.kept[each.name]


def history(reports, clock, **settings):
    """Return a function that makes a pass over the reports, whose Jobs are gone."""
    kept = {"history_limit": 10, "history_max_age_seconds": None, "history_namespace_limit": None}
    shell = SimpleNamespace(clock=clock, settings=lambda: SimpleNamespace(**kept | settings))

    async def find_job(_key):
        return None

    caches = SimpleNamespace(
        reports_of=lambda key: [r for r in reports.kept.values() if r.job_name == key[1]],
        past_reports=lambda _namespace: list(reports.kept.values()),
        count_reports=lambda _namespace: len(reports.kept),
    )
    made = History(shell, SimpleNamespace(caches=caches, find_job=find_job), reports)

    def keep(name="job"):
        reports.tried.clear()
        return asyncio.run(made.close_and_prune(("default", name), None))

    return keep


def test_reports_that_cannot_be_deleted_keep_none_of_their_run_name_from_it():
    clock = FakeClock(NOW)
    reports = Reports(*(report(number) for number in range(5)), refused=["r1", "r2"])
    keep = history(reports, clock, history_limit=1)
    assert keep() == HISTORY_RETRY_SECONDS
    assert set(reports.tried) == {"r0", "r1", "r2", "r3"}
    assert reports.kept.keys() == {"r1", "r2", "r4"}
    # They are not tried by each pass.
    assert keep() == HISTORY_RETRY_SECONDS
    assert reports.tried == []
    reports.refused.clear()
    clock.advance(HISTORY_RETRY_SECONDS)
    assert keep() is None
    assert reports.kept.keys() == {"r4"}


def test_a_report_that_cannot_be_closed_keeps_no_other_from_it():
    reports = Reports(report(0, ""), report(1, "Running"), refused=["r0"])
    keep = history(reports, FakeClock(NOW))
    assert keep() == HISTORY_RETRY_SECONDS
    assert [each.status.phase for each in reports.kept.values()] == [None, "Cancelled"]


def test_a_report_that_cannot_be_closed_can_be_deleted():
    reports = Reports(report(0, ""))
    attempts = [reports.error, None]

    def change(each):
        reports.tried.append(each.name)
        if error := attempts.pop(0):
            raise error

    reports._change = change
    assert history(reports, FakeClock(NOW), history_limit=0)() == HISTORY_RETRY_SECONDS
    assert reports.kept == {}


def test_excess_reports_that_cannot_be_deleted_use_up_no_try_of_others():
    stuck = EXCESS_AT_ONCE + 5
    count = stuck + EXCESS_AT_ONCE + 7
    clock = FakeClock(NOW)
    reports = Reports(
        *(report(number, job=f"job-{number}") for number in range(count)),
        refused=[f"r{number}" for number in range(stuck)],
    )
    keep = history(reports, clock, history_namespace_limit=5)
    waits = [keep("any") for _ in range(3)]
    assert waits == [EXCESS_SECONDS, EXCESS_SECONDS, HISTORY_RETRY_SECONDS]
    # Those that are stuck are among those that are too many: none goes in their stead.
    assert len(reports.kept) == stuck + 5
    assert keep("any") == HISTORY_RETRY_SECONDS
    assert reports.tried == []
    reports.refused.clear()
    clock.advance(HISTORY_RETRY_SECONDS)
    assert [keep("any") for _ in range(2)] == [EXCESS_SECONDS, None]
    assert len(reports.kept) == 5


def test_however_many_are_refused_each_other_one_has_its_try():
    refused, count = 700, 720
    reports = Reports(
        *(report(number) for number in range(count)),
        refused=[f"r{number}" for number in range(refused)],
    )
    clock = FakeClock(NOW)
    keep = history(reports, clock, history_namespace_limit=0)
    for _ in range(60):
        clock.advance(keep("any") or 0.0)
    assert len(reports.kept) == refused


def test_what_may_be_taken_later_is_raised():
    reports = Reports(report(0), refused=["r0"])
    reports.error = Unavailable("no")
    with pytest.raises(Unavailable):
        history(reports, FakeClock(NOW), history_limit=0)()


def test_a_refused_report_of_one_name_wakes_no_job_of_another():
    reports = Reports(report(0), report(1, job="other"), refused=["r0"])
    keep = history(reports, FakeClock(NOW), history_limit=0)
    assert keep("job") == HISTORY_RETRY_SECONDS
    assert keep("other") is None
