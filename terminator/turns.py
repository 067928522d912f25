"""Turns at something of which there is little: a number at a time, and none waits for a crowd.

Of those that wait, the groups have their turns one after the other, however many each has; within
a group it is first come, first served.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """Lets `limit` holders in at a time."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        # The group that comes next is first. Who gave up waiting stays until its turn would come.
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, group: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for as long as the block runs."""
        await self._enter(group)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, group: Hashable) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave()  # it was cancelled after its turn had come
            raise

    def _leave(self) -> None:
        while self._waiting:
            group, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[group] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
