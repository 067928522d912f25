"""Our transport beside the official ``kubernetes.aio`` ApiClient: CPU, wall time, memory.

    .venv/bin/python -m benchmarks.clients

The fake API server of the contract tests runs in a process of its own. What is around a request
(deadlines, repetitions, 401, metrics, limits) is ours in both cases; what differs is who sends it.
Rounds alternate, so that a noisy machine is as noisy for both.
"""

import argparse
import asyncio
import gc
import json
import mmap
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from kubernetes.aio.client import ApiClient, Configuration

from daemonset_job.kube.client.connection import Anonymous, Connection
from daemonset_job.kube.client.pod_logs import LOG_BUFFER_BYTES
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.resource import POD_LOGS, PODS
from daemonset_job.kube.client.transport import CONNECT_TIMEOUT_SECONDS, Transport
from tests.contract.fake_api import FakeApiServer

AT_ONCE = 16  # as many as the terminator has short reads
BURST_MIB = 8
UNREAD_STREAMS = 100  # ApiClient's own buffers would need gigabytes for more.
REQUESTS = 1000


class OfficialTransport(Transport):
    """Our transport, whose requests ApiClient sends, with settings as near to ours as it has."""

    buffer_bytes = LOG_BUFFER_BYTES

    def _session(self, connections: int) -> Any:
        settings = Configuration(host=self._base_url, connection_pool_maxsize=connections)
        settings.client_session_kwargs = {"read_bufsize": self.buffer_bytes, "trust_env": False}
        api = ApiClient(settings)
        api.user_agent = self._user_agent
        api.set_default_header("Accept-Encoding", "identity")
        # As ours: nothing is repeated below the transport. Neither has a public name.
        pool = api.rest_client._create_pool_manager()  # noqa: SLF001 - see above
        pool._retry_connection = False  # noqa: SLF001 - see above
        api.rest_client.pool_manager = pool
        return api

    def _open(self, session: Any, request: Request, *_: object, **__: object) -> Any:
        # As aiohttp's own session does it.
        manager = aiohttp.client._RequestContextManager  # noqa: SLF001 - it has no public name
        return manager(self._ask(session, request))

    async def _ask(self, api: Any, request: Request) -> Any:
        headers = {"Accept": request.accept, "Content-Type": request.content_type}
        query = list(request.query.items())
        method, url, headers, body, _ = await api.param_serialize(
            request.method,
            request.path,
            query_params=query,
            header_params=headers,
            body=request.body,
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS)
        sent = await api.call_api(method, url, headers, body, _request_timeout=timeout)
        return sent.response


class DefaultTransport(OfficialTransport):
    """The same with ApiClient's own buffers for each stream."""

    buffer_bytes = 2**21


CLIENTS: dict[str, type[Transport]] = {
    "ours": Transport,
    "official": OfficialTransport,
    "official, own buffers": DefaultTransport,
}


@asynccontextmanager
async def connected(kind: str, url: str) -> AsyncIterator[Transport]:
    """Yield a transport of that kind, and close it."""
    make, there = CLIENTS[kind], Connection(url, Anonymous())
    transport = make(there, user_agent="b", connections=AT_ONCE, stream_connections=4096)
    try:
        yield transport
    finally:
        await transport.close()


def log_read(_: str) -> Request:
    """Return the short read of a log."""
    query = {"container": "job-container", "timestamps": "true", "limitBytes": "65536"}
    return Request("get", POD_LOGS, "default", "read", query, accept="*/*")


def patch(kind: str) -> Request:
    """Return a merge patch of 20 nodes' evidence; ApiClient insists on serializing it itself."""
    entry = {"completedAt": "2030-01-01T00:00:00Z", "uid": "0" * 36}
    body: Any = {"metadata": {"annotations": {f"n{i}": json.dumps(entry) for i in range(20)}}}
    sent = json.dumps(body, separators=(",", ":")).encode() if kind == "ours" else body
    content, query = "application/merge-patch+json", {"fieldValidation": "Strict"}
    return Request("patch", PODS, "default", "patched", query, sent, content)


