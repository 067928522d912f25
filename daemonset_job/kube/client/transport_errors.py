"""Raises as a KubeError whatever the connection to the API server can raise."""

import os
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
    message = clean_text(_describe(error), MESSAGE_LIMIT) or reason
    return Unavailable(message, status=0, reason=reason, request=request)


def _describe(error: BaseException) -> str:
    """Return what went wrong in words; aiohttp's name a Python object, and the address twice."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = str(error.certificate_error)
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = _describe_os_error(error.os_error)
    else:
        return str(error)
    host = f"[{error.host}]" if ":" in error.host else error.host
    return f"cannot connect to {host}:{error.port}: {cause}"


def _describe_os_error(error: OSError) -> str:
    # The number of an SSLError is no errno, that of a failed lookup is negative.
    if isinstance(error, ssl.SSLError) or error.errno is None or error.errno < 1:
        return error.strerror or str(error)
    return os.strerror(error.errno)


@contextmanager
def as_kube_errors(request: str) -> Iterator[None]:
    """Raise everything the transport can raise as a KubeError; cancellation passes unchanged."""
    try:
        yield
    except TRANSPORT_ERRORS as error:
        raise error_from_exception(error, request=request) from error
