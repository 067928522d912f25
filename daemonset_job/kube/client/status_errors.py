"""Makes an error of an answer of the API server: of its status code and its ``Status`` object."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson

from daemonset_job.kube.client.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from daemonset_job.kube.client.messages import MESSAGE_LIMIT, clean_text
from daemonset_job.kube.client.protobuf import is_protobuf, read_object

# Validation, admission and RBAC refusals may be longer than other messages. Their text names the
# field and the fix, so the user needs all of it. An Event can carry 1024 characters.
USER_MESSAGE_LIMIT = 1024
_USER_STATUSES = frozenset({400, 403, 422})
_CAUSES_LIMIT = 16
# A webhook may ask for a day, in which the program would do nothing.
LONGEST_RETRY_AFTER_SECONDS = 60.0
# Before it the API server quotes all of the object, which would leave no room for the reason.
_STRICT = '": strict decoding error: '

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
        # The answer to a watch of pods is in the format of its events.
        parsed = read_object(body) if is_protobuf(body) else orjson.loads(body)
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
        clean_text(_without_object(str(status.get("message") or "")), limit),
        status=code,
        reason=reason[:64] or _phrase(code),
        retry_after_seconds=_retry_after_seconds(retry_after, details),
        details=details,
        request=request,
    )


def _without_object(message: str) -> str:
    """Return the refusal of a patch whose fields a CRD lacks, without the object that it quotes."""
    _, quoted, fields = message.rpartition(_STRICT)
    if not quoted or "patch: Invalid value: " not in message:
        return message
    return f"its CRD is of another version, and lacks what is written: {fields}"


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
        return min(float(header), LONGEST_RETRY_AFTER_SECONDS)
    suggested = details.get("retryAfterSeconds")
    if isinstance(suggested, int) and suggested > 0:
        return float(min(suggested, LONGEST_RETRY_AFTER_SECONDS))
    return None
