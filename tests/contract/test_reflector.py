"""A cache that follows a list and a watch, whatever becomes of them."""

import asyncio
import json

import pytest

from daemonset_job.kube.cache.multi_reflector import MultiReflector, wait_synced
from daemonset_job.kube.cache.resource_version import is_newer
from daemonset_job.kube.client.resource import NODES, PODS
from daemonset_job.kube.client.selection import Selection
from tests.contract.fake_answers import event_line
from tests.contract.followers import Follower, follow, make_reflector, pod

__all__ = ["follow"]

# Whatever is waited for in vain ends there instead of hanging.
pytestmark = pytest.mark.looptime(end=20_000)


async def test_list_then_watch_keeps_the_store_equal(server, follow):
    server.put(PODS, pod("a"))
    follower = await follow()
    assert follower.take() == [("a", "-", "1")]
    server.put(PODS, pod("b"))
    server.put(PODS, pod("a", "2", owner="other"))
    server.remove(PODS, "b")
    await asyncio.sleep(0.1)
    assert follower.take() == [("b", "-", "1"), ("a", "1", "2"), ("b", "1", "-")]
    store = follower.reflector.store
    assert [item.name for item in store.by_index("owner", "other")] == ["a"]
    assert store.by_index("owner", "o") == []
    assert follower.reflector.writer.resource_version == str(server.storage.version)
    assert follower.progress[-1] == ("", str(server.storage.version))
    assert follower.reflector.healthy
    assert server.count("GET", "/pods") == 2


async def test_selectors_and_metadata_only_reach_the_server(server, follow):
    server.put(PODS, pod("a", "1"))
    server.put(PODS, pod("b", "2"))
    server.put(PODS, pod("c", "1", namespace="elsewhere"))
    follower = await follow(
        Selection(PODS, "default", "value=1", "metadata.name!=x", metadata_only=True)
    )
    assert follower.values() == {"a": "1"}
    server.put(PODS, pod("b", "1"))
    server.put(PODS, pod("a", "2"))
    await asyncio.sleep(0.1)
    assert follower.values() == {"b": "1"}
    assert {item.kind for item in follower.reflector.store} == {"PartialObjectMetadata"}


async def test_nothing_is_listed_before_another_cache_has_been(server, client):
    server.put(PODS, pod("a"))
    after = asyncio.Event()
    follower = Follower(server, client, after=after)
    await asyncio.sleep(60)
    assert not follower.reflector.has_synced
    assert server.count("GET", "/pods") == 0
    after.set()
    await follower.reflector.synced.wait()
    assert follower.values() == {"a": "1"}
    follower.task.cancel()


async def test_dropped_watch_is_resumed_without_listing(server, follow):
    follower = await follow()
    await asyncio.sleep(5)
    server.drop_watches()
    server.put(PODS, pod("a"))
    await asyncio.sleep(2)
    assert follower.values() == {"a": "1"}
    assert server.count("GET", "limit=") == 1


async def test_silent_watch_is_found_out_and_replaced(server, follow):
    server.bookmark_seconds = None
    follower = await follow()
    server.silence_watches()
    server.put(PODS, pod("a"))
    await asyncio.sleep(60)
    assert follower.values() == {}
    await asyncio.sleep(12)
    assert follower.values() == {"a": "1"}
    assert server.count("GET", "limit=") == 1


async def test_bookmarks_keep_a_quiet_watch_alive_and_move_the_version(server, follow):
    follower = await follow()
    before = follower.reflector.writer.resource_version
    server.put(NODES, {"metadata": {"name": "n"}})  # another type: only the version moves
    await asyncio.sleep(250)
    assert server.count("GET", "watch=") == 1
    assert int(follower.reflector.writer.resource_version) > int(before)
    assert follower.reflector.healthy


async def test_server_without_bookmarks_is_followed_too(server, follow):
    server.bookmarks = False
    follower = await follow()
    await asyncio.sleep(1000)
    server.put(PODS, pod("a"))
    await asyncio.sleep(1)
    assert follower.values() == {"a": "1"}


