"""What the API server answers: raw JSON objects, pages of lists, and objects found by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from daemonset_job.kube.client.errors import Unavailable
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.transport import Transport
from daemonset_job.kube.client.unreadable import Unreadable

# The reason of the Unavailable that is raised for an answer that is no JSON object.
MALFORMED_ANSWER = "MalformedAnswer"

RawObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and how many bytes it had; `continue_` is empty in the last one."""

    items: Sequence[RawObject | Unreadable]
    resource_version: str
    continue_: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """What was found under a name, None for nothing, and the resourceVersion at which that was."""

    item: RawObject | None
    resource_version: str


async def send_json(transport: Transport, request: Request) -> RawObject:
    """Send a request and return the JSON object of the answer; Unavailable if it is none."""
    body = await transport.send(request)
    try:
        parsed = orjson.loads(body)
    except ValueError as error:
        raise malformed(request, str(error)) from error
    if not isinstance(parsed, dict):
        raise malformed(request, "not an object")
    return parsed


def malformed(request: Request, problem: str) -> Unavailable:
    """Return the error for an answer that is not the JSON expected."""
    return Unavailable(problem, reason=MALFORMED_ANSWER, request=request.description)
