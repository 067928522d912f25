import asyncio
import random
from collections import Counter

import pytest

from daemonset_job.runtime.workqueue import MIN_DELAY_SECONDS, QueueClosed, WorkQueue, namespace_of

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_get_hands_out_keys_in_order_and_each_once():
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert (len(queue), queue.processing) == (0, 2)


async def test_key_added_while_processed_waits_for_done():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert (len(queue), queue.processing) == (0, 0)


async def test_done_of_a_key_that_is_not_processed_is_refused():
    with pytest.raises(ValueError, match="not being processed"):
        WorkQueue[str]().done("a")


async def test_add_after_keeps_the_earliest_deadline():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    queue.add_after("a", 5)
    assert queue.delayed == 1
    assert await queue.get() == "a"
    assert now() == 5
    queue.done("a")
    assert (queue.delayed, len(queue)) == (0, 0)


async def test_remaining_delay_is_never_too_short_to_wait_for():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 1e-12)
    await queue.get()
    assert now() == MIN_DELAY_SECONDS


@pytest.mark.parametrize("seconds", [0, -1])
async def test_add_after_without_delay_is_due_at_once(seconds):
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", seconds)
    assert len(queue) == 1


async def test_timer_survives_an_earlier_add():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10)
    queue.add("a")
    queue.done(await queue.get())
    assert await queue.get() == "a"
    assert now() == 10


async def test_rate_limit_doubles_up_to_the_maximum_until_forgotten():
    queue: WorkQueue[str] = WorkQueue(base_seconds=1, max_seconds=5)
    waits = []
    for _ in range(5):
        before = now()
        queue.add_rate_limited("a")
        queue.done(await queue.get())
        waits.append(now() - before)
    assert waits == [1, 2, 4, 5, 5]
    assert queue.failures("a") == 5
    queue.forget("a")
    queue.forget("a")
    assert queue.failures("a") == 0


async def test_ten_thousand_failures_still_make_a_finite_delay():
    queue: WorkQueue[str] = WorkQueue()
    queue._failures["a"] = 10_000
    queue.add_rate_limited("a")
    await queue.get()
    assert now() == 30


async def test_get_waits_and_is_woken_once_per_key():
    queue: WorkQueue[str] = WorkQueue()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.add("a")
    queue.add("b")
    await asyncio.sleep(1)
    assert sorted(task.result() for task in getters if task.done()) == ["a", "b"]
    queue.close()
    with pytest.raises(QueueClosed):
        await getters[2]


async def test_cancelled_getter_leaves_its_key_to_another():
    queue: WorkQueue[str] = WorkQueue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(1)
    queue.add("a")  # wakes the first
    first.cancel()  # before it ran
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_cancelled_getter_without_a_key_disappears():
    queue: WorkQueue[str] = WorkQueue()
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    getter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getter
    queue.add("a")
    assert await queue.get() == "a"


async def test_a_getter_that_is_cancelled_before_it_wakes_is_skipped():
    queue: WorkQueue[str] = WorkQueue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(1)
    first.cancel()  # its future is cancelled, but it did not run yet
    queue.add("a")
    assert await second == "a"
    assert first.cancelled() or first.cancelling()


async def test_close_ends_everything():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("left")
    queue.add_after("later", 5)
    queue.close()
    queue.close()
    queue.add("a")
    queue.add_after("b", 1)
    queue.add_rate_limited("c")
    await asyncio.sleep(10)
    assert queue.delayed == 0
    with pytest.raises(QueueClosed):
        await queue.get()


def test_what_is_due_within_a_moment_can_be_asked_for_twice_on_uvloop():
    # uvloop's handle of so short a timer is a plain one, which cannot be asked for its time.
    async def main() -> str:
        queue: WorkQueue[str] = WorkQueue()
        for seconds in (0.0002, 0.0003, 0.0001):
            queue.add_after("a", seconds)
        assert queue.delayed == 1
        return await asyncio.wait_for(queue.get(), 5)

    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == "a"


async def test_groups_have_their_turns_however_many_keys_wait_in_each():
    queue: WorkQueue[tuple[str, str]] = WorkQueue(group_of=namespace_of)
    for index in range(5000):
        queue.add(("many", str(index)))
    queue.add(("few", "a"))
    queue.add(("few", "b"))
    assert [(await queue.get())[0] for _ in range(5)] == ["many", "few", "many", "few", "many"]
    assert (len(queue), queue.processing) == (4997, 5)


async def test_a_group_never_has_more_keys_processed_than_its_limit():
    queue: WorkQueue[tuple[str, str]] = WorkQueue(group_of=namespace_of, group_limit=2)
    for index in range(4):
        queue.add(("many", str(index)))
    held = [await queue.get(), await queue.get()]
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    assert (waiting.done(), len(queue)) == (False, 2)
    queue.add(("many", "late"))
    queue.add(("few", "a"))
    assert await waiting == ("few", "a")
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    assert not waiting.done()
    queue.add(held[0])  # again, while it is being processed
    queue.done(held[0])
    assert await waiting == ("many", "2")
    assert len(queue) == 3
    queue.done(held[1])
    assert await queue.get() == ("many", "3")
    queue.done(("many", "2"))
    assert await queue.get() == ("many", "late")
    queue.done(("many", "3"))
    assert await queue.get() == held[0]
    assert len(queue) == 0


@pytest.mark.parametrize("seed", range(20))
async def test_every_key_of_every_group_is_handed_out(seed):
    rng = random.Random(seed)
    queue: WorkQueue[tuple[str, str]] = WorkQueue(group_of=namespace_of, group_limit=2)
    due: set[tuple[str, str]] = set()
    most: Counter[str] = Counter()
    held: Counter[str] = Counter()

    async def work() -> None:
        while True:
            key = await queue.get()
            due.discard(key)
            held[key[0]] += 1
            most[key[0]] = max(most[key[0]], held[key[0]])
            await asyncio.sleep(rng.random())
            held[key[0]] -= 1
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(3)]
    for _ in range(100):
        key = (rng.choice("abc"), rng.choice("123456"))
        due.add(key)
        queue.add(key)
        await asyncio.sleep(rng.random() / 4)
    await asyncio.sleep(30)
    assert (due, len(queue), queue.processing) == (set(), 0, 0)
    assert max(most.values()) == 2
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
