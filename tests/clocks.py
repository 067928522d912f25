"""Clocks for tests: one that follows a faked loop time, one that only a test moves."""

import asyncio
from datetime import datetime, timedelta


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
    """A clock that only a test moves: for tests and simulations."""

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
