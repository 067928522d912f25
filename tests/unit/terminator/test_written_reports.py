"""The answers to our own patches, until the cache has caught up."""

import pytest

from terminator.ledger.written_reports import WRITTEN_SECONDS, WrittenReports
from tests.unit.terminator.builders import done, make_report

CACHED = make_report(resource_version="5")
ANSWER = make_report({"a": done("a")}, resource_version="7")


@pytest.fixture
def written():
    reports = WrittenReports()
    reports.add(CACHED, ANSWER, 0.0)
    return reports


def test_an_answer_takes_precedence_over_an_older_report(written):
    assert written.newest([CACHED, make_report(shard=1)], 1.0) == [ANSWER, make_report(shard=1)]
    assert written


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({"resource_version": "7"}, 1.0),
        ({"resource_version": "8"}, 1.0),
        ({"resource_version": "5", "uid": "another"}, 1.0),
        ({"resource_version": "4"}, 1.0),  # etcd was restored
        ({"resource_version": "5"}, WRITTEN_SECONDS),
    ],
)
def test_an_answer_is_dropped_for_a_report_that_counts(written, changes, now):
    cached = make_report(**changes)
    assert written.newest([cached], now) == [cached]
    assert not written


def test_a_second_answer_is_compared_with_the_report_before_the_first(written):
    written.add(ANSWER, make_report(resource_version="9"), 2.0)
    assert written.newest([CACHED], 3.0)[0].resource_version == "9"


def test_a_report_that_is_not_cached_keeps_its_answer(written):
    assert written.newest([], 1.0) == []
    assert written
