"""A semaphore that serves its waiters by namespace and Job in rotation.

However many waiters a namespace has, the namespaces are served in rotation, and so are the Jobs of
one namespace. The waiters of a Job are served in order of arrival.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daemonset_job.runtime.fair_queue import FairQueue, Path


class FairSemaphore:
    """Admits at most `limit` holders at a time."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        # A cancelled waiter stays in the queue until it is popped.
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def slot(self, path: Path) -> AsyncIterator[None]:
        """Wait for a slot and keep it while the block runs."""
        await self._acquire(path)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, path: Path) -> None:
        if self._free > 0:
            self._free -= 1
            return
        slot_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(path, slot_future)
        try:
            await slot_future
        except asyncio.CancelledError:
            if not slot_future.cancelled():
                self._release()  # it was cancelled after it had got the slot
            raise

    def _release(self) -> None:
        while self._waiting:
            slot_future = self._waiting.pop()
            if not slot_future.done():
                slot_future.set_result(None)
                return
        self._free += 1
