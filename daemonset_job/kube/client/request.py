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
# The second choice serves servers that cannot convert, such as some aggregated ones.
_PARTIAL_TYPE = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
METADATA_TYPE = _PARTIAL_TYPE.format("PartialObjectMetadata")
METADATA_LIST_TYPE = _PARTIAL_TYPE.format("PartialObjectMetadataList")
_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
# What a server that is too busy may be asked again. It did not act on the first request.
_WAITING_VERBS = frozenset({"get", "list", "patch"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request, before credentials: what to send and how patiently.

    `verb` is spelled as in RBAC; "get" is also the verb of a log. Of the body of a good answer at
    most `limit_bytes` are read: a longer one is cut there with `may_cut`, and Unavailable without.
    """

    verb: str
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON_TYPE
    accept: str = JSON_TYPE
    timeout_seconds: float | None = DEFAULT_TIMEOUT_SECONDS
    limit_bytes: int = ANSWER_LIMIT_BYTES
    may_cut: bool = False

    @property
    def method(self) -> str:
        """Return the HTTP method of the verb."""
        return _METHODS[self.verb]

    @property
    def path(self) -> str:
        """Return the percent-encoded URL path; ValueError for names that no path can have."""
        return self.resource.path(self.namespace, self.name)

    @property
    def may_wait(self) -> bool:
        """Return whether it is sent again when the server answers 429 or 503 with Retry-After."""
        return self.verb in _WAITING_VERBS

    @property
    def description(self) -> str:
        """Return "METHOD /path", as used in error messages."""
        return f"{self.method} {self.path}"


def query_of(**options: str | int | None) -> dict[str, str]:
    """Return the query of the options that are not None."""
    return {name: str(value) for name, value in options.items() if value is not None}


def encode_json(body: object) -> bytes:
    """Return an object as JSON, in UTF-8 and without spaces."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def format_rfc3339(moment: datetime) -> str:
    """Return an aware time in whole seconds of UTC, rounded down."""
    return moment.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
