import asyncio
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.kube.cache.store import Store
from daemonset_job.kube.cache.store_writer import StoreWriter
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import BadRequest, Gone, NotFound, Unavailable
from daemonset_job.kube.client.pod_logs import PodLogOptions
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.resource import NODES, PODS
from daemonset_job.kube.client.response import ANSWER_TOO_LARGE
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.streams import CHUNK_BYTES, EventStream, LineSplitter
from daemonset_job.kube.client.unreadable import Unreadable
from tests.contract.fake_answers import event_line

LOG = PodLogOptions("job-container")
BARE_LOG = PodLogOptions("job-container", timestamps=False)


async def collect(
    client: KubeClient, options: PodLogOptions = LOG, limit_bytes: int | None = None
) -> bytes:
    async with client.stream_pod_log("default", "p", options, limit_bytes=limit_bytes) as chunks:
        return b"".join([chunk async for chunk in chunks])


# --- lines ---------------------------------------------------------------------------------


@given(st.binary().map(lambda raw: raw.replace(b"\r", b"\n")), st.lists(st.integers(1, 9)))
def test_splitter_finds_the_same_lines_however_they_are_cut(data, sizes):
    splitter, lines, rest = LineSplitter(1000, 10), [], data
    for size in [*sizes, len(data) or 1]:
        lines += splitter.feed(rest[:size])
        rest = rest[size:]
    lines += splitter.feed(rest)
    assert lines == [(line, False) for line in data.split(b"\n")[:-1]]


@given(st.lists(st.binary(max_size=30)), st.integers(1, 9))
def test_splitter_keeps_the_head_of_a_line_that_is_too_long(lines, size):
    lines = [line.replace(b"\n", b" ") for line in lines]
    data, splitter, found = b"".join(line + b"\n" for line in lines), LineSplitter(10, 4), []
    for at in range(0, len(data), size):
        found += splitter.feed(data[at : at + size])
        assert sum(map(len, splitter._parts)) <= 10 + size
    assert found == [(line[:4], True) if len(line) > 10 else (line, False) for line in lines]


async def read_events(*chunks, limit_bytes, head_bytes):
    async def arriving():
        for chunk in chunks:
            yield chunk

    how = {"limit_bytes": limit_bytes, "head_bytes": head_bytes}
    return [event async for event in EventStream(arriving(), request="watch", **how)]


async def test_an_event_beyond_the_limit_affects_one_object_only():
    metadata = {"name": "big", "namespace": "ns", "resourceVersion": "7", "uid": "u"}
    big = event_line("MODIFIED", {"kind": "Pod", "metadata": metadata, "data": "x" * 1000})
    small = event_line("ADDED", {"metadata": {"name": "small"}})
    found = await read_events(big[:300], big[300:], small, limit_bytes=500, head_bytes=200)
    assert found == [
        {
            "type": "MODIFIED",
            "object": Unreadable(
                "longer than 500 bytes", namespace="ns", name="big", uid="u", resource_version="7"
            ),
        },
        {"type": "ADDED", "object": {"metadata": {"name": "small"}}},
    ]


async def test_event_of_which_nothing_is_found_is_unavailable():
    with pytest.raises(Unavailable) as caught:
        await read_events(b"x" * 30 + b"\n", limit_bytes=25, head_bytes=25)
    assert caught.value.reason == "MalformedEvent"


async def test_endless_line_holds_no_memory():
    async def chunks():
        for _ in range(1000):
            yield b"x" * CHUNK_BYTES

    tracemalloc.start()
    stream = EventStream(chunks(), request="watch", limit_bytes=1 << 20, head_bytes=1 << 16)
    assert [event async for event in stream] == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


