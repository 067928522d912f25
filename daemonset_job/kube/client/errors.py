"""Every way a call to Kubernetes can fail, as one tree.

::

    OperatorError
    ├── ConfigurationError             no usable kubeconfig or service account
    └── KubeError                      status, reason, message, retry_after_seconds, details
        ├── BadRequest                 400
        ├── Unauthorized               401
        ├── Forbidden                  403
        ├── NotFound                   404
        ├── AlreadyExists              409, reason AlreadyExists
        ├── Conflict                   409, any other reason; 422 for another object's UID
        ├── Gone                       410, a resourceVersion or continue token expired
        ├── TooLarge                   413, or 500 of etcd for an object that it will not take
        ├── Invalid                    422
        ├── Throttled                  429
        └── Unavailable                5xx, 408, redirects; status 0 when there was no response

Any other status is a plain KubeError. No exception of aiohttp, ssl, asyncio's timeouts or the
operating system leaves ``kube``: ``as_kube_errors()`` maps them all.
"""
# ruff: noqa: N818 - the names are the API's own reasons

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, ClassVar

import aiohttp
import orjson
from aiohttp.http_exceptions import HttpProcessingError

# What a server writes into a body ends in logs, conditions and terminals; 256 characters say what
# happened. Validation, admission and RBAC refusals are the exception: their text names the field
# and the fix, the user needs all of it, and 1024 characters is what an Event can carry.
MESSAGE_LIMIT = 256
USER_MESSAGE_LIMIT = 1024
_USER_STATUSES = frozenset({400, 403, 422})
_CAUSES_LIMIT = 16


class OperatorError(Exception):
    """The root of this project's own exceptions."""


class ConfigurationError(OperatorError):
    """There is no usable way to reach a cluster: kubeconfig or service account."""


class KubeError(OperatorError):
    """A call to the API server failed.

    `status` is the HTTP status, 0 when no response arrived. `reason` is the API's machine-readable
    word (``NotFound``, ``Expired``, …). `retry_after_seconds` is what the server asked for, or
    None. `details` is Status.details (name, kind, causes), possibly empty.
    """

    default_status: ClassVar[int] = 0
    is_retryable: ClassVar[bool] = False
    """Whether the same intent may succeed later without anybody changing an object or a right."""

    def __init__(
        self,
        message: str = "",
        *,
        status: int | None = None,
        reason: str = "",
        retry_after_seconds: float | None = None,
        details: Mapping[str, Any] | None = None,
        request: str = "",
    ) -> None:
        """Make an error; `request` is the verb and path that failed, for the log."""
        self.status = self.default_status if status is None else status
        self.reason = reason or type(self).__name__
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.details: Mapping[str, Any] = details or {}
        self.request = request
        super().__init__(message)

    def __str__(self) -> str:
        """Return one line: request, status, reason, message."""
        where = f"{self.request}: " if self.request else ""
        status = f"{self.status} " if self.status else ""
        return f"{where}{status}{self.reason}: {self.message}"


class BadRequest(KubeError):
    """400: the server cannot read the request; for a log, also that its container has not run."""

    default_status = 400


class Unauthorized(KubeError):
    """401, after the credentials were renewed once. Retryable: it says nothing of the object."""

    default_status = 401
    is_retryable = True


class Forbidden(KubeError):
    """403: RBAC, quota or admission refused. Not retryable, so that a missing permission shows."""

    default_status = 403

    @property
    def is_namespace_ending(self) -> bool:
        """Whether nothing can be made any more because the namespace is being deleted.

        (apiserver plugin/namespace/lifecycle; the cause is v1.NamespaceTerminatingCause.)
        """
        causes = self.details.get("causes") or ()
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


class NotFound(KubeError):
    """404: the object, or its whole resource type, is not there."""

    default_status = 404


class AlreadyExists(KubeError):
    """409 on create: the name is taken. Whether by us is for the caller to find out."""

    default_status = 409


class Conflict(KubeError):
    """409: the object changed, or its UID is another one. Read it again, then decide again."""

    default_status = 409
    is_retryable = True


