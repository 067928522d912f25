"""What the fake API server sends: objects, events and Statuses, as bytes."""

import io
import json
import re

from aiohttp import web

from tests.contract.fake_storage import Raw
from tests.fakekube.refusals import Refused

# A value of this form is sent as nested lists of that depth, which is too deep for Python.
DEEP = re.compile(rb'"@deep:(\d+)"')
# This value is sent as text that is not JSON.
BROKEN = "@broken"


def event_line(type_: str, raw: Raw) -> bytes:
    """Return a watch event as it goes over the wire."""
    return on_the_wire({"type": type_, "object": raw}) + b"\n"


def on_the_wire(raw: Raw) -> bytes:
    """Return an object as it is sent, what cannot be read in it included."""
    text = json.dumps(raw).encode().replace(f'"{BROKEN}"'.encode(), b'"\xff"')
    return DEEP.sub(lambda found: b"[" * int(found[1]) + b"]" * int(found[1]), text)


def partial(raw: Raw) -> Raw:
    """Return the PartialObjectMetadata of an object; a Status is passed unchanged."""
    if raw.get("kind") == "Status":
        return raw
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": raw["metadata"],
    }


def answer(raw: Raw, status: int = 200) -> web.Response:
    """Return an object as a response."""
    # A file-like body, since aiohttp warns of bytes beyond 1 MiB.
    body = io.BytesIO(on_the_wire(raw))
    return web.Response(body=body, status=status, content_type="application/json")


def status_body(error: Refused) -> Raw:
    """Return the Status that says what was refused."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": error.status,
        "reason": error.reason,
        "message": error.message,
        "details": {
            "causes": [{"field": error.field}] if error.field else [],
            **({"name": error.name} if error.name else {}),
        },
    }


def refusal(error: Refused, retry_after: int | None) -> web.Response:
    """Return a Status as a response; `retry_after` is in seconds."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.Response(
        body=json.dumps(status_body(error)),
        status=error.status,
        headers=headers,
        content_type="application/json",
    )


def cut(http: web.Request) -> web.Response:
    """Cut the connection of a request; what is returned is not sent."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=599)
