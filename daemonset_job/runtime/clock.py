"""Time as a dependency, so that nothing else has to ask the machine.

API time is a UTC-aware datetime, waits are floats of a monotonic clock in seconds. The two are
never mixed: a wall clock may jump, and two machines never agree on it.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the rest of the program knows about time."""

    def now(self) -> datetime:
        """Return the wall clock as a UTC-aware datetime."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back; its zero means nothing."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """Return the wall clock as a UTC-aware datetime."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return ``time.monotonic()``, which is what asyncio's timers count in too."""
        return time.monotonic()


class LoopClock:
    """A clock that follows the running event loop, so that a faked loop time moves it too."""

    def __init__(self, start: datetime) -> None:
        """Make a clock that reads `start` (UTC-aware) when the loop's own time is zero."""
        self._start = start

    def now(self) -> datetime:
        """Return the start moved on by the loop's time."""
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Return the running loop's time; RuntimeError outside a loop."""
        return asyncio.get_running_loop().time()


class FakeClock:
    """A clock that stands still until it is told otherwise: for tests and simulations."""

    def __init__(self, start: datetime, monotonic: float = 0.0) -> None:
        """Make a clock that reads `start` (UTC-aware) and `monotonic` seconds."""
        self._now = start
        self._monotonic = monotonic

    def now(self) -> datetime:
        """Return the time last set."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds advanced so far, plus the start value."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks on; ValueError for a negative amount."""
        if seconds < 0:
            message = f"a clock cannot be advanced by {seconds} s"
            raise ValueError(message)
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, now: datetime) -> None:
        """Set the wall clock alone, as an operator or NTP would: the monotonic one stays."""
        self._now = now
