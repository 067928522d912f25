import math

import pytest

from daemonset_job.runtime.debounce import Debouncer


@pytest.fixture
def debouncer() -> Debouncer[str]:
    return Debouncer(min_seconds=0.25, max_seconds=2.0, factor=20.0)


def test_a_key_without_a_duration_has_the_shortest_pause_and_nothing_left_of_it(debouncer):
    assert debouncer.pause_seconds("job") == 0.25
    assert debouncer.remaining_seconds("job", now=0.0) == 0.0


@pytest.mark.parametrize(
    ("duration", "pause"), [(0.0, 0.25), (0.0125, 0.25), (0.05, 1.0), (0.1, 2.0), (9.0, 2.0)]
)
def test_the_pause_is_a_multiple_of_the_last_duration_within_the_limits(debouncer, duration, pause):
    debouncer.record("job", duration, now=100.0)
    assert debouncer.pause_seconds("job") == pytest.approx(pause)
    assert debouncer.pause_seconds("other") == 0.25


def test_without_an_upper_limit_the_pause_grows_with_the_duration():
    debouncer = Debouncer(min_seconds=0.1, max_seconds=math.inf, factor=20.0)
    debouncer.record("job", 9.0, now=0.0)
    assert debouncer.pause_seconds("job") == 180.0


def test_what_is_left_of_the_pause_counts_from_the_end_of_the_last_reconcile(debouncer):
    debouncer.record("job", 0.05, now=100.0)
    assert debouncer.remaining_seconds("job", now=100.0) == pytest.approx(1.0)
    assert debouncer.remaining_seconds("job", now=100.75) == pytest.approx(0.25)
    assert debouncer.remaining_seconds("job", now=101.5) == 0.0
    assert debouncer.remaining_seconds("other", now=100.0) == 0.0


def test_the_last_duration_counts(debouncer):
    debouncer.record("job", 9.0, now=100.0)
    debouncer.record("job", 0.0, now=103.0)
    assert debouncer.pause_seconds("job") == 0.25


def test_nothing_is_kept_of_a_key_that_is_forgotten(debouncer):
    debouncer.record("job", 9.0, now=100.0)
    debouncer.forget("job")
    debouncer.forget("never recorded")
    assert debouncer.remaining_seconds("job", now=100.0) == 0.0
    assert len(debouncer) == 0
