"""Requests to HTTP servers that the administrator named: bounded in time and size, no redirects.

Layer: below the notifier. It never connects to an address that a Job's author wrote, takes no proxy
from the environment, keeps no cookies and no connection. The address, the token and the
certificates are read from their files for each request, so a Secret that changes needs no restart.
What it says to users has neither addresses nor answers: both may be secrets. What it says to the
log has no path, query or token, also where the other side repeats them.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import aiohttp
from yarl import URL

from daemonset_job.kube.client.messages import clean_text
from job_controller.core.receivers import Endpoint

# For all of a request: the name's address, the connection, and the answer.
TIMEOUT_SECONDS: Final = 10.0
# What is read of an answer that only has to say yes.
ANSWER_LIMIT_BYTES: Final = 4096
# A URL or a token; certificates may be a whole bundle.
_FILE_LIMIT_BYTES: Final = 8192
_CA_LIMIT_BYTES: Final = 512 * 1024
_CONTEXTS_LIMIT: Final = 64
# Of an answer in the log.
_EXCERPT_LIMIT: Final = 200
# A shorter part of a path, such as `api`, is no secret.
_SECRET_CHARACTERS: Final = 6
_HIDDEN: Final = "***"
_USER_AGENT: Final = "daemonset-job-controller"
_RETRY_AFTER_LIMIT_SECONDS: Final = 300.0


class OutboundError(Exception):
    """There is no answer. `words` are for users; `detail` may have an address, and is for the log.

    `is_timeout`: there may have been one later.
    """

    def __init__(self, words: str, detail: str = "", *, is_timeout: bool = False) -> None:
        self.words = words
        self.detail = clean_text(detail, 300)
        self.is_timeout = is_timeout
        super().__init__(words)


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """One request. `path` and `query` are added to the endpoint's URL; `body` is JSON."""

    method: str
    path: str = ""
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    limit_bytes: int = ANSWER_LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of an answer and the beginning of its body; `is_cut`: the body is longer.

    `excerpt` is what the log may have of it.
    """

    status: int
    body: bytes = b""
    is_cut: bool = False
    retry_after_seconds: float | None = None
    excerpt: str = ""


class Outbound:
    """Sends requests to endpoints. Must be used inside one running event loop, and closed."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        # By the certificates that each trusts: to load those of the system takes some 20 ms.
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    async def send(self, endpoint: Endpoint, request: OutboundRequest) -> Answer:
        """Return the answer, whatever its status; raises OutboundError if there is none."""
        url = _with(_read_url(endpoint), request)
        headers = {"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        if endpoint.token_file:
            token = _read(endpoint.token_file, "token", _FILE_LIMIT_BYTES)
            if not token.isascii() or not token.isprintable():
                raise OutboundError("its token has characters that no token can have")
            headers["Authorization"] = f"Bearer {token}"
        context = self._context(endpoint) if url.scheme == "https" else None
        try:
            async with asyncio.timeout(request.timeout_seconds):
                answer = await self._exchange(url, request, headers, context)
        except TimeoutError:
            words = f"there was no complete answer within {request.timeout_seconds:g} s"
            raise OutboundError(words, is_timeout=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not `from error`: a traceback would show the address.
            detail = _hide(f"{type(error).__name__}: {error}", url, headers)
            raise OutboundError(_words(error), detail) from None
        shown = _hide(answer.body[:ANSWER_LIMIT_BYTES].decode("utf-8", "replace"), url, headers)
        return replace(answer, excerpt=clean_text(shown, _EXCERPT_LIMIT))

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(
        self,
        url: URL,
        request: OutboundRequest,
        headers: dict[str, str],
        context: ssl.SSLContext | None,
    ) -> Answer:
        response = await self._open().request(
            request.method,
            url,
            data=request.body,
            headers=headers,
            allow_redirects=False,
            ssl=context if context is not None else True,
        )
        try:
            body = await _read_body(response, request.limit_bytes)
        finally:
            # Not release(): that would read on to the end of something that has none.
            response.close()
        return Answer(
            response.status,
            body[: request.limit_bytes],
            is_cut=len(body) > request.limit_bytes,
            retry_after_seconds=_retry_after(response),
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
                auto_decompress=False,
            )
            # A POST whose answer is lost is sent again by the notifier alone, which counts it.
            self._session._retry_connection = False  # noqa: SLF001 - there is no option for it
        return self._session

    def _context(self, endpoint: Endpoint) -> ssl.SSLContext:
        trusted = _read_certificates(endpoint.ca_file) if endpoint.ca_file else ""
        context = self._contexts.get(trusted)
        if context is None:
            try:
                context = ssl.create_default_context(cadata=trusted or None)
            except (ssl.SSLError, ValueError) as error:
                words = "its CA file has no certificates in PEM form"
                raise OutboundError(words, str(error)) from None
            self._contexts[trusted] = context
        self._contexts.move_to_end(trusted)
        if len(self._contexts) > _CONTEXTS_LIMIT:
            self._contexts.popitem(last=False)
        return context


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body, or of a longer one its first `limit` bytes and at least one more."""
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        part = await response.content.readany()
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _hide(text: str, url: URL, headers: Mapping[str, str]) -> str:
    """Return a text without what may be a secret in the URL or the token: servers repeat them."""
    pairs = url.raw_query_string.split("&")
    values = {pair.partition("=")[2] for pair in pairs}
    parts = {*url.parts, *url.raw_parts, *url.query.values(), *pairs, *values}
    token = headers.get("Authorization", "").removeprefix("Bearer ")
    long = {part for part in (*parts, token) if len(part) >= _SECRET_CHARACTERS}
    whole = {url.path, url.raw_path, url.raw_path_qs, url.path_qs} - {"/"}
    for secret in sorted(whole | long, key=len, reverse=True):
        # In any case: %2b and %2B are the same.
        text = re.sub(re.escape(secret), _HIDDEN, text, flags=re.IGNORECASE)
    return text


def _read_url(endpoint: Endpoint) -> URL:
    text = _read(endpoint.url_file, "URL", _FILE_LIMIT_BYTES)
    try:
        url = URL(text)
        is_usable = url.scheme in {"http", "https"} and bool(url.host) and url.user is None
    except ValueError:
        is_usable = False
    if not is_usable or not text.isprintable() or " " in text:
        raise OutboundError("its URL file has no http or https URL (one without a password)")
    return url


def _with(url: URL, request: OutboundRequest) -> URL:
    if request.path:
        # joinpath leaves the query of the URL out, which may be a token or a tenant.
        url = url.joinpath(*request.path.strip("/").split("/")).with_query(url.query)
    return url.extend_query(list(request.query)) if request.query else url


def _read(path: str, what: str, limit: int) -> str:
    """Return the text of a file without blanks around it; raises OutboundError for none."""
    try:
        text = _read_bytes(path, what, limit).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise _unreadable(what, error) from None
    if not text:
        raise OutboundError(f"its {what} is empty or too long", path)
    return text


def _read_certificates(path: str) -> str:
    """Return the text of a CA file in ASCII: comments between certificates may have any bytes."""
    text = _read_bytes(path, "CA file", _CA_LIMIT_BYTES).decode("ascii", "replace")
    return text.replace("\N{REPLACEMENT CHARACTER}", "?")


def _read_bytes(path: str, what: str, limit: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: there can be no file of that name
        raise _unreadable(what, error) from None
    if not raw or len(raw) > limit:
        raise OutboundError(f"its {what} is empty or too long", path)
    return raw


def _unreadable(what: str, error: Exception) -> OutboundError:
    return OutboundError(f"its {what} cannot be read; is it in the Secret?", str(error))


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    text = response.headers.get("Retry-After", "")
    if not text.isdecimal() or len(text) > 9:
        return None
    return min(float(text), _RETRY_AFTER_LIMIT_SECONDS)


def _words(error: Exception) -> str:
    """Return what kind of failure it is, without the address."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its TLS certificate cannot be verified"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "the TLS connection failed"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "it cannot be connected to"
    return "the connection broke, or the answer was not HTTP"