async def test_object_of_three_megabytes_arrives_through_list_and_watch(server, client):
    server.protobuf = False  # which would leave out the data
    changes: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    def parse(raw):
        metadata = raw["metadata"]
        return SimpleNamespace(
            namespace="default",
            name=metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            size=len(raw.get("data", "")),
        )

    big = {"metadata": {"name": "big"}, "data": "x" * 3_000_000}
    server.put(PODS, big)
    writer = StoreWriter(
        Selection(PODS),
        Store(),
        parse=parse,
        on_change=lambda _, new: changes.put_nowait((new.name, new.size)),
    )
    reflector = Reflector(client, writer, clock=server.clock)
    async with asyncio.timeout(20):
        task = asyncio.create_task(reflector.run())
        assert await changes.get() == ("big", 3_000_000)
        server.put(PODS, big | {"data": "y" * 3_000_001})
        server.put(PODS, {"metadata": {"name": "small"}})
        assert await changes.get() == ("big", 3_000_001)
        assert await changes.get() == ("small", 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- watches -------------------------------------------------------------------------------


async def test_watch_from_an_expired_version_is_gone(server, client):
    server.expire()
    with pytest.raises(Gone):
        async with client.watch(Selection(NODES), resource_version="1"):
            pass


async def test_watch_ends_when_the_server_ends_it(server, client):
    async with client.watch(Selection(NODES), resource_version="0") as events:
        server.put(NODES, {"metadata": {"name": "n"}})
        assert (await anext(events))["object"]["metadata"]["name"] == "n"
        server.drop_watches()
        assert [event async for event in events] == []


async def test_watch_that_is_left_is_closed_at_the_server(server, client):
    async with client.watch(Selection(NODES), resource_version="0"):
        assert len(server.open_watches(NODES)) == 1
    for _ in range(100):
        await asyncio.sleep(0.01)
        if not server.open_watches():
            return
    raise AssertionError("the server still has the watch open")


@pytest.mark.looptime
async def test_silent_watch_is_unavailable(server, client):
    server.bookmark_seconds = None
    async with client.watch(
        Selection(NODES), resource_version="0", idle_timeout_seconds=20
    ) as events:
        with pytest.raises(Unavailable) as caught:
            await anext(events)
    assert caught.value.reason == "IdleTimeout"
    assert asyncio.get_running_loop().time() == pytest.approx(20, abs=0.1)


async def test_error_of_the_consumer_is_not_translated(server, client):
    with pytest.raises(OSError, match="mine"):
        async with client.watch(Selection(NODES), resource_version="0"):
            raise OSError("mine")


# --- logs ----------------------------------------------------------------------------------


async def test_log_arrives_with_timestamps_and_options(server, client):
    log = server.log("p")
    log.write("one", "two", at=datetime(2030, 1, 1, tzinfo=UTC))
    log.write("three", at=datetime(2030, 1, 1, 0, 0, 9, 500, tzinfo=UTC))
    assert await collect(client) == (
        b"2030-01-01T00:00:00.000000000Z one\n"
        b"2030-01-01T00:00:00.000000000Z two\n"
        b"2030-01-01T00:00:09.000500000Z three\n"
    )
    assert await collect(client, replace(BARE_LOG, tail_lines=2)) == b"two\nthree\n"
    since = datetime(2030, 1, 1, 0, 0, 9, 999, tzinfo=UTC)  # in whole seconds: rounded down
    assert await collect(client, replace(BARE_LOG, since_time=since)) == b"three\n"
    assert server.requests[-1].query["sinceTime"] == "2030-01-01T00:00:09Z"
    assert await collect(client, BARE_LOG, limit_bytes=6) == b"one\ntw"


async def test_followed_log_is_live_and_ends_with_the_container(server, client):
    log = server.log("p")
    asyncio.get_running_loop().call_later(0.05, log.write, "one")
    async with client.follow_pod_log("default", "p", BARE_LOG) as chunks:
        assert await anext(chunks) == b"one\n"
        log.write_raw(b"tw")
        assert await anext(chunks) == b"tw"
        log.write_raw(b"o\n")
        log.end()
        assert b"".join([chunk async for chunk in chunks]) == b"o\n"


@pytest.mark.looptime
async def test_followed_log_may_be_silent_as_long_as_it_is_allowed_to(server, client):
    server.log("p")
    loop = asyncio.get_running_loop()
    loop.call_later(5000, server.log("p").write, "late")
    async with client.follow_pod_log("default", "p", BARE_LOG) as chunks:
        assert await anext(chunks) == b"late\n"
    assert loop.time() == pytest.approx(5000, abs=1)
    async with client.follow_pod_log("default", "p", LOG, idle_timeout_seconds=60) as chunks:
        await anext(chunks)
        with pytest.raises(Unavailable) as caught:
            await anext(chunks)
    assert caught.value.reason == "IdleTimeout"
    server.log("q")
    with pytest.raises(Unavailable) as caught:
        async with client.follow_pod_log("default", "q", LOG, idle_timeout_seconds=60):
            pass
    assert caught.value.reason == "Timeout"


async def test_broken_follow_is_unavailable(server, client):
    log = server.log("p")
    log.write("one")
    async with client.follow_pod_log("default", "p", LOG) as chunks:
        await anext(chunks)
        log.break_followers()
        with pytest.raises(Unavailable):
            await anext(chunks)


async def test_log_of_a_container_that_has_not_started_is_a_bad_request(server, client):
    with pytest.raises(NotFound):
        await collect(client)
    server.put(PODS, {"metadata": {"name": "p"}})
    with pytest.raises(BadRequest, match="waiting to start"):
        await collect(client)
    with pytest.raises(BadRequest, match="previous terminated container"):
        await collect(client, replace(LOG, previous=True))
    server.log("p", previous=True).write("done")
    assert await collect(client, replace(BARE_LOG, previous=True)) == b"done\n"


async def test_short_read_is_bounded(server, client):
    log = server.log("p")
    log.write("x" * 100_000, "done")
    read = await client.read_pod_log("default", "p", BARE_LOG, limit_bytes=50)
    assert read == b"x" * 50
    tail = await client.read_pod_log(
        "default", "p", replace(BARE_LOG, tail_lines=1), limit_bytes=50
    )
    assert tail == b"done\n"


async def test_short_read_of_an_endless_log_ends_at_its_limit(server, client):
    server.answer_endlessly("/log", b"x" * (1 << 20))
    tracemalloc.start()
    async with asyncio.timeout(20):
        for _ in range(3):  # the connection is not used again
            read = await client.read_pod_log("default", "p", LOG, limit_bytes=100_000)
            assert read == b"x" * 100_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Server and client together, with what lies in the sockets between them.
    assert peak < 8 << 20
    assert server.sent_bytes < 64 << 20


async def test_answer_without_an_end_is_unavailable(server, client):
    server.answer_endlessly("/nodes", b" " * (1 << 20))
    request = Request("get", NODES, name="n", limit_bytes=2 << 20)
    tracemalloc.start()
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable) as caught:
            await client._transport.send(request)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.reason == ANSWER_TOO_LARGE
    assert peak < 8 << 20
    assert len(server.requests) == 1
    # What is asked for without a limit of its own has one too.
    assert Request("get", NODES).limit_bytes < 1 << 27