@pytest.mark.parametrize("as_event", [False, True])
async def test_after_expired_history_a_list_reports_the_difference(server, follow, as_event):
    for name in "abcd":
        server.put(PODS, pod(name))
    follower = await follow()
    follower.take()
    await asyncio.sleep(5)
    server.silence_watches()
    server.put(PODS, pod("b", "2"))
    server.remove(PODS, "c")
    server.remove(PODS, "d")
    server.put(PODS, pod("d", "new"))  # another object of the same name
    server.put(PODS, pod("e"))
    server.expire(as_event=as_event)
    server.drop_watches()
    await asyncio.sleep(5)
    assert sorted(follower.take()) == [
        ("b", "1", "2"),
        ("c", "1", "-"),
        ("d", "-", "new"),
        ("d", "1", "-"),
        ("e", "-", "1"),
    ]
    assert follower.values() == {"a": "1", "b": "2", "d": "new", "e": "1"}
    server.put(PODS, pod("f"))
    await asyncio.sleep(1)
    assert "f" in follower.values()


async def test_endless_410_is_not_asked_in_a_tight_loop(server, follow):
    await follow()
    await asyncio.sleep(5)
    server.fail_next("GET", "watch=true", 410, times=1000)
    server.drop_watches()
    server.requests.clear()
    await asyncio.sleep(300)
    assert server.count("GET", "limit=") < 40


async def test_watches_that_end_at_once_are_not_opened_in_a_tight_loop(server, follow):
    await follow()
    server.requests.clear()
    for _ in range(600):
        server.drop_watches()
        await asyncio.sleep(0.5)
    assert server.count("GET", "watch=") < 60


async def test_watch_ending_after_each_event_is_not_reopened_in_a_tight_loop(server, follow):
    follower = await follow()
    server.requests.clear()
    for number in range(1200):
        server.put(PODS, pod("a", str(number)))
        await asyncio.sleep(0.05)
        server.drop_watches()
    assert server.count("GET", "watch=") < 20
    await asyncio.sleep(31)
    assert follower.values() == {"a": "1199"}


def restore(server):
    """Bring etcd back from a backup: older versions, some of which are given a second time."""
    server.put(PODS, pod("a", "1"))
    before = server.storage.version
    server.put(PODS, pod("a", "lost"))
    server.put(PODS, pod("b", "lost"))
    server.drop_watches()
    return before


async def test_watches_refused_again_and_again_lead_to_a_list(server, follow):
    version = restore(server)
    follower = await follow()
    assert follower.values() == {"a": "lost", "b": "lost"}
    server.storage.version = version
    server.put(PODS, pod("a", "restored"))
    server.storage.all(("", "pods")).pop(("default", "b"))
    server.storage.history.clear()
    server.requests.clear()
    server.fail_next("GET", "watch=", 504, times=5, message="Too large resource version: 1003")
    server.drop_watches()
    await asyncio.sleep(3)
    # Its version is that of the lost one.
    assert follower.values() == {"a": "restored"}
    assert int(follower.reflector.writer.resource_version) < int(version) + 2
    await asyncio.sleep(60)
    assert 1 <= server.count("GET", "limit=") <= 2
    server.put(PODS, pod("c"))
    await asyncio.sleep(0.1)
    assert follower.values() == {"a": "restored", "c": "1"}


async def test_bookmarks_below_the_known_version_lead_to_a_list(server, follow):
    version = restore(server)
    follower = await follow()
    server.storage.version = version - 1
    server.silence_watches()  # nothing newer than what the watch began with
    server.put(PODS, pod("a", "restored"))
    server.storage.history.clear()
    for watch in server.watches:
        watch.silent = False
    await asyncio.sleep(90)
    assert follower.values()["a"] == "lost"
    await asyncio.sleep(60)
    assert follower.values()["a"] == "restored"


async def test_one_bookmark_of_a_server_that_is_behind_leads_to_no_list(server, follow):
    follower = await follow()
    newest = server.storage.version
    for _ in range(5):
        server.storage.version = newest - 1
        server.send_bookmarks()
        server.storage.version = newest
        server.send_bookmarks()
        await asyncio.sleep(1)
    assert server.count("GET", "limit=") == 1
    assert follower.reflector.writer.resource_version == str(newest)


