"""Watch events as the API server writes them in the format of Protocol Buffers.

The numbers of the fields are those of the product. tests/contract/test_protobuf_values.py compares
them with those of Kubernetes, tests/integration/test_protobuf.py with what a real API server
writes. Fields that the product does not declare are left out.
"""

from datetime import datetime
from typing import Any

from google.protobuf.message import Message

from daemonset_job.kube.client.protobuf import CLASSES, MAGIC, MESSAGES
from tests.contract.fake_storage import Raw

# What the items are of kinds of lists that are not named after them.
_LISTS = {"owners": "OwnerReference", "terms": "NodeSelectorTerm"}


def event_frame(type_: str, raw: Raw) -> bytes:
    """Return a watch event as it goes over the wire, with its length."""
    event = {"type": type_, "object": {"raw": encode_object(raw)}}
    body = _message("WatchEvent", event).SerializeToString()
    return len(body).to_bytes(4, "big") + body


def encode_object(raw: Raw) -> bytes:
    """Return a Pod or a Status in this format; KeyError for other kinds."""
    kind = {"apiVersion": raw["apiVersion"], "kind": raw["kind"]}
    body = _message(raw["kind"], raw).SerializeToString()
    return MAGIC + _message("Unknown", {"typeMeta": kind, "raw": body}).SerializeToString()


def _message(name: str, raw: Raw) -> Message:
    found = CLASSES[name]()
    for field, (_, kind) in MESSAGES[name].items():
        value = raw.get(field)
        if value is None:
            continue
        if kind == "map":
            pairs = ({"key": key, "value": text} for key, text in value.items())
            getattr(found, field).extend(_encoded("Entry", each) for each in pairs)
        elif kind in _LISTS or kind.startswith("["):
            inner = _LISTS.get(kind, kind.strip("[]"))
            encoded = [_encoded(inner, each) for each in value]
            if kind == "terms":  # kept as their bytes
                encoded = [each.SerializeToString() for each in encoded]
            getattr(found, field).extend(encoded)
        elif isinstance(encoded := _encoded(kind, value), Message):
            getattr(found, field).CopyFrom(encoded)
        else:
            setattr(found, field, encoded)
    return found


def _encoded(kind: str, value: Any) -> Any:
    if kind == "text":
        return value.encode()
    if kind == "time":
        seconds = int(datetime.fromisoformat(value).timestamp())
        return _message("Time", {"seconds": seconds})
    return _message(kind, value) if kind in MESSAGES else value
