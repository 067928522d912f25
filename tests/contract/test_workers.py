"""Workers in a real event loop: what else runs while keys are ready."""

import asyncio
import time

import pytest
import uvloop

from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue

KEYS = 200
PASS_SECONDS = 0.02


async def work(*, count: int) -> list[int]:
    """Return after how many passes a timer of 10 ms went off, each time."""
    queue: WorkQueue[int] = WorkQueue()
    passes, ticks = 0, []

    async def reconcile(_key: int) -> None:
        nonlocal passes
        time.sleep(PASS_SECONDS)  # noqa: ASYNC251 - a pass that decides, and writes nothing
        passes += 1
        if passes == KEYS:
            queue.close()

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.01)
            ticks.append(passes)

    for key in range(KEYS):
        queue.add(key)
    ticker = asyncio.create_task(tick())
    await run_workers(queue, reconcile, count=count, on_error=lambda *_: None)
    ticker.cancel()
    return ticks


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_timer_is_late_by_a_pass_or_two_however_many_keys_are_ready(factory):
    with asyncio.Runner(loop_factory=factory) as runner:
        ticks = runner.run(work(count=4))
    assert len(ticks) > KEYS / 3
    assert max(b - a for a, b in zip([0, *ticks], [*ticks, KEYS], strict=True)) <= 2
