"""A cache that follows objects and lists of which some cannot be read."""

import asyncio

import pytest
from loguru import logger

from daemonset_job.kube.cache import pager
from daemonset_job.kube.client.resource import NODES, PODS
from daemonset_job.kube.client.selection import Selection
from tests.contract.fake_answers import BROKEN
from tests.contract.followers import follow, pod

__all__ = ["follow"]

# Whatever is waited for in vain ends there instead of hanging.
pytestmark = pytest.mark.looptime(end=20_000)


@pytest.fixture(autouse=True)
def _watches_in_json(server):
    """Have objects that cannot be read: in the other format of pods there are none."""
    server.protobuf = False


async def test_unreadable_object_is_logged_and_not_treated_as_deleted(server, follow):
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message} {extra[name]} {extra[error]}", level="INFO")
    server.put(PODS, pod("bad", "bad"))
    server.put(PODS, pod("a"))
    follower = await follow()
    server.put(PODS, pod("a", "bad"))
    await asyncio.sleep(1)
    server.expire()
    server.drop_watches()
    await asyncio.sleep(2)
    assert follower.values() == {"a": "1"}
    server.silence_watches()
    server.remove(PODS, "a")
    server.put(PODS, pod("a", "bad"))  # of another UID: what was known is gone
    server.expire()
    server.drop_watches()
    await asyncio.sleep(5)
    assert follower.values() == {}
    logger.remove(sink)
    assert "skipped an object that cannot be read bad bad\n" in lines


async def test_an_unreadable_object_that_changes_all_the_time_has_few_warnings(server, follow):
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message} {extra[name]}", level="WARNING")
    found = []
    server.put(PODS, pod("a", "bad"))
    await follow(Selection(PODS), found.append)
    for number in range(100):
        changed = pod("a", "bad" if number % 10 else "good")  # also if it can be read in between
        changed["metadata"]["annotations"] = {"example.com/number": str(number)}
        server.put(PODS, changed)
        await asyncio.sleep(0.1)
    logger.remove(sink)
    assert len(found) > 80
    assert lines == ["skipped an object that cannot be read a\n"]


@pytest.mark.parametrize("value", ["@deep:1100", "@deep:9000", BROKEN])
@pytest.mark.parametrize("metadata_only", [False, True])
async def test_an_unreadable_object_affects_no_other(server, follow, value, metadata_only):
    reported = []
    server.put(PODS, pod("a"))
    follower = await follow(Selection(PODS, metadata_only=metadata_only), reported.append)
    bad = pod("bad")
    # Where only metadata is asked for, they are what cannot be read.
    (bad["metadata"] if metadata_only else bad)["managedFields"] = [{"f:spec": value}]
    stored = server.put(PODS, bad)
    server.put(PODS, pod("b"))
    await asyncio.sleep(1)
    assert follower.values() == {"a": "1", "b": "1"}
    (found,) = reported
    metadata = stored["metadata"]
    assert (found.namespace, found.name, found.uid) == ("default", "bad", metadata["uid"])
    assert found.resource_version == metadata["resourceVersion"]
    assert list(follower.reflector.store.unreadable) == [("default", "bad")]
    # The watch went on behind it, and goes on behind it after a break.
    await asyncio.sleep(5)
    server.drop_watches()
    server.put(PODS, pod("c"))
    await asyncio.sleep(1)
    assert set(follower.values()) == {"a", "b", "c"}
    assert server.count("GET", "limit=") == 1
    assert server.count("GET", "watch=") == 2
    # A list finds it again, and says it once.
    server.expire()
    server.drop_watches()
    await asyncio.sleep(5)
    server.put(PODS, pod("d"))
    await asyncio.sleep(1)
    assert set(follower.values()) == {"a", "b", "c", "d"}
    assert server.count("GET", "limit=") == 2
    assert len(reported) == 1
    server.remove(PODS, "bad")
    await asyncio.sleep(1)
    assert not follower.reflector.store.unreadable
    server.put(PODS, pod("bad", "good now"))
    await asyncio.sleep(1)
    assert follower.values()["bad"] == "good now"


