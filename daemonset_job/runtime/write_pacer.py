"""Pauses between writes of one large object that can be combined."""

# An object of 1,000 items has nearly 0.5 MB. The server takes half a second to write it on two busy
# cores, and as long to send it to its watches. 25 such writes cost it nearly as much as
# 1,000 pods. So the next write waits 40 times the duration of the last one, at most 10 ms for each
# item and at most 10 s.
DURATION_FACTOR = 40.0
SECONDS_PER_ITEM = 0.01
MAX_SECONDS = 10.0


class WritePacer:
    """The time before which one object is not written again, unless the write is urgent.

    The caller passes the time in seconds of a monotonic clock.
    """

    __slots__ = ("_factor", "_max_seconds", "_next_at", "_seconds_per_item")

    def __init__(
        self,
        *,
        factor: float = DURATION_FACTOR,
        seconds_per_item: float = SECONDS_PER_ITEM,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self._factor = factor
        self._seconds_per_item = seconds_per_item
        self._max_seconds = max_seconds
        self._next_at = 0.0

    def record(self, duration_seconds: float, items: int, now: float) -> None:
        """Begin a pause after a write of `items` that took `duration_seconds` and ended `now`."""
        self._next_at = now + min(
            self._factor * duration_seconds, self._seconds_per_item * items, self._max_seconds
        )

    def remaining_seconds(self, now: float) -> float:
        """Return what is left of the pause; 0 if there was no write."""
        return max(self._next_at - now, 0.0)
