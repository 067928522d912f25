"""The follow streams of one instance's log: their own budget, and when the next one may open.

Pure: time is given (monotonic seconds).
"""

import math

from daemonset_job.runtime.backoff import exponential_seconds
from terminator.logs.read_budget import NamespaceBudget

# A stream's own budget: bytes at once, and further bytes per second that it is open.
STREAM_BYTES = 256 * 1024
STREAM_BYTES_PER_SECOND = 2 * 1024
SHORT_STREAM_SECONDS = 1.0
# Least and greatest delay before a stream is opened again that failed or ended soon.
REOPEN_SECONDS = (0.25, 5.0)
# The greatest delay after streams without use that did not fail. A kubelet that has no inotify
# instance left ends each stream at once, for as long as its node is short of them.
REOPEN_UNUSED_SECONDS = 60.0


class StreamState:
    """Follows the streams of one log, of which at most one is open."""

    def __init__(self) -> None:
        self._failures = 0
        self._opened_at = -math.inf
        self._reopen_at = -math.inf
        self._bytes = 0
        self._has_delivered = False

    def may_open(self, now: float) -> bool:
        """Return whether a stream may be opened, if none is open."""
        return now >= self._reopen_at

    def opened(self, now: float) -> None:
        """Record that a stream is being opened."""
        self._opened_at = now
        self._bytes = 0
        self._has_delivered = False

    def received(
        self, count: int, now: float, budget: NamespaceBudget | None, *, is_new: bool
    ) -> bool:
        """Record `count` bytes; return whether the stream is within the budgets.

        Bytes beyond the stream's own budget are taken from the shared `budget`. `is_new`: there
        were lines among them that had not been read before.
        """
        self._bytes += count
        self._has_delivered = self._has_delivered or is_new
        own_budget = STREAM_BYTES + STREAM_BYTES_PER_SECOND * (now - self._opened_at)
        excess = self._bytes - own_budget
        if excess <= 0:
            return True
        excess_bytes = min(count, math.ceil(excess))
        if budget is None or not budget.take(excess_bytes, now):
            return False
        self._bytes -= excess_bytes
        return True

    def ended(self, now: float, *, failed: bool) -> bool:
        """Record that the stream is over; return whether it was of use.

        It was not if it ended soon and delivered nothing new. The delays grow after streams that
        end soon or deliver nothing new: the container may have ended while its status does not show
        that yet.
        """
        is_short = now - self._opened_at < SHORT_STREAM_SECONDS
        is_useful = self._has_delivered or not is_short
        if failed or not self._has_delivered or is_short:
            self._failures += 1
            least, greatest = REOPEN_SECONDS
            limit = greatest if failed or is_useful else REOPEN_UNUSED_SECONDS
            self._reopen_at = now + exponential_seconds(self._failures, least, limit)
        else:
            self._failures = 0
            self._reopen_at = now
        return is_useful