async def test_without_an_answer_nothing_is_listed(server, follow):
    await follow()
    server.requests.clear()
    server.reset_next("GET", "watch=", times=8)
    server.drop_watches()
    await asyncio.sleep(300)
    assert server.count("GET", "limit=") == 0


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_a_failed_list_is_retried(server, client, status):
    server.put(PODS, pod("a"))
    server.fail_next("GET", "/pods", status, times=6)
    follower = Follower(server, client)
    assert not follower.reflector.healthy
    await asyncio.sleep(60)
    assert follower.values() == {"a": "1"}
    follower.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await follower.task
    assert not follower.reflector.healthy


async def test_retry_after_is_honoured_between_lists(server, client):
    server.fail_next("GET", "/pods", 429, retry_after=45)
    follower = Follower(server, client)
    await asyncio.sleep(44)
    assert len(server.requests) == 1
    await asyncio.sleep(2)
    assert follower.reflector.has_synced
    follower.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await follower.task


async def test_cut_watch_and_truncated_line_lose_nothing(server, follow):
    server.protobuf = False
    follower = await follow()
    await asyncio.sleep(5)
    server.silence_watches()
    stored = server.put(PODS, pod("a"))
    server.send_raw(PODS, event_line("ADDED", stored)[:50])
    server.drop_watches()
    await asyncio.sleep(2)
    assert follower.values() == {"a": "1"}


@pytest.mark.parametrize("line", [b"{not json}\n", b"[]\n", b'{"type": "ADDED"}\n', b"\n"])
async def test_line_that_is_no_event_is_survived(server, follow, line):
    server.protobuf = False
    follower = await follow()
    await asyncio.sleep(5)
    server.send_raw(PODS, line)
    server.put(PODS, pod("a"))
    await asyncio.sleep(2)
    assert follower.values() == {"a": "1"}


async def test_late_and_doubled_events_do_not_bring_back_the_past(server, follow):
    server.protobuf = False
    first = server.put(PODS, pod("a", "1"))
    follower = await follow()
    second = server.put(PODS, pod("a", "2"))
    third = server.put(PODS, pod("b", "1"))
    server.remove(PODS, "b")
    await asyncio.sleep(0.1)
    follower.take()
    for raw in (second, first, third, third):
        server.send_raw(PODS, event_line("MODIFIED", raw))
    server.send_raw(PODS, event_line("DELETED", second))
    await asyncio.sleep(0.1)
    assert follower.take() == []
    assert follower.values() == {"a": "2"}


async def test_list_comes_in_pages(server, follow):
    for i in range(1201):
        server.put(NODES, {"metadata": {"name": f"node-{i}"}})
    follower = await follow(Selection(NODES))
    assert len(follower.reflector.store) == 1201
    assert server.count("GET", "limit=500") == 3


async def test_expired_page_makes_one_full_list(server, follow):
    for i in range(600):
        server.put(NODES, {"metadata": {"name": f"node-{i}"}})
    server.continue_expired = True
    follower = await follow(Selection(NODES))
    assert len(follower.reflector.store) == 600
    assert len(follower.changes) == 600
    lists = [request for request in server.requests if "watch" not in request.query]
    assert [request.query for request in lists] == [
        {"limit": "500"},
        {"limit": "500", "continue": lists[1].query["continue"]},
        {},
    ]


async def test_events_pile_up_during_a_slow_list(server, follow):
    for i in range(50):
        server.put(PODS, pod(f"p{i}"))
    follower = await follow()
    await asyncio.sleep(5)
    server.expire()
    server.delay_next("GET", "limit=", seconds=20)
    server.delay_next("GET", "watch=", seconds=20, times=2)
    server.drop_watches()
    for i in range(300):
        server.put(PODS, pod(f"p{i % 60}", str(i)))
        if i % 7 == 0:
            server.remove(PODS, f"p{i % 60}")
        await asyncio.sleep(0.2)
    await asyncio.sleep(60)
    actual = {
        raw["metadata"]["name"]: raw["metadata"]["labels"]["value"] for raw in server.list(PODS)
    }
    assert follower.values() == actual


