"""The byte budget that noisy logs share, and how often logs that grow fast are polled.

Pure: time is given (monotonic seconds). A token can be out of reach moments after it was printed.
Every ten seconds the kubelet renames log files that are full, and from then on it serves the new,
empty file. A short read misses the lines printed just before; an open stream does not. So noisy
pods keep a follow stream while the shared byte budget lasts. Once it is used up they are polled
instead: the fewer noisy pods there are, the more often each is polled. So is a log without a stream
that grows faster than short reads follow. The namespaces share bytes and polls, so noisy pods of
one namespace neither close the streams of another nor delay its polls.
"""

from dataclasses import dataclass

# Bytes that may be read beyond the streams' own budgets: at once by a namespace that is the only
# one, and per second by all of them.
# A task that prints 30 MB and then its token is followed to its end; a log of 1 GiB costs no more.
BUDGET_BYTES = 32 * 1024 * 1024
# All namespaces together may read as much at once.
SHARED_BYTES = 2 * BUDGET_BYTES
BUDGET_BYTES_PER_SECOND = 1024 * 1024
# Short reads of fast logs per second, and the least and greatest interval between two of one log.
READS_PER_SECOND = 50.0
# What one short read counts. One that resumes at the last line read may take three times the bytes.
NOISY_READ, RESUMED_READ = 1, 3
INTERVAL_SECONDS = (0.5, 5.0)


class ReadBudget:
    """The bytes left, refilled over time, and the polling interval of noisy logs."""

    def __init__(self) -> None:
        # The bytes taken that are not refilled yet, by namespace, none of them 0.
        self._taken: dict[str, float] = {}
        self._at = 0.0
        # What a read of each pod counts, by namespace and UID.
        self._reads: dict[str, dict[str, int]] = {}
        self._totals: dict[str, int] = {}

    def of(self, namespace: str) -> "NamespaceBudget":
        """Return the budget of one namespace."""
        return NamespaceBudget(self, namespace)

    def take(self, namespace: str, count: int, now: float) -> bool:
        """Take `count` bytes and return True; take none and return False if fewer are left.

        A namespace may have half of what the others leave. So something is left for another one,
        and those that take all they can have equal shares in the end.
        """
        self._refill(now)
        taken = self._taken.get(namespace, 0.0)
        others = sum(self._taken.values()) - taken
        if taken + count > (SHARED_BYTES - others) / 2:
            return False
        self._taken[namespace] = taken + count
        return True

    def _refill(self, now: float) -> None:
        """Refill the shares of the namespaces evenly."""
        left = max(now - self._at, 0.0) * BUDGET_BYTES_PER_SECOND
        self._at = max(now, self._at)
        while self._taken and left > 0:
            even = left / len(self._taken)
            each = min(even, *self._taken.values())
            # What a namespace does not need goes to the others.
            left = left - each * len(self._taken) if each < even else 0.0
            self._taken = {
                name: taken - each for name, taken in self._taken.items() if taken > each
            }

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


@dataclass(frozen=True, slots=True)
class NamespaceBudget:
    """The bytes that the noisy logs of one namespace may take."""

    budget: ReadBudget
    namespace: str

    def take(self, count: int, now: float) -> bool:
        """Take `count` bytes and return True; take none and return False if fewer are left."""
        return self.budget.take(self.namespace, count, now)
