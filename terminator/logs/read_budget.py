"""The byte budget that all noisy logs share, and how often logs that grow fast are polled.

Pure: time is given (monotonic seconds). A token can be out of reach moments after it was printed.
Every ten seconds the kubelet renames log files that are full, and from then on it serves the new,
empty file. A short read misses the lines printed just before; an open stream does not. So noisy
pods keep a follow stream while the shared byte budget lasts. Once it is used up they are polled
instead: the fewer noisy pods there are, the more often each is polled. So is a log without a stream
that grows faster than short reads follow. The polls are divided evenly among the namespaces, so
noisy pods of one namespace do not delay those of another.
"""

# Bytes that may be read beyond the streams' own budgets: at once, and per second in the long run.
# A task that prints 30 MB and then its token is followed to its end; a log of 1 GiB costs no more.
BUDGET_BYTES = 32 * 1024 * 1024
BUDGET_BYTES_PER_SECOND = 1024 * 1024
# Short reads of fast logs per second, and the least and greatest interval between two of one log.
READS_PER_SECOND = 50.0
# What one short read counts. One that resumes at the last line read may take three times the bytes.
NOISY_READ, RESUMED_READ = 1, 3
INTERVAL_SECONDS = (0.5, 5.0)


class ReadBudget:
    """The bytes left, refilled over time, and the polling interval of noisy logs."""

    def __init__(self) -> None:
        self._bytes = float(BUDGET_BYTES)
        self._at = 0.0
        # What a read of each pod counts, by namespace and UID.
        self._reads: dict[str, dict[str, int]] = {}
        self._totals: dict[str, int] = {}

    def take(self, count: int, now: float) -> bool:
        """Take `count` bytes and return True; take none and return False if fewer are left."""
        self._bytes += max(now - self._at, 0.0) * BUDGET_BYTES_PER_SECOND
        self._bytes = min(self._bytes, BUDGET_BYTES)
        self._at = max(now, self._at)
        if count > self._bytes:
            return False
        self._bytes -= count
        return True

    def set_read(self, namespace: str, uid: str, count: int) -> None:
        """Record what a short read of a pod counts whose log grows fast, 0 for another log."""
        reads = self._reads.setdefault(namespace, {})
        total = self._totals.get(namespace, 0) + count - reads.pop(uid, 0)
        if count:
            reads[uid] = count
        if reads:
            self._totals[namespace] = total
        else:
            del self._reads[namespace]
            self._totals.pop(namespace, None)

    def interval_seconds(self, namespace: str) -> float:
        """Return the longest time between two short reads of a fast log of `namespace`."""
        least, most = INTERVAL_SECONDS
        reads_per_second = READS_PER_SECOND / max(len(self._reads), 1)
        return min(max(self._totals.get(namespace, 0) / reads_per_second, least), most)
