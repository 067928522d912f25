"""One request to the API server, before credentials, and how its parts are written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from daemonset_job.kube.client.resource import Resource

DEFAULT_TIMEOUT_SECONDS = 30.0
# More than anything that is asked for without pages: a single object has at most 1.5 MiB in etcd by
# default, and 10 MiB where that was raised. It bounds what a broken or hostile server can make this
# process hold.
ANSWER_LIMIT_BYTES = 64 * 1024 * 1024
JSON_TYPE = "application/json"
_PARTIAL = "as={kind};g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, before credentials: what to send and how patiently.

    `verb` and `resource` are spelled as in RBAC ("patch", "pods/log") and serve metrics and
    messages. `retry_throttled` allows waiting for a server that answers 429 or 503 with
    Retry-After; it did not act on the request then. Of the body of a good answer at most
    `limit_bytes` are read: a longer one is cut there with `may_cut`, and Unavailable without.
    """

    method: str
    path: str
    verb: str
    resource: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON_TYPE
    accept: str = JSON_TYPE
    timeout_seconds: float | None = DEFAULT_TIMEOUT_SECONDS
    retry_throttled: bool = False
    limit_bytes: int = ANSWER_LIMIT_BYTES
    may_cut: bool = False

    @property
    def description(self) -> str:
        """Return "METHOD /path", as used in error messages."""
        return f"{self.method} {self.path}"


def accept_partial(kind: str) -> str:
    """Return the Accept header that asks for metadata only: `kind`, an object or a list."""
    # The second choice serves servers that cannot convert, such as some aggregated ones.
    return f"{JSON_TYPE};{_PARTIAL.format(kind=kind)},{JSON_TYPE}"


def resource_name(resource: Resource, subresource: str | None) -> str:
    """Return what RBAC calls a resource or one of its subresources."""
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def query_of(**options: str | int | None) -> dict[str, str]:
    """Return the query of the options that are not None."""
    return {name: str(value) for name, value in options.items() if value is not None}


def encode_json(body: object) -> bytes:
    """Return an object as JSON, in UTF-8 and without spaces."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def format_rfc3339(moment: datetime) -> str:
    """Return an aware time in whole seconds of UTC, rounded down."""
    return moment.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
