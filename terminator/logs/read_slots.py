"""The slots of short reads: a fixed number at a time, of namespaces and their Jobs in rotation."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine

from daemonset_job.runtime.fair_queue import FairQueue
from terminator.logs.targets import ScannedPod

# A short read takes milliseconds. One that takes longer than QUEUE_SLOT_SECONDS (an unreachable
# kubelet) gives its slot to the next pod and continues, up to SLOW_READS_LIMIT of them.
QUEUE_SLOT_SECONDS = 1.0
SLOW_READS_LIMIT = 48


class ReadSlots:
    """Calls `read(scanned)` for each pod in the queue, unless `is_current(scanned)` is false then.

    It reads from `start` to `stop`, as many pods at a time as `limit` says.
    """

    def __init__(
        self,
        limit: int,
        read: Callable[[ScannedPod], Coroutine[None, None, None]],
        is_current: Callable[[ScannedPod], bool],
    ) -> None:
        self._limit = limit
        self._read = read
        self._is_current = is_current
        self._queue: FairQueue[ScannedPod] = FairQueue()
        self._queued = asyncio.Semaphore(0)  # how many pods are in the queue
        self._slow: dict[asyncio.Task[None], str] = {}  # with their namespaces
        self._workers = 0
        self._group: asyncio.TaskGroup | None = None

    def push(self, scanned: ScannedPod) -> None:
        """Add a pod to the queue."""
        self._queue.push(scanned.job, scanned)
        self._queued.release()

    def set_limit(self, limit: int) -> None:
        """Change how many pods are read at a time; reads above a lower limit continue."""
        self._limit = limit
        self._add_workers()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Read in tasks of `group`."""
        self._group = group
        self._add_workers()

    def stop(self) -> None:
        """Start no further read; those under way end with the tasks of the group."""
        self._group = None

    def reset(self) -> None:
        """Record that the group, and all workers with it, have ended."""
        self._workers = 0

    def _add_workers(self) -> None:
        if self._group is None:
            return
        while self._workers < self._limit:
            self._workers += 1
            self._group.create_task(self._work())

    async def _work(self) -> None:
        """Serve the queue, one pod after the other, while the limit allows this worker."""
        while self._workers <= self._limit:
            await self._queued.acquire()
            scanned = self._queue.pop()
            if not self._is_current(scanned):
                continue
            if self._group is None:
                return
            read = self._group.create_task(self._read(scanned))
            done, _ = await asyncio.wait({read}, timeout=QUEUE_SLOT_SECONDS)
            if done:
                continue
            if self._may_continue_slow_read(scanned.namespace):
                self._slow[read] = scanned.namespace
                read.add_done_callback(self._slow_ended)
            else:
                read.cancel()
        self._workers -= 1

    def _may_continue_slow_read(self, namespace: str) -> bool:
        """Return whether a slow read may continue; cancels one of a namespace with more of them."""
        if len(self._slow) < SLOW_READS_LIMIT:
            return True
        counts = Counter(self._slow.values())
        largest_holder, most = counts.most_common(1)[0]
        if most <= counts[namespace] + 1:
            return False
        oldest = next(read for read, owner in self._slow.items() if owner == largest_holder)
        del self._slow[oldest]
        oldest.cancel()
        return True

    def _slow_ended(self, read: asyncio.Task[None]) -> None:
        self._slow.pop(read, None)
