"""The probe server over real sockets."""

import asyncio
import contextlib
import errno
import socket

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from daemonset_job.kube.client.errors import ConfigurationError
from daemonset_job.process import http_limits as guard
from daemonset_job.process.healthz import serve_probes

CHECKS = {"live": lambda: True, "ready": lambda: True}


async def fetch(port, path, host="127.0.0.1"):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}") as response,
    ):
        return response.status, await response.text(), response.headers["Content-Type"]


async def test_probes_ask_their_callables_each_time():
    answers = {"live": True, "ready": False}
    async with serve_probes(
        host="127.0.0.1",
        port=0,
        live=lambda: answers["live"],
        ready=lambda: answers["ready"],
        registry=CollectorRegistry(),
    ) as port:
        assert (await fetch(port, "/healthz"))[:2] == (200, "ok\n")
        assert (await fetch(port, "/readyz"))[:2] == (503, "not ok\n")
        answers["ready"] = True
        assert (await fetch(port, "/readyz"))[0] == 200


async def test_a_raising_callable_is_not_ok():
    def broken():
        raise RuntimeError("no")

    async with serve_probes(
        host="127.0.0.1", port=0, live=broken, ready=broken, registry=CollectorRegistry()
    ) as port:
        assert (await fetch(port, "/healthz"))[0] == 503


async def test_metrics_are_those_of_the_given_registry():
    registry = CollectorRegistry()
    Counter("nodes_seen", "Nodes seen.", registry=registry).inc(3)
    async with serve_probes(
        host="127.0.0.1", port=0, live=lambda: True, ready=lambda: True, registry=registry
    ) as port:
        status, text, content_type = await fetch(port, "/metrics")
    assert status == 200
    assert "nodes_seen_total 3.0" in text
    assert content_type.startswith("text/plain")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
async def test_without_a_host_both_families_are_served_on_one_port():
    async with serve_probes(host=None, port=0, registry=CollectorRegistry(), **CHECKS) as port:
        for host in ("127.0.0.1", "[::1]"):
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await fetch(port, path, host))[0] == 200
        with pytest.raises(ConfigurationError, match=f"cannot serve probes on port {port}"):
            async with serve_probes(host=None, port=port, registry=CollectorRegistry(), **CHECKS):
                pass


def without_addresses(address, *, family=socket.AF_INET, **options):
    if family == socket.AF_INET6:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    return create_server(address, family=family, **options)


create_server = socket.create_server


@pytest.mark.parametrize(
    ("name", "stand_in"),
    [("has_dualstack_ipv6", lambda: False), ("create_server", without_addresses)],
)
async def test_a_machine_without_ipv6_serves_ipv4(monkeypatch, name, stand_in):
    monkeypatch.setattr(socket, name, stand_in)
    async with serve_probes(host=None, port=0, registry=CollectorRegistry(), **CHECKS) as port:
        assert (await fetch(port, "/healthz"))[0] == 200


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
async def test_one_host_alone_is_served():
    async with serve_probes(host="::1", port=0, registry=CollectorRegistry(), **CHECKS) as port:
        assert (await fetch(port, "/healthz", "[::1]"))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await fetch(port, "/healthz")


async def test_a_taken_port_is_a_clear_error():
    checks = {"live": lambda: True, "ready": lambda: True, "registry": CollectorRegistry()}
    async with serve_probes(host="127.0.0.1", port=0, **checks) as port:
        with pytest.raises(ConfigurationError, match=f"cannot serve probes on 127.0.0.1:{port}"):
            async with serve_probes(host="127.0.0.1", port=port, **checks):
                pass


# --- bounds ------------------------------------------------------------------------------

HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(registry=None):
    registry = registry or CollectorRegistry()
    async with serve_probes(host="127.0.0.1", port=0, registry=registry, **CHECKS) as port:
        yield port


@contextlib.asynccontextmanager
async def connections(port, number):
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(number)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.sleep(0.01)


async def ended(reader):
    """Return what comes until the connection ends."""
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


@pytest.mark.looptime(end=100)
@pytest.mark.parametrize("sent", [b"", HALF, WHOLE[:-2]])
async def test_half_a_request_is_closed_after_ten_seconds(sent):
    async with serving() as port, connections(port, 1) as [(reader, writer)]:
        writer.write(sent)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(5):  # however slowly it goes on
            await asyncio.sleep(1)
            writer.write(b"a" if sent == HALF else b"")
        await ended(reader)
        assert loop.time() - began == pytest.approx(10, abs=0.5)


async def test_many_half_requests_do_not_keep_a_probe_out():
    async with serving() as port, connections(port, 400) as opened:
        for _, writer in opened:
            writer.write(HALF)
        assert (await fetch(port, "/healthz"))[0] == 200
        left = 0
        for reader, _ in opened:
            try:
                async with asyncio.timeout(0.01):
                    await ended(reader)
            except TimeoutError:
                left += 1
        assert left <= guard.CONNECTIONS_LIMIT
        assert (await fetch(port, "/healthz"))[0] == 200


@pytest.mark.parametrize("endless", [HALF, b"GET /healthz HTTP/1.1\r\n", WHOLE, b"\r\n"])
async def test_a_request_without_an_end_is_closed(endless):
    more = b"X: " + b"a" * 1000 + b"\r\n" if endless.endswith(b"\n") else b"a" * 1000
    async with serving() as port, connections(port, 1) as [(reader, writer)]:
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                writer.write(endless)
                for _ in range(1000):
                    writer.write(more)
                    await writer.drain()
            await ended(reader)
        assert (await fetch(port, "/healthz"))[0] == 200


async def test_a_connection_serves_one_request():
    async with serving() as port, connections(port, 1) as [(reader, writer)]:
        writer.write(WHOLE + WHOLE)
        async with asyncio.timeout(5):
            answer = await ended(reader)
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b"Connection: close" in answer


@pytest.mark.looptime
async def test_metrics_are_made_once_a_second():
    class Counting:
        made = 0

        def collect(self):
            self.made += 1
            return []

    registry = CollectorRegistry()
    counting = Counting()
    registry.register(counting)
    counting.made = 0
    async with serving(registry) as port:
        for _ in range(5):
            await fetch(port, "/metrics")
        assert counting.made == 1
        await asyncio.sleep(1)
        await fetch(port, "/metrics")
        assert counting.made == 2
