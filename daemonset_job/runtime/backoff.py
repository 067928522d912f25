"""Exponential delays with jitter, for retries."""

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from `initial_seconds` up to `maximum_seconds` until reset.

    `jitter` takes away up to that share of each delay at random, so that many clients that lost
    the same server do not come back in step. The maximum is never exceeded.
    """

    def __init__(
        self,
        initial_seconds: float,
        maximum_seconds: float,
        *,
        jitter: float = 0.5,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Make a backoff in its initial state; `rng` returns floats in [0, 1)."""
        self._initial = initial_seconds
        self._maximum = maximum_seconds
        self._jitter = jitter
        self._rng = rng
        self._failures = 0

    @property
    def failures(self) -> int:
        """How many delays were handed out since the last reset."""
        return self._failures

    def next_seconds(self) -> float:
        """Return the next delay in seconds and count one more failure."""
        delay = exponential_seconds(self._failures, self._initial, self._maximum)
        self._failures += 1
        return delay * (1.0 - self._jitter * self._rng())

    def reset(self) -> None:
        """Start again from the initial delay."""
        self._failures = 0


def exponential_seconds(failures: int, initial: float, maximum: float) -> float:
    """Return ``initial * 2**failures`` capped at `maximum`, without overflow for any count."""
    # 2**64 times any useful initial delay is past any useful maximum; the float stays finite.
    return min(maximum, initial * 2.0 ** min(failures, 64))