@pytest.mark.looptime(end=1000)
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get(NODES, "n"),
        lambda client: client.list(NODES),
        lambda client: client.page(Selection(NODES), limit=1),
        lambda client: client.merge_patch(NODES, "n", {}),
        lambda client: client.create(NODES, {}),
        lambda client: client.delete(NODES, "n"),
        lambda client: client.read_pod_log("default", "p", LOG, limit_bytes=1000),
    ],
)
async def test_answer_that_trickles_is_a_timeout(server, client, ask):
    server.answer_endlessly("/", b" ", pause_seconds=1)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable) as caught:
        await ask(client)
    assert caught.value.reason == "Timeout"
    assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=0.5)


async def test_log_read_as_a_stream_ends_at_its_limit(server, client):
    server.answer_endlessly("/log", b"x" * 100_000)
    async with asyncio.timeout(20):
        assert await collect(client, limit_bytes=150_000) == b"x" * 150_000


async def test_chunks_and_memory_are_bounded_for_one_endless_line(server, client):
    log = server.log("p")
    part = b"x" * (1 << 20)
    for _ in range(24):
        log.write_raw(part)
    log.end()
    largest = total = 0
    tracemalloc.start()
    async with client.stream_pod_log("default", "p", BARE_LOG) as chunks:
        async for chunk in chunks:
            largest, total = max(largest, len(chunk)), total + len(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 24 << 20
    assert largest <= CHUNK_BYTES
    # Server and client together; a reader of whole lines would need 24 MiB by itself.
    assert peak < 8 << 20


async def test_many_streams_at_once_beside_requests(server):
    async with KubeClient(server.url, connections=2) as client:
        for i in range(100):
            server.log(f"p{i}").write("hello")
        server.put(NODES, {"metadata": {"name": "n"}})
        tokens: asyncio.Queue[int] = asyncio.Queue()

        async def follow(i: int) -> None:
            async with client.follow_pod_log("default", f"p{i}", BARE_LOG) as chunks:
                async for chunk in chunks:
                    if b"done" in chunk:
                        tokens.put_nowait(i)

        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            for i in range(100):
                group.create_task(follow(i))
            await asyncio.sleep(0.1)
            await client.get(NODES, "n")
            for i in range(100):
                server.log(f"p{i}").write("done")
            assert sorted([await tokens.get() for _ in range(100)]) == list(range(100))
            for i in range(100):
                server.log(f"p{i}").end()