async def test_unreadable_change_is_no_deletion_and_the_next_change_is_read(server, follow):
    server.put(PODS, pod("a"))
    follower = await follow()
    server.put(PODS, pod("a") | {"spec": "@deep:1100"})
    await asyncio.sleep(1)
    assert follower.values() == {"a": "1"}
    assert ("default", "a") in follower.reflector.store.unreadable
    server.put(PODS, pod("a", "2"))
    await asyncio.sleep(1)
    assert follower.values() == {"a": "2"}
    assert not follower.reflector.store.unreadable
    # One of another UID is another object: what was known of the first is gone.
    server.silence_watches()
    server.remove(PODS, "a")
    server.put(PODS, pod("a") | {"spec": "@deep:1100"})
    server.expire()
    server.drop_watches()
    await asyncio.sleep(5)
    assert follower.values() == {}
    assert ("default", "a") in follower.reflector.store.unreadable
    server.silence_watches()
    server.remove(PODS, "a")
    server.expire()
    server.drop_watches()
    await asyncio.sleep(5)
    assert not follower.reflector.store.unreadable


async def test_unreadable_objects_do_not_keep_a_list_from_its_end(server, follow):
    for i in range(600):
        bad = {"spec": "@deep:1100"} if i in {0, 1, 77, 499, 500, 599} else {}
        server.put(PODS, pod(f"p{i:03}") | bad)
    follower = await follow()
    assert len(follower.values()) == 594
    assert len(follower.reflector.store.unreadable) == 6
    assert server.count("GET", "limit=") == 2


async def test_page_that_is_too_large_is_read_in_smaller_ones(server, follow, monkeypatch):
    monkeypatch.setitem(pager.SMALL_PAGES_BYTES, PODS, 200_000)
    for i in range(500):
        more = {"spec": "@deep:300000"} if i in {0, 250, 499} else {"spec": "x" * 1000}
        server.put(PODS, pod(f"p{i:03}") | more)
    follower = await follow()
    assert len(follower.values()) == 497
    assert sorted(name for _, name in follower.reflector.store.unreadable) == [
        "p000",
        "p250",
        "p499",
    ]
    # Ten requests to find each, ten until the pages are large again, and three pages' worth.
    assert server.count("GET", "limit=") <= 75
    assert server.count("GET", "limit=1(&|$)") <= 9
    sizes = [int(r.query["limit"]) for r in server.requests if "limit" in r.query]
    server.expire()
    server.drop_watches()
    await asyncio.sleep(5)
    assert len(sizes) < server.count("GET", "limit=") <= 150
    assert len(follower.values()) == 497


async def test_answers_that_are_no_lists_are_not_asked_for_in_a_tight_loop(server, follow):
    follower = await follow()
    await asyncio.sleep(5)
    server.answer_next("GET", "limit=", b"<html>", times=10_000)
    server.expire()
    server.drop_watches()
    await asyncio.sleep(600)
    # Ten at first, then two for each time that it is tried again.
    assert server.count("GET", "limit=") < 80
    server.faults.clear()
    await asyncio.sleep(60)
    server.put(PODS, pod("a"))
    await asyncio.sleep(1)
    assert follower.values() == {"a": "1"}


async def test_whole_list_that_is_too_large_is_tried_again_in_pages(server, follow, monkeypatch):
    monkeypatch.setattr(pager, "ANSWER_LIMIT_BYTES", 10_000)
    for i in range(600):
        server.put(NODES, {"metadata": {"name": f"node-{i}"}})
    server.continue_expired = True
    asyncio.get_running_loop().call_later(100, setattr, server, "continue_expired", False)
    follower = await follow(Selection(NODES))
    assert len(follower.reflector.store) == 600
    assert server.count("GET", "/nodes") < 60


async def test_event_without_a_name_leads_to_a_list(server, follow):
    follower = await follow()
    await asyncio.sleep(5)
    server.silence_watches()
    server.put(PODS, pod("a"))
    for watch in server.open_watches():
        watch.silent = False
    server.send_raw(PODS, b'{"type": "ADDED", "object": {"spec": ' + b"[" * 2000 + b"\n")
    await asyncio.sleep(2)
    assert follower.values() == {"a": "1"}
    assert server.count("GET", "limit=") == 2


async def test_nameless_item_in_a_list_deletes_nothing(server, follow):
    server.put(PODS, pod("a"))
    follower = await follow()
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"9999"},"items":[{"spec":"\xff"}]}'
    server.answer_next("GET", "limit=", body)
    server.expire()
    server.drop_watches()
    await asyncio.sleep(2)
    assert server.count("GET", "limit=") == 2
    assert follower.values() == {"a": "1"}
