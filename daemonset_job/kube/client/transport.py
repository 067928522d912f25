"""Requests over HTTP: sessions, credentials, timeouts, the few retries, and metrics.

Knows methods, paths and bodies; what they mean is the business of ``client``.
"""

import asyncio
import errno
import io
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
from yarl import URL

from daemonset_job.kube.client.connection import Connection
from daemonset_job.kube.client.errors import ConfigurationError, KubeError, Unauthorized
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.response import read_body, read_error
from daemonset_job.kube.client.streams import CHUNK_BYTES, ByteStream
from daemonset_job.kube.client.transport_errors import as_kube_errors

# What a request may be delayed by the server's Retry-After. API priority and fairness asks for
# 1 s. A longer delay is left to the backoff of the caller.
RETRY_AFTER_LIMIT_SECONDS = 5.0
RETRY_AFTER_ATTEMPTS = 3
CONNECT_TIMEOUT_SECONDS = 10.0
OnRequest = Callable[[str, str, int, float], None]
"""Called after each request that was sent with (verb, resource, HTTP status or 0, seconds)."""


class Transport:
    """Two pools of connections to one API server: one for requests, one for streams.

    Streams are kept apart because a thousand followed logs would otherwise hold every connection
    that a status update needs. Must be created inside a running event loop.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        connections: int,
        stream_connections: int,
        on_request: OnRequest | None = None,
    ) -> None:
        self._connection = connection
        self._base_url = connection.base_url.rstrip("/")
        self._on_request = on_request
        self._user_agent = user_agent
        self._requests = self._session(connections)
        # If the answer to a PUT or DELETE is lost, aiohttp would send it again and hide that. The
        # second one meets the change of the first as a conflict. A GET would go out four times.
        self._requests._retry_connection = False  # noqa: SLF001 - there is no option for it
        self._streams = self._session(stream_connections)

    def _session(self, connections: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "User-Agent": self._user_agent,
                # Compressing costs the API server more CPU than the bytes cost inside a cluster.
                "Accept-Encoding": "identity",
            },
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
        )

    async def close(self) -> None:
        """Close all connections; running requests and streams fail as Unavailable."""
        await self._requests.close()
        await self._streams.close()

    async def send(self, request: Request) -> bytes:
        """Return the body of a successful answer; KubeError for everything else.

        `request.timeout_seconds` bounds the whole of it, waits and repetitions included. Repeated
        are: a GET once when the connection broke, anything once after 401 with renewed
        credentials, and what `may_wait` if the server asks to repeat it soon.
        """
        with as_kube_errors(request.description):
            async with asyncio.timeout(request.timeout_seconds) as limit:
                return await self._send(request, limit.when())

    async def _send(self, request: Request, deadline: float | None) -> bytes:
        may_reconnect = request.method == "GET"
        may_renew = True
        waits_left = RETRY_AFTER_ATTEMPTS if request.may_wait else 0
        while True:
            authorization = await self._authorization(request)
            try:
                body, error = await self._attempt(request, authorization)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as lost:
                if not (may_reconnect and _is_reset(lost)):
                    raise
                may_reconnect = False
                continue
            if error is None:
                return body
            if error.status == 401 and may_renew:
                may_renew = False
                await self._renew(request, authorization)
                continue
            wait_seconds = _wait_seconds(error, deadline)
            if wait_seconds is None or waits_left == 0:
                raise error
            waits_left -= 1
            await asyncio.sleep(wait_seconds)

    async def _attempt(
        self, request: Request, authorization: str | None
    ) -> tuple[bytes, KubeError | None]:
        started = asyncio.get_running_loop().time()
        status = 0
        try:
            async with self._open(self._requests, request, authorization) as response:
                status = response.status
                if status < 300:
                    return await read_body(response, request), None
                return b"", await read_error(response, request)
        finally:
            self._record(request, status, started)

    @asynccontextmanager
    async def stream(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float | None,
        buffer_bytes: int = CHUNK_BYTES,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[ByteStream]:
        """Open a stream; KubeError if it cannot be opened, and from the stream when it breaks.

        `request.timeout_seconds` bounds the time until the response headers. At most twice
        `buffer_bytes` are read ahead of the consumer.
        """
        with as_kube_errors(request.description):
            response = await self._open_stream(request, buffer_bytes)
        try:
            yield ByteStream(
                response,
                request=request.description,
                idle_timeout_seconds=idle_timeout_seconds,
                limit_bytes=limit_bytes,
            )
        finally:
            # Not release(): that would read on to the end of something that has none.
            response.close()

    async def _open_stream(self, request: Request, buffer_bytes: int) -> aiohttp.ClientResponse:
        may_renew = True
        while True:
            authorization = await self._authorization(request)
            started = asyncio.get_running_loop().time()
            status = 0
            try:
                async with asyncio.timeout(request.timeout_seconds):
                    response = await self._open(
                        self._streams, request, authorization, read_bufsize=buffer_bytes
                    )
                status = response.status
            finally:
                self._record(request, status, started)
            if status < 300:
                return response
            async with response, asyncio.timeout(request.timeout_seconds):
                error = await read_error(response, request)
            if status != 401 or not may_renew:
                raise error
            may_renew = False
            await self._renew(request, authorization)

    async def _authorization(self, request: Request) -> str | None:
        with _credentials_for(request):
            return await self._connection.credentials.authorization()

    async def _renew(self, request: Request, rejected: str | None) -> None:
        with _credentials_for(request):
            await self._connection.credentials.renew(rejected)

    def _open(
        self,
        session: aiohttp.ClientSession,
        request: Request,
        authorization: str | None,
        *,
        read_bufsize: int = CHUNK_BYTES,
    ) -> "aiohttp.client._RequestContextManager":
        headers = {"Accept": request.accept}
        if authorization is not None:
            headers["Authorization"] = authorization
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        # The path is encoded already (Resource.path); yarl must not do it again.
        url = URL(self._base_url + request.path, encoded=True)
        if request.query:
            url = url.with_query(request.query)
        tls = self._connection.context()
        return session.request(
            request.method,
            url,
            data=_payload(request.body),
            headers=headers,
            proxy=self._connection.proxy,
            # Connections of another context are not used for it, and are closed when idle.
            ssl=True if tls is None else tls,
            server_hostname=self._connection.server_hostname,
            allow_redirects=False,
            read_bufsize=read_bufsize,
        )

    def _record(self, request: Request, status: int, started: float) -> None:
        if self._on_request is not None:
            seconds = asyncio.get_running_loop().time() - started
            self._on_request(request.verb, request.resource.name, status, seconds)


@contextmanager
def _credentials_for(request: Request) -> Iterator[None]:
    """Raise as Unauthorized what is wrong with the credentials while the program runs.

    A kubeconfig that is being rewritten, a plugin that hangs: nothing that should end it.
    """
    try:
        yield
    except ConfigurationError as error:
        raise Unauthorized(
            str(error), reason="NoCredentials", request=request.description
        ) from error


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    # aiohttp warns of bytes beyond 1 MiB, which it writes in one go; from a file it writes pieces.
    return io.BytesIO(body) if body is not None and len(body) >= 1 << 20 else body


def _is_reset(error: Exception) -> bool:
    """Return whether an open connection broke; False if it could not be opened."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError):
        return False
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return True
    return isinstance(error, OSError) and (
        isinstance(error, ConnectionError) or error.errno in (errno.ECONNRESET, errno.EPIPE)
    )


def _wait_seconds(error: KubeError, deadline: float | None) -> float | None:
    """Return how long to wait for a server that is too busy, or None if the caller should know."""
    seconds = error.retry_after_seconds
    if error.status not in (429, 503) or seconds is None or seconds > RETRY_AFTER_LIMIT_SECONDS:
        return None
    if deadline is not None and asyncio.get_running_loop().time() + seconds >= deadline:
        return None
    return seconds