async def test_failing_on_change_ends_the_reflector(server, client):
    def on_change(old, new):
        raise AssertionError("defect")

    server.put(PODS, pod("a"))
    reflector = make_reflector(server, client, on_change=on_change)
    with pytest.raises(AssertionError, match="defect"):
        await reflector.run()


async def test_silence_without_a_server_is_unhealthy_until_it_answers(server, follow):
    follower = await follow()
    reflector = follower.reflector
    server.fail_next("GET", "/pods", 503, times=10_000)
    server.drop_watches()
    await asyncio.sleep(350)
    assert reflector.healthy
    await asyncio.sleep(30)
    assert not reflector.healthy
    assert reflector.silence_seconds > 370
    server.faults.clear()
    await asyncio.sleep(35)
    assert reflector.healthy
    assert reflector.silence_seconds < 70


async def test_watch_that_gives_the_same_event_again_and_again_is_unhealthy(server, follow):
    """As it was with events that could not be parsed: opened, broken, opened, and so on."""
    follower = await follow()
    server.bookmark_seconds = None
    server.answer_next("GET", "limit=", b"<html>", times=10_000)
    server.answer_next("GET", "watch=", b"{not json}\n", times=10_000)
    server.drop_watches()
    await asyncio.sleep(380)
    assert not follower.reflector.healthy


@pytest.mark.parametrize("bookmarks", [False, True])
async def test_where_nothing_happens_a_watch_that_lasts_is_healthy(server, follow, bookmarks):
    server.bookmarks = bookmarks
    follower = await follow()
    for _ in range(60):
        await asyncio.sleep(17)
        assert follower.reflector.healthy
        assert follower.reflector.silence_seconds < 75


async def test_forbidden_namespace_is_silent_and_the_others_are_healthy(server, client):
    def make(namespace, store):
        return make_reflector(server, client, namespace, store)

    multi = MultiReflector(["one", "two"], make)
    task = asyncio.create_task(multi.run())
    await wait_synced([multi], ["one"])
    await wait_synced([multi], ["two"])
    server.fail_next("GET", "/namespaces/two/pods", 403, times=10_000)
    server.drop_watches()
    await asyncio.sleep(400)
    assert multi.healthy
    assert multi.silence_seconds > 390
    server.fail_next("GET", "/namespaces/one/pods", 503, times=10_000)
    server.drop_watches()
    await asyncio.sleep(400)
    assert not multi.healthy
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("namespaces", "expected"), [([], ["a", "b", "c"]), (["two", "one", "one"], ["a", "b"])]
)
async def test_multi_reflector_has_the_configured_namespaces(server, client, namespaces, expected):
    for name, namespace in (("a", "one"), ("b", "two"), ("c", "three")):
        server.put(PODS, pod(name, namespace=namespace))

    def make(namespace, store):
        return make_reflector(server, client, namespace, store)

    multi = MultiReflector(namespaces, make, indexers={"owner": lambda item: [item.owner]})
    assert not multi.healthy
    task = asyncio.create_task(multi.run())
    await wait_synced([multi], namespaces)
    await asyncio.sleep(100)
    assert sorted(item.name for item in multi.store) == expected
    assert sorted(item.name for item in multi.store.by_index("owner", "o")) == expected
    assert multi.healthy
    assert multi.silence_seconds < 70
    assert len(multi.reflectors) == max(1, len(set(namespaces)))
    # One namespace listed again takes nothing away from the others.
    server.remove(PODS, "a", "one")
    server.expire()
    server.drop_watches()
    await asyncio.sleep(3)
    assert sorted(item.name for item in multi.store) == expected[1:]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_versions_compare_as_integers_where_they_are():
    assert is_newer("10", "9")
    assert not is_newer("9", "9")
    assert is_newer("9", "")
    assert not is_newer("", "9")
    assert is_newer("abc", "9")
    assert not is_newer("abc", "abc")


def test_event_lines_are_what_the_tests_take_them_for():
    assert json.loads(event_line("ADDED", {"kind": "Pod"})) == {
        "type": "ADDED",
        "object": {"kind": "Pod"},
    }
