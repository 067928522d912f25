import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from daemonset_job.runtime.backoff import Backoff
from daemonset_job.runtime.clock import SystemClock
from tests.clocks import FakeClock, LoopClock

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_system_clock_is_aware_and_monotonic():
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.monotonic() - time.monotonic()) < 5


@pytest.mark.looptime
async def test_loop_clock_follows_the_loop():
    clock = LoopClock(START)
    await asyncio.sleep(90)
    assert clock.now() == START + timedelta(seconds=90)
    assert clock.monotonic() == 90


def test_fake_clock_moves_only_when_a_test_moves_it():
    clock = FakeClock(START, monotonic=7)
    clock.advance(3)
    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=3), 10)
    clock.set(START)
    assert (clock.now(), clock.monotonic()) == (START, 10)
    with pytest.raises(ValueError, match="cannot be advanced"):
        clock.advance(-1)


def test_backoff_doubles_up_to_its_maximum_and_resets():
    backoff = Backoff(1, 5, rng=lambda: 0.0)
    assert [backoff.next_seconds() for _ in range(5)] == [1, 2, 4, 5, 5]
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.next_seconds() == 1


def test_backoff_jitter_only_shortens():
    backoff = Backoff(1, 5, jitter=0.5, rng=lambda: 0.999)
    assert [round(backoff.next_seconds(), 2) for _ in range(4)] == [0.5, 1.0, 2.0, 2.5]
