"""What a stream may read, and when the next one opens."""

import pytest

from terminator.logs.read_budget import BUDGET_BYTES, ReadBudget
from terminator.logs.stream_state import (
    REOPEN_SECONDS,
    REOPEN_UNUSED_SECONDS,
    SHORT_STREAM_SECONDS,
    STREAM_BYTES,
    STREAM_BYTES_PER_SECOND,
    StreamState,
)


def opened(now=0.0):
    stream = StreamState()
    assert stream.may_open(now)
    stream.opened(now)
    return stream


def test_a_stream_has_bytes_at_once_and_more_for_each_second():
    stream = opened()
    assert stream.received(STREAM_BYTES, 0.0, None, is_new=True)
    assert stream.received(10 * STREAM_BYTES_PER_SECOND, 10.0, None, is_new=True)
    assert not stream.received(1, 10.0, None, is_new=True)


def test_bytes_beyond_its_own_budget_are_taken_from_the_shared_one():
    stream, budget = opened(), ReadBudget().of("a")
    assert stream.received(STREAM_BYTES + 100, 0.0, budget, is_new=True)
    assert not budget.take(BUDGET_BYTES - 99, 0.0)
    assert budget.take(BUDGET_BYTES - 100, 0.0)
    assert not stream.received(1, 0.0, budget, is_new=True)


def test_a_stream_that_delivered_lines_is_followed_by_the_next_at_once():
    stream = opened()
    stream.received(10, 1.0, None, is_new=True)
    stream.ended(SHORT_STREAM_SECONDS, failed=False)
    assert stream.may_open(SHORT_STREAM_SECONDS)


@pytest.mark.parametrize(
    ("failed", "is_new", "lasted"), [(True, True, 60.0), (False, False, 60.0), (False, True, 0.5)]
)
def test_the_next_stream_waits_after_one_without_use(failed, is_new, lasted):
    stream = opened()
    stream.received(10, lasted, None, is_new=is_new)
    stream.ended(lasted, failed=failed)
    assert not stream.may_open(lasted)
    assert stream.may_open(lasted + REOPEN_SECONDS[1])


def test_streams_that_end_at_once_without_use_are_opened_ever_more_slowly():
    stream, now = StreamState(), 0.0
    for _ in range(20):
        stream.opened(now)
        assert not stream.ended(now + 0.05, failed=False)
        now += REOPEN_UNUSED_SECONDS + 0.05
        assert stream.may_open(now)
    assert not stream.may_open(now - 0.1)
    # One of use makes the next one open at once.
    stream.opened(now)
    stream.received(10, now + 2, None, is_new=True)
    assert stream.ended(now + 2, failed=False)
    assert stream.may_open(now + 2)
