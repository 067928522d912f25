"""Workers: take a key, reconcile it, decide when it comes again."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar

from daemonset_job.runtime.workqueue import QueueClosed, WorkQueue

K = TypeVar("K", bound=Hashable)

Reconcile = Callable[[K], Awaitable[float | None]]
"""Acts on a key; returns the seconds after which it wants to be called again, or None.

NOTHING_LEFT says that nothing of the key exists. Then its timer is dropped: a key that had one for
30 days ahead would stay in memory for so long.
"""
NOTHING_LEFT: Final = math.inf
OnError = Callable[[K, BaseException], float | None]
"""Sees an exception; returns the seconds until the next try, None for the queue's backoff."""


async def run_workers(
    queue: WorkQueue[K], reconcile: Reconcile[K], *, count: int, on_error: OnError[K]
) -> None:
    """Process the queue with `count` workers; returns when the queue is closed.

    Success forgets the key's failures. An exception of `reconcile` concerns its key only: it goes
    to `on_error` and the key is tried again. An exception of anything else, `on_error` included,
    is a defect of the program: all workers end and it is raised (in an ExceptionGroup).
    Cancellation ends the reconciliations in progress and is raised again.

    Neither the queue nor a reconciliation without input or output suspends. So all workers together
    begin one key at a time. All else that is ready in the event loop runs before the next one. So
    the renewal of a Lease is late by one reconciliation, however many keys are ready.
    """
    turn = asyncio.Lock()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_work(queue, reconcile, on_error, turn))


async def _work(
    queue: WorkQueue[K], reconcile: Reconcile[K], on_error: OnError[K], turn: asyncio.Lock
) -> None:
    while True:
        try:
            key = await queue.get()
        except QueueClosed:
            return
        try:
            async with turn:
                await asyncio.sleep(0)
            await _process(queue, key, reconcile, on_error)
        finally:
            queue.done(key)


async def _process(
    queue: WorkQueue[K], key: K, reconcile: Reconcile[K], on_error: OnError[K]
) -> None:
    try:
        again_seconds = await reconcile(key)
    except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this key only
        again_seconds = on_error(key, error)
        if again_seconds is None:
            queue.add_rate_limited(key)
        else:
            queue.add_after(key, again_seconds)
        return
    queue.forget(key)
    if again_seconds == NOTHING_LEFT:
        queue.drop_timer(key)
    elif again_seconds is not None:
        queue.add_after(key, again_seconds)
