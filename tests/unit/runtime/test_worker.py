import asyncio

import pytest

from daemonset_job.runtime.worker import NOTHING_LEFT, run_workers
from daemonset_job.runtime.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


def no_error(key, error):
    raise AssertionError(f"{key}: {error!r}")


async def test_success_forgets_failures_and_comes_again_when_asked():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_rate_limited("a")
    seen = []

    async def reconcile(key):
        seen.append((key, now()))
        if len(seen) == 3:
            queue.close()
        return 10.0

    await run_workers(queue, reconcile, count=2, on_error=no_error)
    assert seen == [("a", 0.005), ("a", 10.005), ("a", 20.005)]
    assert queue.failures("a") == 0


async def test_success_without_a_wish_is_not_repeated():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    seen = []

    async def reconcile(key):
        seen.append(key)

    asyncio.get_running_loop().call_later(100, queue.close)
    await run_workers(queue, reconcile, count=1, on_error=no_error)
    assert seen == ["a"]


async def test_same_key_is_never_with_two_workers():
    queue: WorkQueue[str] = WorkQueue()
    running, most = set(), 0
    queue.add("a")
    queue.add("b")

    async def reconcile(key):
        nonlocal most
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        queue.add(key)
        await asyncio.sleep(1)
        running.discard(key)

    asyncio.get_running_loop().call_later(10, queue.close)
    await run_workers(queue, reconcile, count=4, on_error=no_error)
    assert most == 2


@pytest.mark.parametrize(("answer", "expected"), [(None, [0, 0.005, 0.015]), (3.0, [0, 3, 6])])
async def test_error_is_tried_again_as_the_handler_says(answer, expected):
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    times, errors = [], []

    async def reconcile(key):
        times.append(now())
        if len(times) == 3:
            queue.close()
        raise OSError("no")

    def on_error(key, error):
        errors.append((key, str(error)))
        return answer

    await run_workers(queue, reconcile, count=1, on_error=on_error)
    assert times == pytest.approx(expected)
    assert errors == [("a", "no")] * 3


async def test_failing_error_handler_ends_all_workers():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("b")
    cancelled = []

    async def reconcile(key):
        if key == "a":
            await asyncio.sleep(1)  # "b" is begun meanwhile
            raise OSError("no")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(key)
            raise

    with pytest.raises(ExceptionGroup) as caught:
        await run_workers(queue, reconcile, count=2, on_error=no_error)
    assert caught.group_contains(AssertionError)
    assert cancelled == ["b"]
    assert queue.processing == 0


async def test_cancellation_ends_the_work_and_is_raised():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")

    async def reconcile(key):
        await asyncio.sleep(1000)

    task = asyncio.create_task(run_workers(queue, reconcile, count=2, on_error=no_error))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert queue.processing == 0


async def test_a_key_of_which_nothing_is_left_keeps_no_timer():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    answers = iter((7 * 86400.0, NOTHING_LEFT))

    async def reconcile(key):
        return next(answers)

    loop = asyncio.get_running_loop()
    loop.call_later(1, queue.add, "a")
    loop.call_later(2, queue.close)
    at_work = asyncio.create_task(run_workers(queue, reconcile, count=1, on_error=no_error))
    await asyncio.sleep(0.5)
    assert queue.delayed == 1
    await asyncio.sleep(1)
    assert queue.delayed == 0
    await at_work


async def test_what_wakes_a_key_while_nothing_seems_left_of_it_is_not_lost():
    """A Job with the name of a deleted one is created at that moment."""
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    seen = []

    async def reconcile(key):
        seen.append(now())
        if len(seen) == 1:
            return 7 * 86400.0
        if len(seen) == 2:
            queue.add_after(key, 2.0)
            return NOTHING_LEFT
        return None

    loop = asyncio.get_running_loop()
    loop.call_later(1, queue.add, "a")
    loop.call_later(10, queue.close)
    await run_workers(queue, reconcile, count=1, on_error=no_error)
    assert seen == [0.0, 1.0, 3.0]
