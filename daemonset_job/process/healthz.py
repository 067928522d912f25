"""The small HTTP server of both processes: ``/healthz``, ``/readyz`` and ``/metrics``.

It decides nothing: whether the process
is alive and ready is asked of two callables, which must be cheap and must not block. Every pod of
the cluster may reach it: what one can make it hold or do is bounded (see guard).
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from loguru import logger
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from daemonset_job.kube.client.errors import ConfigurationError
from daemonset_job.process.http_limits import ConnectionGuard

_Handler = Callable[[web.Request], Awaitable[web.Response]]
# A scrape under way gets this long when the process stops; a probe needs none of it.
_SHUTDOWN_SECONDS = 0.5
# Of a thousand Jobs the text takes 14 ms to make, in the only loop. So it is made once a second,
# however many ask.
_METRICS_SECONDS = 1.0
# Paths and headers of kubelets and Prometheus have some 200 bytes.
_HEADER_BYTES = 4096


@asynccontextmanager
async def serve_probes(
    *,
    host: str | None,
    port: int,
    live: Callable[[], bool],
    ready: Callable[[], bool],
    registry: CollectorRegistry,
) -> AsyncIterator[int]:
    """Serve the three paths while the context is open; yields the port (useful for `port` 0).

    `host` None means all addresses of the pod, IPv4 and IPv6: the kubelet probes the pod's
    first address, whichever family it is of.

    A probe answers 200 ``ok`` or 503 ``not ok``; a callable that raises is 503 too, and logged.
    Raises ConfigurationError when the address cannot be bound.
    """
    app = web.Application()
    app.router.add_get("/healthz", _probe("healthz", live))
    app.router.add_get("/readyz", _probe("readyz", ready))
    app.router.add_get("/metrics", _metrics(registry))
    # One request for each connection, whose life is short: none is cut while it is used again.
    app.on_response_prepare.append(_close_after)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        max_line_size=_HEADER_BYTES,
        max_field_size=_HEADER_BYTES,
    )
    await runner.setup()
    try:
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        try:
            listening = _listen(host, port)
            server = await loop.create_server(ConnectionGuard(runner.server), sock=listening)
        except OSError as error:
            where = f"port {port}" if host is None else f"{host}:{port}"
            raise ConfigurationError(f"cannot serve probes on {where}: {error}") from error
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()


async def _close_after(_request: web.Request, response: web.StreamResponse) -> None:
    response.force_close()
    response.headers["Connection"] = "close"


def _listen(host: str | None, port: int) -> socket.socket:
    """Return a socket that listens; raises OSError.

    One socket for both families, so that port 0 gives one port. Where the kernel has no IPv6, or
    no address of it can be bound, it is a socket for IPv4 alone.
    """
    if host is not None:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return socket.create_server(("0.0.0.0", port))  # noqa: S104 - as the docstring says


def _probe(name: str, check: Callable[[], bool]) -> _Handler:
    async def handle(_request: web.Request) -> web.Response:
        try:
            good = check()
        except Exception:  # noqa: BLE001 - whatever it is, the kubelet must get an answer
            logger.exception("the check of a probe failed", probe=name)
            good = False
        return web.Response(text="ok\n" if good else "not ok\n", status=200 if good else 503)

    return handle


def _metrics(registry: CollectorRegistry) -> _Handler:
    text, made_at = b"", float("-inf")

    async def handle(_request: web.Request) -> web.Response:
        nonlocal text, made_at
        now = asyncio.get_running_loop().time()
        if now - made_at >= _METRICS_SECONDS:
            text, made_at = generate_latest(registry), now
        # The content type carries a charset, which aiohttp takes only as a header.
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return handle
