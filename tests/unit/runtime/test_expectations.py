from datetime import UTC, datetime

import pytest

from daemonset_job.runtime.expectations import VersionExpectations
from tests.clocks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2030, 1, 1, tzinfo=UTC))


@pytest.fixture
def water(clock) -> VersionExpectations[str]:
    return VersionExpectations(clock, ttl_seconds=60)


def test_key_without_writes_is_ready(water):
    assert water.is_ready("job")


def test_key_is_ready_when_the_cache_has_come_that_far(water):
    water.wrote("job", "pods", "9")
    water.wrote("job", "daemonsets", "12")
    water.observed("pods", "10")  # as integers: "10" > "9"
    assert not water.is_ready("job")
    assert water.is_ready("other")
    water.observed("daemonsets", "12")
    assert water.is_ready("job")
    assert water.is_ready("job")


def test_only_the_last_write_counts(water):
    water.wrote("job", "pods", "9")
    water.wrote("job", "pods", "20")
    water.wrote("job", "pods", "15")
    water.observed("pods", "19")
    assert not water.is_ready("job")


def test_write_that_was_seen_already_expects_nothing(water):
    water.observed("pods", "10")
    water.observed("pods", "5")
    water.wrote("job", "pods", "10")
    assert water.is_ready("job")


def test_expectation_expires(water, clock):
    water.wrote("job", "pods", "9")
    clock.advance(20)
    water.wrote("job", "daemonsets", "9")
    clock.advance(59)
    assert not water.is_ready("job")
    clock.advance(1)
    assert water.is_ready("job")


def test_dropped_key_expects_nothing(water):
    water.wrote("job", "pods", "9")
    water.forget("job")
    water.forget("job")
    assert water.is_ready("job")


def test_version_that_is_no_integer_expects_nothing(water):
    water.wrote("job", "pods", "abc")
    water.observed("pods", "abc")
    assert water.is_ready("job")
