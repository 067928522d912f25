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
operating system leaves ``kube``: ``transport_errors.as_kube_errors()`` maps them all.
"""
# ruff: noqa: N818 - the names are the API's own reasons

from collections.abc import Mapping
from typing import Any, ClassVar


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
