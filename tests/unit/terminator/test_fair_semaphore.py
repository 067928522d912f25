"""Turns: a number at a time, and no group waits for another one's burst."""

import asyncio

import pytest

from terminator.logs.fair_semaphore import FairSemaphore

pytestmark = pytest.mark.looptime(end=100)


async def hold(semaphore, group, order, seconds=1.0):
    async with semaphore.slot(group):
        order.append(group)
        await asyncio.sleep(seconds)


async def test_no_more_hold_than_allowed_and_groups_take_turns():
    semaphore, order = FairSemaphore(2), []
    async with asyncio.TaskGroup() as group:
        for name in ("a", "a", "a", "a", "a", "b", "c", "b"):
            group.create_task(hold(semaphore, name, order))
        await asyncio.sleep(0.5)
        assert order == ["a", "a"]
    assert order == ["a", "a", "a", "b", "c", "a", "b", "a"]
    assert asyncio.get_running_loop().time() == 4.0


async def test_a_cancelled_waiter_takes_no_slot():
    semaphore, order = FairSemaphore(1), []
    tasks = [asyncio.create_task(hold(semaphore, name, order)) for name in "abc"]
    await asyncio.sleep(0.5)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert order == ["a", "c"]
    await hold(semaphore, "d", order)
    assert asyncio.get_running_loop().time() == 3.0


async def test_who_is_cancelled_when_its_turn_comes_passes_it_on():
    semaphore, order = FairSemaphore(1), []
    tasks = [asyncio.create_task(hold(semaphore, name, order)) for name in "abc"]
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    await asyncio.sleep(0)
    tasks[1].cancel()  # the turn is its own by now
    await asyncio.wait(tasks)
    assert order == ["a", "c"]