class Gone(KubeError):
    """410: the resourceVersion or continue token is too old. List again."""

    default_status = 410
    is_retryable = True


class TooLarge(KubeError):
    """413, or etcd's own refusal: what is to be written is too large, and always will be."""

    default_status = 413


class Invalid(KubeError):
    """422: validation refused the object; `message` and `details` name the fields."""

    default_status = 422


class Throttled(KubeError):
    """429: too many requests, or an eviction that a disruption budget does not allow now."""

    default_status = 429
    is_retryable = True


class Unavailable(KubeError):
    """5xx, a redirect, or status 0: no connection, no answer in time, one that broke off."""

    default_status = 0
    is_retryable = True


_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: Throttled,
}


def error_from_response(
    status: int, body: bytes, *, retry_after: str | None = None, request: str = ""
) -> KubeError:
    """Return the error for an HTTP answer; `body` is a Status object, some other text or empty."""
    try:
        parsed = orjson.loads(body)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        text = body.decode("utf-8", "replace")
        parsed = {"message": text or f"HTTP status {status}"}
    return error_from_status(parsed | {"code": status}, retry_after=retry_after, request=request)


def error_from_status(
    status: Mapping[str, Any], *, retry_after: str | None = None, request: str = ""
) -> KubeError:
    """Return the error for a ``Status`` object, as in a body or in a watch's ERROR event."""
    code = status.get("code")
    code = code if isinstance(code, int) else 0
    reason = str(status.get("reason") or "")
    details = _bounded_details(status.get("details"))
    kind = Conflict if _is_of_another(details) else _class_for(code, reason)
    if code == HTTPStatus.INTERNAL_SERVER_ERROR and _is_too_large(str(status.get("message") or "")):
        kind = TooLarge
    limit = USER_MESSAGE_LIMIT if code in _USER_STATUSES else MESSAGE_LIMIT
    return kind(
        clean_text(str(status.get("message") or ""), limit),
        status=code,
        reason=reason[:64] or _phrase(code),
        retry_after_seconds=_retry_after_seconds(retry_after, details),
        details=details,
        request=request,
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


def clean_text(text: str, limit: int) -> str:
    """Return `text` on one line, without control characters, at most `limit` characters long."""
    if len(text) > limit * 4:  # bound the work, not only the result
        text = text[: limit * 4]
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _is_of_another(details: Mapping[str, Any]) -> bool:
    """Return whether a patch named the UID of another object than the one that has the name now.

    The server keeps UIDs as preconditions of deletions only; for a patch it says 422, that the
    field metadata.uid is immutable.
    """
    causes = details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes
    )


def _is_too_large(message: str) -> bool:
    """Return whether a 500 is about the size of an object: the API server says no more than this.

    etcd refuses requests of more than 1.5 MiB (server/etcdserver/v3_server.go), its client those of
    more than 2 MiB (client/v3/options.go).
    """
    return "request is too large" in message or "message larger than max" in message


def _class_for(code: int, reason: str) -> type[KubeError]:
    if code == HTTPStatus.CONFLICT and reason == "AlreadyExists":
        return AlreadyExists
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR or 300 <= code < 400:
        return Unavailable
    return _BY_STATUS.get(code, KubeError)


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"


def _bounded_details(details: object) -> Mapping[str, Any]:
    if not isinstance(details, dict):
        return {}
    causes = details.get("causes")
    if isinstance(causes, list) and len(causes) > _CAUSES_LIMIT:
        return details | {"causes": causes[:_CAUSES_LIMIT]}
    return details


def _retry_after_seconds(header: str | None, details: Mapping[str, Any]) -> float | None:
    # The API server sends whole seconds only; the HTTP-date form is not used there
    # (apimachinery pkg/api/errors, SuggestsClientDelay).
    # Zero seconds are no delay: None has the caller use its own back-off.
    if header is not None and header.strip().isdecimal() and float(header) > 0:
        return float(header)
    suggested = details.get("retryAfterSeconds")
    return float(suggested) if isinstance(suggested, int) and suggested > 0 else None