async def cost(kind: str, url: str, make: Callable[[str], Request]) -> tuple[float, ...]:
    """Return the CPU seconds of this process, and the elapsed seconds, of all requests."""
    async with connected(kind, url) as transport:
        await transport.send(make(kind))
        gc.collect()
        began = time.process_time(), time.perf_counter()
        # The pool lets AT_ONCE of them out.
        await asyncio.gather(*(transport.send(make(kind)) for _ in range(REQUESTS)))
        return time.process_time() - began[0], time.perf_counter() - began[1]


async def compare(url: str, make: Callable[[str], Request], rounds: int) -> list[str]:
    """Return a line each for CPU and wall time of both, in milliseconds for each request."""
    costs = []
    for at in range(rounds + 1):
        order = ("ours", "official") if at % 2 else ("official", "ours")
        costs.append({kind: await cost(kind, url, make) for kind in order})
    lines = []
    for index, what in enumerate(("cpu", "wall")):
        # The first round warms up. Seconds for 1,000 requests are milliseconds for each.
        pairs = [(each["ours"][index], each["official"][index]) for each in costs[1:]]
        ours, theirs = map(statistics.median, zip(*pairs, strict=True))
        ratios = [b / a for a, b in pairs]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"{make.__name__} {what}: ours {ours:.3f}, official {theirs:.3f} ms: {ratio}")
    return lines


async def follow(kind: str, url: str, pods: str, streams: int) -> float:
    """Return the MiB that the followed logs add, after a chunk of each was read."""
    async with connected(kind, url) as transport, AsyncExitStack() as stack:
        before = resident_mib()
        for number in range(streams):
            name, query = f"{pods}-{number}", {"follow": "true"}
            call = Request("get", POD_LOGS, "default", name, query, accept="*/*")
            log = transport.stream(call, idle_timeout_seconds=None, buffer_bytes=LOG_BUFFER_BYTES)
            await anext(await stack.enter_async_context(log))
        await asyncio.sleep(3)
        return resident_mib() - before


def resident_mib() -> float:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE / 2**20


async def serve(streams: int) -> None:
    """Print the URL, and serve the pods and logs until the process is stopped."""
    server = FakeApiServer()
    server.put(PODS, {"metadata": {"name": "patched"}})
    part = b"x" * 2**20
    server.log("read").write_raw(b"a line of forty bytes, as tasks print them\n" * 100)
    for number in range(streams):
        server.log(f"quiet-{number}").write("a line")
        for _ in range(BURST_MIB):
            server.log(f"unread-{number}").write_raw(part)
    print(await server.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--follow", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.streams))
    elif options.follow:
        kind, url, pods = options.follow
        print(uvloop.run(follow(kind, url, pods, options.streams)))
    else:
        compare_all(options.rounds, options.streams)


def compare_all(rounds: int, streams: int) -> None:
    """Print all comparisons; each memory is that of a new process."""
    again = [sys.executable, "-m", "benchmarks.clients", "--streams", str(streams)]
    pipe = subprocess.PIPE
    with subprocess.Popen([*again, "--serve"], stdin=pipe, stdout=pipe, text=True) as server:
        url = (server.stdout or sys.stdin).readline().strip()
        for make in (log_read, patch):
            print(*uvloop.run(compare(url, make, rounds)), sep="\n")
        for pods, number in (("quiet", streams), ("unread", UNREAD_STREAMS)):
            mib: dict[str, list[float]] = {kind: [] for kind in CLIENTS}
            for kind in list(CLIENTS) * 3:
                follower = [*again, "--streams", str(number), "--follow", kind, url, pods]
                mib[kind].append(float(subprocess.check_output(follower)))
            for kind, found in mib.items():
                print(f"{number} {pods} logs: {kind} {statistics.median(found):.0f} MiB")
        server.communicate()


if __name__ == "__main__":
    main()
