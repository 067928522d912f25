"""What the logs of tasks that print much may cost, all of them together.

Pure: time is given (monotonic seconds). A task's token can be out of reach moments after it was
printed: the kubelet renames a full log file (every ten seconds it looks) and serves the new, empty
one from then on. Whoever reads the end of a log now and then misses what came just before. An open
stream does not, so streams of noisy tasks are afforded as long as there is something to spare;
when there is not, they are read the more often by short reads the fewer they are. The reads are
shared out by namespace, so that many noisy tasks of one do not make those of another wait.
"""

# What may be read beyond the streams' own budgets: at once, and per second in the long run. A task
# that prints 30 MB and then its token is followed to its end; a gigabyte costs this and no more.
BUDGET_BYTES = 32 * 1024 * 1024
BUDGET_BYTES_PER_SECOND = 1024 * 1024
# Short reads of noisy tasks per second, and the distance between two of one task.
READS_PER_SECOND = 50.0
INTERVAL_SECONDS = (0.5, 5.0)


class ReadBudget:
    """The bytes that are left, filled up with time; and how often noisy logs are read."""

    def __init__(self) -> None:
        self._bytes = float(BUDGET_BYTES)
        self._at = 0.0
        self._noisy: dict[str, set[str]] = {}  # UIDs of pods by namespace

    def take(self, count: int, now: float) -> bool:
        """Take so many bytes; False, and nothing is taken, when there are not so many."""
        self._bytes += max(now - self._at, 0.0) * BUDGET_BYTES_PER_SECOND
        self._bytes = min(self._bytes, BUDGET_BYTES)
        self._at = max(now, self._at)
        if count > self._bytes:
            return False
        self._bytes -= count
        return True

    def set_noisy(self, namespace: str, uid: str, *, is_noisy: bool) -> None:
        """Note whether a pod's log is too much for a stream at present."""
        if is_noisy:
            self._noisy.setdefault(namespace, set()).add(uid)
        elif (uids := self._noisy.get(namespace)) is not None:
            uids.discard(uid)
            if not uids:
                del self._noisy[namespace]

    def interval_seconds(self, namespace: str) -> float:
        """How long after a short read of a noisy log the next one is due, at most."""
        least, most = INTERVAL_SECONDS
        reads_per_second = READS_PER_SECOND / max(len(self._noisy), 1)
        return min(max(len(self._noisy.get(namespace, ())) / reads_per_second, least), most)
