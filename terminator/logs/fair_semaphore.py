"""Turns at something of which there is little: a number at a time, and none waits for a crowd.

Of those that wait, the groups have their turns one after the other, however many each has: first
the namespaces, then the Jobs of one. Within a Job it is first come, first served.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daemonset_job.runtime.fair_queue import FairQueue, Path


class FairSemaphore:
    """Lets `limit` holders in at a time."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        # Who gave up waiting stays until its slot_future would come.
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def slot(self, path: Path) -> AsyncIterator[None]:
        """Wait for a slot_future, and hold it for as long as the block runs."""
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
                self._release()  # it was cancelled after its slot_future had come
            raise

    def _release(self) -> None:
        while self._waiting:
            slot_future = self._waiting.pop()
            if not slot_future.done():
                slot_future.set_result(None)
                return
        self._free += 1
