"""Turns at something of which there is little: a number at a time, and none waits for a crowd.

Of those that wait, the groups have their turns one after the other, however many each has: first
the namespaces, then the Jobs of one. Within a Job it is first come, first served.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daemonset_job.runtime.fair_queue import FairQueue, Path


class Turns:
    """Lets `limit` holders in at a time."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        # Who gave up waiting stays until its turn would come.
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def of(self, path: Path) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for as long as the block runs."""
        await self._enter(path)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, path: Path) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(path, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave()  # it was cancelled after its turn had come
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
