"""The small HTTP server of both processes: ``/healthz``, ``/readyz`` and ``/metrics``.

Layer: kube, the only one that may import an HTTP library. It decides nothing: whether the process
is alive and ready is asked of two callables, which must be cheap and must not block.
"""

import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from loguru import logger
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from job_controller.kube.errors import ConfigurationError

_Handler = Callable[[web.Request], Awaitable[web.Response]]
# A scrape under way gets this long when the process stops; a probe needs none of it.
_SHUTDOWN_SECONDS = 0.5


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

    `host` None stands for all addresses of the pod, IPv4 and IPv6: the kubelet probes the pod's
    first address, whichever family it is of.

    A probe answers 200 ``ok`` or 503 ``not ok``; a callable that raises is 503 too, and logged.
    Raises ConfigurationError when the address cannot be bound.
    """
    app = web.Application()
    app.router.add_get("/healthz", _probe("healthz", live))
    app.router.add_get("/readyz", _probe("readyz", ready))
    app.router.add_get("/metrics", _metrics(registry))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        try:
            site = web.SockSite(runner, _listen(host, port))
            await site.start()
        except OSError as error:
            where = f"port {port}" if host is None else f"{host}:{port}"
            raise ConfigurationError(f"cannot serve probes on {where}: {error}") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


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
            logger.exception("a probe's check raised", probe=name)
            good = False
        return web.Response(text="ok\n" if good else "not ok\n", status=200 if good else 503)

    return handle


def _metrics(registry: CollectorRegistry) -> _Handler:
    async def handle(_request: web.Request) -> web.Response:
        # The content type carries a charset, which aiohttp takes only as a header.
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    return handle
