"""Delays by which bursts of changes are reconciled together instead of one by one."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# After a reconcile of t seconds the next one waits 20 t. So the reconciles of one key use at most a
# twentieth of a CPU, however many objects belong to it.
DURATION_FACTOR = 20.0


class Debouncer(Generic[K]):
    """The pause of each key: a multiple of its last reconcile's duration, within two limits.

    A caller chooses from when the pause counts: from each change (`pause_seconds`), or from the end
    of the last reconcile (`remaining_seconds`). It passes the time in seconds of a monotonic clock.
    """

    def __init__(
        self, *, min_seconds: float, max_seconds: float, factor: float = DURATION_FACTOR
    ) -> None:
        self._min_seconds = min_seconds
        self._max_seconds = max_seconds
        self._factor = factor
        # By key: the pause, and when the last reconcile ended.
        self._pauses: dict[K, tuple[float, float]] = {}

    def __len__(self) -> int:
        """Return how many keys have a recorded duration."""
        return len(self._pauses)

    def record(self, key: K, duration_seconds: float, now: float) -> None:
        """Set the pause of `key` by a reconcile that took `duration_seconds` and ended `now`."""
        pause_seconds = min(self._factor * duration_seconds, self._max_seconds)
        self._pauses[key] = max(pause_seconds, self._min_seconds), now

    def pause_seconds(self, key: K) -> float:
        """Return the pause of `key`: the shortest one if no duration is recorded."""
        return self._pauses.get(key, (self._min_seconds, 0.0))[0]

    def remaining_seconds(self, key: K, now: float) -> float:
        """Return what is left of the pause since the last reconcile; 0 if none is recorded."""
        if key not in self._pauses:
            return 0.0
        pause_seconds, since = self._pauses[key]
        return max(since + pause_seconds - now, 0.0)

    def forget(self, key: K) -> None:
        """Drop the recorded duration of `key`."""
        self._pauses.pop(key, None)
