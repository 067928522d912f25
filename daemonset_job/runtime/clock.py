"""Time as a dependency, so that nothing else has to ask the machine.

API time is a UTC-aware datetime, waits are floats of a monotonic clock in seconds. The two are
never mixed: a wall clock may jump, and two machines never agree on it.
"""

import time
from datetime import UTC, datetime
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
