"""A receiver of notifications in this process, which answers as the test says."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from job_controller.core.receivers import Endpoint, MessageFormat, Receiver


@dataclass
class FakeReceiver:
    """What it got, in order, and how it answers: each as (time of the loop, headers, JSON)."""

    url: str = ""
    status: int = 200
    delay_seconds: float = 0.0
    # Further delays, by a text that the path or a query has.
    delays: dict[str, float] = field(default_factory=dict)
    is_endless: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    got: list[tuple[float, dict[str, str], Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    text: str = "ok"
    sent_bytes: int = 0
    refuses: str = ""
    on_request: Callable[[], None] = lambda: None
    # How many requests were being answered at a time, in all and with the same query.
    most_at_once: int = 0
    most_of_one_query: int = 0
    _open: list[str] = field(default_factory=list)

    @property
    def taken(self) -> list[Any]:
        """Return the JSON of all requests."""
        return [body for _, _, body in self.got]

    @property
    def events(self) -> list[str]:
        """Return what it was notified of, as "namespace/job event"."""
        return [
            f"{each['job']['namespace']}/{each['job']['name']} {each['event']}"
            for each in self.taken
        ]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        moment = asyncio.get_running_loop().time()
        text = await request.text()
        self.got.append((moment, dict(request.headers), json.loads(text) if text else None))
        self.paths.append(request.path)
        self.queries.append(dict(request.query))
        self.on_request()
        if self.refuses and self.refuses in text:
            return web.Response(status=500)
        asked = f"{request.path} {request.query_string}"
        others = [seconds for part, seconds in self.delays.items() if part in asked]
        self._open.append(request.query_string)
        self.most_at_once = max(self.most_at_once, len(self._open))
        self.most_of_one_query = max(self.most_of_one_query, self._open.count(request.query_string))
        try:
            await asyncio.sleep(max(self.delay_seconds, *others, 0.0))
        finally:
            self._open.remove(request.query_string)
        if self.is_endless:
            return await self._answer_endlessly(request)
        return web.Response(status=self.status, headers=self.headers, text=self.text)

    async def _answer_endlessly(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 65536)
                self.sent_bytes += 65536
                await asyncio.sleep(0.001)
        return response


@contextlib.asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[FakeReceiver]:
    """Run a receiver on a port of the loopback interface until the context ends."""
    receiver = FakeReceiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def configured(
    folder: Path,
    name: str,
    url: str,
    *,
    namespaces: tuple[str, ...] = ("*",),
    message_format: MessageFormat = MessageFormat.JSON,
) -> Receiver:
    """Return a receiver as the administrator configures it, with its URL in a file."""
    file = folder / f"{name}.url"
    file.write_text(f"{url}/services/T0/SECRET\n")
    return Receiver(name, Endpoint(str(file)), namespaces, message_format)
