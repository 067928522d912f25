"""The log server of all simulated kubelets."""

import asyncio
import contextlib
import ssl
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from aiohttp import web

from daemonset_job.api import names
from daemonset_job.runtime.clock import Clock
from tests.contract.fake_logs import FakeLog, format_entry


class Logs:
    """The log servers of all kubelets in one: HTTPS on a loopback port, as the API server asks."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, str, str], list[FakeLog]] = defaultdict(list)
        self.port = 0
        # A test may answer in its own way.
        self.answer = self._serve
        self._runner: web.AppRunner | None = None

    async def start(self, certificate: Path, key: Path) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        for instances in self.logs.values():
            instances[-1].end()
        loop = asyncio.get_running_loop()
        # An orderly end of TLS takes two, and the API server keeps its connections for later, some
        # of which it has never used and no handler knows of.
        for transport in list(loop._transports.values()):  # type: ignore[attr-defined]
            if (transport.get_extra_info("sockname") or ("", 0))[1] == self.port:
                with contextlib.suppress(AttributeError):  # one that has ended after a late write
                    transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()

    def begin(self, namespace: str, pod: str, clock: Clock) -> FakeLog:
        """Return the log of another instance of the task's container, with times of that clock."""
        log = FakeLog(clock)
        self.logs[namespace, pod, names.CONTAINER_NAME].append(log)
        return log

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        return await self.answer(http)

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        query, where = http.query, http.match_info
        instances = self.logs.get((where["namespace"], where["pod"], where["container"]), [])
        back = 2 if query.get("previous") == "true" else 1
        if len(instances) < back:
            return web.Response(status=400, text=f'container "{where["container"]}" is waiting')
        log = instances[-back]
        return await self._send(http, log, _first_entry(log, query))

    async def _send(self, http: web.Request, log: FakeLog, position: int) -> web.StreamResponse:
        query = http.query
        left = int(query.get("limitBytes") or 2**62)
        response = web.StreamResponse()
        is_open = False
        while left > 0:
            while position < len(log.entries) and left > 0:
                moment, line = log.entries[position]
                position += 1
                raw = format_entry(moment, line, timestamps=query.get("timestamps") == "true")
                if not is_open:
                    is_open = True
                    await response.prepare(http)
                await response.write(raw[:left])
                left -= len(raw)
            if log.ended or query.get("follow") != "true":
                break
            await log.changed()
        if not is_open:
            await response.prepare(http)
        await response.write_eof()
        return response


def _first_entry(log: FakeLog, query: Mapping[str, str]) -> int:
    since = query.get("sinceTime")
    moment = datetime.fromisoformat(since) if since else None
    start = next((i for i, (at, _) in enumerate(log.entries) if not moment or at >= moment), None)
    first = len(log.entries) if start is None else start
    tail = query.get("tailLines")
    return max(first, len(log.entries) - int(tail)) if tail is not None else first
