"""How often events about missing pods are listed, and which of them counts."""

import asyncio

import pytest

from daemonset_job.kube.client.answers import Page
from daemonset_job.kube.client.errors import Unavailable
from job_controller.read_pace import NAMESPACE_SHARE, USUAL_SECONDS, ReadPaces
from job_controller.warning_events import PAUSE_SECONDS, READ_SECONDS, WarningEvents
from tests.clocks import FakeClock
from tests.unit.builders import NOW

KEY = ("default", "sample")


class Client:
    """Answers with these pages; each takes `took` seconds."""

    def __init__(self, clock):
        self.clock = clock
        self.pages = [[]]
        self.took = 0.0
        self.fails = False
        self.asked = []

    async def page(self, what, *, continue_=None, **_):
        self.asked.append((what.namespace, self.clock.monotonic()))
        self.clock.advance(self.took)
        if self.fails:
            raise Unavailable("down")
        number = int(continue_ or 0)
        after = str(number + 1) if number + 1 < len(self.pages) else ""
        return Page(self.pages[number], "1", after, 100)


def event(version, message, reason="FailedCreate"):
    meta = {"name": "n", "resourceVersion": version}
    return {"metadata": meta, "reason": reason, "message": message}


@pytest.fixture
def clock():
    return FakeClock(NOW)


@pytest.fixture
def client(clock):
    return Client(clock)


@pytest.fixture
def paces():
    return ReadPaces()


@pytest.fixture
def creates(client, clock, paces):
    return WarningEvents(client, clock, ("FailedCreate",), paces)


async def look_for(creates, clock, seconds, key=KEY, uid="set"):
    """Look whenever it is time, for these seconds."""
    end = clock.monotonic() + seconds
    while (wait := await creates.look(key, uid)) + clock.monotonic() <= end:
        clock.advance(wait)


async def test_it_is_looked_up_at_growing_pauses(creates, client, clock):
    begin = clock.monotonic()
    await look_for(creates, clock, 100)
    assert [at - begin for _, at in client.asked] == [2, 6, 14, 29, 44, 59, 74, 89]
    assert creates.completed(KEY, "set") == 8
    assert creates.completed(KEY, "another") == 0
    creates.forget(KEY)
    assert len(creates) == 0
    assert await creates.look(KEY, "set") == PAUSE_SECONDS[0]


async def test_the_newest_by_version_counts_whatever_the_page(creates, client, clock):
    assert creates.message(KEY, "set") is None
    client.pages = [
        [event("9", "old"), event("8", "older")],
        [event("10", "new")],
        [event("7", "")],
    ]
    await look_for(creates, clock, 2)
    assert creates.message(KEY, "set") == "old"
    await look_for(creates, clock, 4)
    assert creates.message(KEY, "set") == "new"
    client.pages = [[]]
    await look_for(creates, clock, 60)
    assert creates.message(KEY, "set") == ""


async def test_a_message_is_of_one_daemon_set_and_is_bounded(creates, client, clock):
    client.pages = [[event("1", "x" * 100_000)]]
    await look_for(creates, clock, 2)
    assert len(creates.message(KEY, "set").encode()) <= 1024
    assert creates.message(KEY, "another") is None
    assert await creates.look(KEY, "another") == PAUSE_SECONDS[0]
    assert creates.message(KEY, "set") is None


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": {"resourceVersion": 5}}])
async def test_an_event_that_is_none_is_skipped(creates, client, clock, odd):
    client.pages = [[odd, event("1", "quota"), {**event("2", None)}]]
    await look_for(creates, clock, 2)
    assert creates.message(KEY, "set") in {"quota", ""}


async def test_a_list_that_fails_changes_nothing_and_is_repeated_slowly(creates, client, clock):
    client.pages = [[event("1", "quota")]]
    await look_for(creates, clock, 2)
    client.fails = True
    await look_for(creates, clock, 600)
    assert creates.message(KEY, "set") == "quota"
    assert len(client.asked) < 45


