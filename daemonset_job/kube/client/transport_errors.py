"""Raises as a KubeError whatever the connection to the API server can raise."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from daemonset_job.kube.client.errors import KubeError, Unavailable
from daemonset_job.kube.client.messages import MESSAGE_LIMIT, clean_text

# OSError covers ssl.SSLError, ConnectionError, socket.gaierror and (since 3.11) TimeoutError, which
# is asyncio's; they are named all the same, because that is what this list is for.
TRANSPORT_ERRORS: tuple[type[Exception], ...] = (
    aiohttp.ClientError,
    HttpProcessingError,
    aiohttp.EofStream,
    ssl.SSLError,
    ssl.CertificateError,
    TimeoutError,
    OSError,
    EOFError,
)


def error_from_exception(error: BaseException, *, request: str = "") -> KubeError:
    """Return Unavailable with status 0 for an exception of the transport."""
    reason = "Timeout" if isinstance(error, TimeoutError) else type(error).__name__
    message = clean_text(str(error), MESSAGE_LIMIT) or reason
    return Unavailable(message, status=0, reason=reason, request=request)


@contextmanager
def as_kube_errors(request: str) -> Iterator[None]:
    """Raise everything the transport can raise as a KubeError; cancellation passes unchanged."""
    try:
        yield
    except TRANSPORT_ERRORS as error:
        raise error_from_exception(error, request=request) from error
