"""Bounds for connections from any client: their number, their lifetime and their requests.

aiohttp's server has none of these. It waits without a limit for the rest of a request, and holds
some 10 KiB for each connection that is waited for.
"""

import asyncio
from collections.abc import Callable
from typing import cast

# A probe and a scrape take milliseconds; the kubelet gives a probe up after five seconds.
CONNECTION_LIFETIME_SECONDS = 10.0
# A kubelet and a few scrapers need one each. Their bytes are bounded as well: 2 MiB in all.
CONNECTIONS_LIMIT = 100
REQUEST_LIMIT_BYTES = 16 * 1024

ProtocolFactory = Callable[[], asyncio.Protocol]


class ConnectionGuard:
    """Makes guarded protocols of those of `inner`, for ``loop.create_server``.

    A connection lives for CONNECTION_LIFETIME_SECONDS at most. Beyond CONNECTIONS_LIMIT the oldest
    is closed, and the new one is accepted. Otherwise a client that holds all of them would keep the
    kubelet out, and the container would be restarted.
    """

    def __init__(self, inner: ProtocolFactory) -> None:
        self._inner = inner
        # A dict as an ordered set: the oldest comes first.
        self._open: dict[GuardedConnection, None] = {}

    def __call__(self) -> asyncio.Protocol:
        """Return a protocol for a new connection."""
        return GuardedConnection(self, self._inner())

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    def opened(self, connection: "GuardedConnection") -> None:
        """Take note of a connection, and close the oldest if there are too many."""
        self._open[connection] = None
        if len(self._open) > CONNECTIONS_LIMIT:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()

    def closed(self, connection: "GuardedConnection") -> None:
        """Take note that a connection is no more."""
        self._open.pop(connection, None)


class GuardedConnection(asyncio.Protocol):
    """One connection: passes everything on to `inner`, within the guard's bounds."""

    def __init__(self, guard: ConnectionGuard, inner: asyncio.Protocol) -> None:
        self._guard = guard
        self._inner = inner
        self._received = 0
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; see asyncio.Protocol for this and what follows."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has no base class
        self._end = asyncio.get_running_loop().call_later(CONNECTION_LIFETIME_SECONDS, self.abort)
        self._inner.connection_made(transport)
        self._guard.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._end is not None:
            self._end.cancel()
        self._guard.closed(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what belongs to one request."""
        self._received += len(data)
        if self._received > REQUEST_LIMIT_BYTES:
            self.abort()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._inner.resume_writing()
