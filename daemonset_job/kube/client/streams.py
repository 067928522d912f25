"""Answers without an end: chunks, lines and watch events, each bounded in memory.

``aiohttp``'s own readline() raises LineTooLong for long lines and ``kubernetes.aio.watch`` replays
a log again and again at its end; so chunks are read and lines are split here.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson

from daemonset_job.kube.client.errors import Unavailable
from daemonset_job.kube.client.transport_errors import as_kube_errors
from daemonset_job.kube.client.unreadable import read_event

CHUNK_BYTES = 64 * 1024
# An object in etcd has at most 1.5 MiB by default and its JSON may be twice that; the rest is room
# for clusters with a raised limit. Beyond it something is wrong, and memory is worth more.
EVENT_LIMIT_BYTES = 32 * 1024 * 1024
# What is kept of a longer line. An object's metadata comes first, and name and version in it after
# the annotations, which have 256 KiB at most.
EVENT_HEAD_BYTES = 1024 * 1024
# The reason of the Unavailable that is raised for a line that is no event of any object.
MALFORMED_EVENT = "MalformedEvent"


class ByteStream(AsyncIterator[bytes]):
    """The body of one response in chunks of at most 64 KiB; raises Unavailable if it breaks off.

    It ends after `limit_bytes`, whatever is sent beyond them. `media_type` is that of the answer.
    An iterator object rather than an async generator: it may be left at any point without something
    to close.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        *,
        request: str,
        idle_timeout_seconds: float | None,
        limit_bytes: int | None = None,
    ) -> None:
        self.media_type = response.content_type
        self._left = limit_bytes
        self._content = response.content
        self._request = request
        self._idle = idle_timeout_seconds

    def __aiter__(self) -> "ByteStream":
        return self

    async def __anext__(self) -> bytes:
        if self._left == 0:
            raise StopAsyncIteration
        with as_kube_errors(self._request):
            try:
                async with asyncio.timeout(self._idle) as limit:
                    chunk = await self._content.read(CHUNK_BYTES)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise Unavailable(
                    f"nothing arrived for {self._idle:g} s",
                    reason="IdleTimeout",
                    request=self._request,
                ) from error
        if not chunk:
            raise StopAsyncIteration
        if self._left is not None:
            chunk = chunk[: self._left]
            self._left -= len(chunk)
        return chunk


class LineSplitter:
    """Cuts chunks into lines; holds at most one unfinished line of `limit_bytes`.

    Of a longer line the first `head_bytes` are kept.
    """

    def __init__(self, limit_bytes: int, head_bytes: int) -> None:
        self._limit = limit_bytes
        self._head = head_bytes
        self._parts: list[bytes] = []
        self._held = 0
        self._is_cut = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, bool]]:
        """Return the lines that `chunk` completes, without newline, and whether each was cut."""
        *complete, rest = chunk.split(b"\n")
        lines = []
        for line in complete:
            self._hold(line)
            # Parts are joined once per line: adding each chunk to one bytes object would copy a
            # 3 MB event fifty times.
            lines.append((b"".join(self._parts), self._is_cut))
            self._parts.clear()
            self._held, self._is_cut = 0, False
        self._hold(rest)
        return lines

    def _hold(self, part: bytes) -> None:
        if not part or self._is_cut:
            return
        self._parts.append(part)
        self._held += len(part)
        if self._held > self._limit:
            self._parts = [b"".join(self._parts)[: self._head]]
            self._is_cut = True


class EventStream(AsyncIterator[dict[str, Any]]):
    """The events of one watch, as ``{"type": …, "object": …}``; ERROR events are passed on.

    The object is Unreadable, with a name and a resourceVersion, where it cannot be parsed or is
    longer than the limit. A last line without its newline is a connection that broke: it is
    dropped, since the next watch goes on from the last complete event. A complete line that is no
    event raises Unavailable with reason MALFORMED_EVENT.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        request: str,
        limit_bytes: int = EVENT_LIMIT_BYTES,
        head_bytes: int = EVENT_HEAD_BYTES,
    ) -> None:
        self._chunks = chunks
        self._request = request
        self._limit = limit_bytes
        self._lines = LineSplitter(limit_bytes, head_bytes)
        self._ready: deque[tuple[bytes, bool]] = deque()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready.extend(self._lines.feed(await anext(self._chunks)))
        line, is_cut = self._ready.popleft()
        error: object = f"longer than {self._limit} bytes"
        if not is_cut:
            try:
                event = orjson.loads(line)
            except ValueError as unparsed:
                error = unparsed
            else:
                if isinstance(event, dict) and isinstance(event.get("object"), dict):
                    return event
                raise self._malformed("a line without an object")
        found = read_event(line, error)
        if found is None:
            raise self._malformed(str(error))
        return found

    def _malformed(self, message: str) -> Unavailable:
        return Unavailable(message, reason=MALFORMED_EVENT, request=self._request)