async def test_slow_lists_of_a_namespace_take_a_share_of_the_time(creates, client, clock, paces):
    """Each of a hundred Jobs waits, and none of another namespace."""
    client.took = 1.0
    jobs = [("full", f"job-{number}") for number in range(100)]
    waits = dict.fromkeys([*jobs, ("calm", "job")], 0.0)
    begin = clock.monotonic()
    for key in waits:
        waits[key] = clock.monotonic() + await creates.look(key, "set")
    while (now := clock.monotonic()) - begin < 600:
        key = min(waits, key=waits.get)
        clock.advance(max(waits[key] - now, 0.0))
        waits[key] = clock.monotonic() + await creates.look(key, "set")
    of_full = [at for namespace, at in client.asked if namespace == "full"]
    first_calm = next(at for namespace, at in client.asked if namespace == "calm")
    # Slots that were given away before the first list took this time are kept.
    assert 600 / NAMESPACE_SHARE - 20 <= len(of_full) <= 600 / NAMESPACE_SHARE + 100
    assert first_calm - begin < 120
    late = [at for at in of_full if at - begin > 300]
    assert len(late) <= 300 / NAMESPACE_SHARE + 2
    assert len(paces) == 2
    clock.advance(600)
    await creates.look(("another", "job"), "set")
    assert len(paces) == 1
    assert PAUSE_SECONDS[1] > READ_SECONDS


async def test_lists_that_suddenly_take_long_are_made_one_at_a_time(creates, client, clock):
    """However many were due before the first of them showed how long they take."""
    under_way, most, gate = 0, 0, asyncio.Event()

    async def page(*_, **__):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        return Page([], "1", "", 100)

    client.page = page
    keys = [("default", f"job-{number}") for number in range(20)]
    for key in keys:
        await creates.look(key, "set")
    clock.advance(PAUSE_SECONDS[0])
    tasks = []
    for key in keys:
        tasks.append(asyncio.create_task(creates.look(key, "set")))
        await asyncio.sleep(0)
        clock.advance(0.1)
    gate.set()
    waits = await asyncio.gather(*tasks)
    assert most == 1
    assert all(wait > 0 for wait in waits[1:])


async def test_what_is_read_for_two_reasons_takes_one_share(client, clock, paces, creates):
    """And so does a Job that lacks causes by turns: what is forgotten keeps its pace."""
    client.took = 1.0
    mounts = WarningEvents(client, clock, ("FailedMount", "FailedCreatePodSandBox"), paces)
    begin = clock.monotonic()
    while clock.monotonic() - begin < 600:
        waits = [await creates.look(KEY, "set"), await mounts.look(KEY, "pod")]
        mounts.forget(("default", "other"))
        clock.advance(max(min(waits), 0.1))
    assert len(client.asked) <= 600 / NAMESPACE_SHARE + 2
    for _ in range(1000):
        creates.forget(KEY)
        if await creates.look(KEY, "set") > PAUSE_SECONDS[0]:
            break
        clock.advance(PAUSE_SECONDS[0])
        await creates.look(KEY, "set")
    assert len(client.asked) <= (clock.monotonic() - begin) / NAMESPACE_SHARE + 2


async def test_a_namespace_of_a_thousand_jobs_is_read_a_few_times_a_second(client, clock, creates):
    keys = [("default", f"job-{number}") for number in range(1000)]
    begin = clock.monotonic()
    waits = dict.fromkeys(keys, begin)
    while (now := clock.monotonic()) - begin < 60:
        key = min(waits, key=waits.get)
        clock.advance(max(waits[key] - now, 0.0))
        waits[key] = clock.monotonic() + await creates.look(key, "set")
    assert len(client.asked) <= 60 / (NAMESPACE_SHARE * USUAL_SECONDS) + 5


async def test_events_of_other_reasons_do_not_count(client, clock, paces):
    client.pages = [[event("1", "no room for the network", "FailedCreatePodSandBox")]]
    client.pages[0] += [event("2", "back-off", "BackOff"), {"metadata": {}, "reason": ["x"]}]
    setups = WarningEvents(client, clock, ("FailedMount", "FailedCreatePodSandBox"), paces)
    await setups.look(KEY, "pod")
    clock.advance(PAUSE_SECONDS[0])
    await setups.look(KEY, "pod")
    assert setups.newest(KEY) == ("pod", "no room for the network")
