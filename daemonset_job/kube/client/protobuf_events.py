"""The events of a watch whose answer is in the format of Protocol Buffers."""

from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from daemonset_job.kube.client.errors import Unavailable
from daemonset_job.kube.client.protobuf import read_event
from daemonset_job.kube.client.streams import EVENT_LIMIT_BYTES, MALFORMED_EVENT

# Before each event is its length, as an unsigned number with the greatest byte first (kubernetes
# apimachinery pkg/util/framer).
_LENGTH_BYTES = 4


class FrameSplitter:
    """Cuts chunks into events; holds at most one unfinished event of `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        # Parts are joined once for each event, as those of lines are.
        self._parts: list[bytes] = []
        self._held = 0
        self._wanted = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that `chunk` completes; ValueError for one beyond the limit."""
        self._parts.append(chunk)
        self._held += len(chunk)
        if self._held < self._wanted:
            return []
        held, begin, frames = b"".join(self._parts), 0, []
        self._wanted = _LENGTH_BYTES
        while (body := begin + _LENGTH_BYTES) <= len(held):
            length = int.from_bytes(held[begin:body], "big")
            if length > self._limit:
                raise ValueError(f"an event of {length} bytes, more than {self._limit}")
            if body + length > len(held):
                self._wanted = _LENGTH_BYTES + length
                break
            frames.append(held[body : body + length])
            begin = body + length
        self._parts = [held[begin:]]
        self._held = len(held) - begin
        return frames


class ProtobufEventStream(AsyncIterator[dict[str, Any]]):
    """The events of one watch, as those of `EventStream` but for what is said here.

    An object has only the fields that `protobuf` declares. One that cannot be read, or is longer
    than the limit, raises Unavailable with reason MALFORMED_EVENT. A list shows which it is.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        request: str,
        limit_bytes: int = EVENT_LIMIT_BYTES,
    ) -> None:
        self._chunks = chunks
        self._request = request
        self._frames = FrameSplitter(limit_bytes)
        self._ready: deque[bytes] = deque()

    def __aiter__(self) -> "ProtobufEventStream":
        return self

    async def __anext__(self) -> dict[str, Any]:
        try:
            while not self._ready:
                self._ready.extend(self._frames.feed(await anext(self._chunks)))
            return read_event(self._ready.popleft())
        except ValueError as error:
            raise Unavailable(str(error), reason=MALFORMED_EVENT, request=self._request) from error
