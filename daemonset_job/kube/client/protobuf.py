"""Reads objects that the API server wrote as Protocol Buffers, into what their JSON would be.

The server makes the bytes of an event once for each format, for all watches together. Kubelets and
the control plane watch pods in this format, so the server makes its bytes in any case. The JSON
would be made for this project alone, and is half as long again.

Only the fields that are read here are declared: the others are skipped without being parsed, as
the format allows. Numbers and types are those of kubernetes staging/src/k8s.io/api/core/v1 and
apimachinery/pkg/apis/meta/v1, generated.proto; they never change within a version of the API. What
is around an object is in apimachinery/pkg/runtime/serializer/protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from daemonset_job.kube.client.request import format_rfc3339

# Each object outside of a watch event begins with it.
MAGIC: Final = b"k8s\x00"
_PACKAGE: Final = "daemonset_job"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
# After this many years the same dates come again.
_CYCLE_YEARS: Final = 400
_CYCLE_SECONDS: Final = 146_097 * 24 * 60 * 60
# What bytes become, each alone, that are no UTF-8.
_REPLACED: Final = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")
# A client can store 750,000 terms in a pod. DaemonSets of this project have fewer than this.
NODE_TERMS_LIMIT: Final = 20_000
# What a term that names a node has as it is written: a value of its key, and the operator In.
_NAMES_NODE: Final = (b"metadata.name", b"\x12\x02In")

# Of each message the fields that are read: their names in JSON, and each one's number and type. A
# type in brackets is repeated. Texts are bytes to the format. A client may have stored others than
# UTF-8: JSON shows them as U+FFFD, but a text would make the whole object unreadable.
#
# Of owners only the controller is kept, and of the first terms of a node selector those that may
# name a node. To make a dict of each of 750,000 empty terms took half a second.
MESSAGES: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "Unknown": {"typeMeta": (1, "TypeMeta"), "raw": (2, "bytes")},
    "TypeMeta": {"apiVersion": (1, "text"), "kind": (2, "text")},
    "RawExtension": {"raw": (1, "bytes")},
    "WatchEvent": {"type": (1, "text"), "object": (2, "RawExtension")},
    "Status": {
        "status": (2, "text"),
        "message": (3, "text"),
        "reason": (4, "text"),
        "details": (5, "StatusDetails"),
        "code": (6, "number"),
    },
    "StatusDetails": {
        "name": (1, "text"),
        "group": (2, "text"),
        "kind": (3, "text"),
        "causes": (4, "[StatusCause]"),
        "retryAfterSeconds": (5, "number"),
        "uid": (6, "text"),
    },
    "StatusCause": {"reason": (1, "text"), "message": (2, "text"), "field": (3, "text")},
    "ObjectMeta": {
        "name": (1, "text"),
        "namespace": (3, "text"),
        "uid": (5, "text"),
        "resourceVersion": (6, "text"),
        "generation": (7, "number"),
        "creationTimestamp": (8, "time"),
        "deletionTimestamp": (9, "time"),
        "labels": (11, "map"),
        "annotations": (12, "map"),
        "ownerReferences": (13, "owners"),
    },
    "OwnerReference": {
        "kind": (1, "text"),
        "name": (3, "text"),
        "uid": (4, "text"),
        "apiVersion": (5, "text"),
        "controller": (6, "flag"),
    },
    "Pod": {"metadata": (1, "ObjectMeta"), "spec": (2, "PodSpec"), "status": (3, "PodStatus")},
    "PodSpec": {
        "nodeName": (10, "text"),
        "affinity": (18, "Affinity"),
        "initContainers": (20, "[Container]"),
        "schedulingGates": (38, "[PodSchedulingGate]"),
    },
    "PodSchedulingGate": {"name": (1, "text")},
    "Container": {"name": (1, "text"), "restartPolicy": (24, "text")},
    "Affinity": {"nodeAffinity": (1, "NodeAffinity")},
    "NodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": (1, "NodeSelector")},
    "NodeSelector": {"nodeSelectorTerms": (1, "terms")},
    "NodeSelectorTerm": {"matchFields": (2, "[NodeSelectorRequirement]")},
    "NodeSelectorRequirement": {
        "key": (1, "text"),
        "operator": (2, "text"),
        "values": (3, "[text]"),
    },
    "PodStatus": {
        "phase": (1, "text"),
        "conditions": (2, "[PodCondition]"),
        "message": (3, "text"),
        "reason": (4, "text"),
        "startTime": (7, "time"),
        "containerStatuses": (8, "[ContainerStatus]"),
        "initContainerStatuses": (10, "[ContainerStatus]"),
    },
    "PodCondition": {
        "type": (1, "text"),
        "status": (2, "text"),
        "reason": (5, "text"),
        "message": (6, "text"),
    },
    "ContainerStatus": {
        "name": (1, "text"),
        "state": (2, "ContainerState"),
        "lastState": (3, "ContainerState"),
        "restartCount": (5, "number"),
        "containerID": (8, "text"),
    },
    "ContainerState": {
        "waiting": (1, "ContainerStateWaiting"),
        "running": (2, "ContainerStateRunning"),
        "terminated": (3, "ContainerStateTerminated"),
    },
    "ContainerStateWaiting": {"reason": (1, "text"), "message": (2, "text")},
    "ContainerStateRunning": {"startedAt": (1, "time")},
    "ContainerStateTerminated": {
        "exitCode": (1, "number"),
        "reason": (3, "text"),
        "message": (4, "text"),
        "startedAt": (5, "time"),
        "finishedAt": (6, "time"),
    },
    # The seconds since 1970. These times have no fraction.
    "Time": {"seconds": (1, "number")},
    "Entry": {"key": (1, "text"), "value": (2, "text")},
}
# The objects that can be read: by API version and kind.
_KINDS: Final = {("v1", "Pod"): "Pod", ("v1", "Status"): "Status"}
_SCALARS: Final = {
    "text": FieldDescriptorProto.TYPE_BYTES,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "number": FieldDescriptorProto.TYPE_INT64,
    "flag": FieldDescriptorProto.TYPE_BOOL,
    # A message is written as its bytes are.
    "terms": FieldDescriptorProto.TYPE_BYTES,
}
_MESSAGE_TYPES: Final = {"time": "Time", "map": "Entry", "owners": "OwnerReference"}

_Convert = Callable[[Any], Any]


def is_protobuf(body: bytes) -> bool:
    """Return whether `body` is an object in this format."""
    return body.startswith(MAGIC)


def read_object(body: bytes) -> dict[str, Any]:
    """Return what the JSON of an object would be, with the fields that are declared here.

    Raises ValueError if it is no Pod or Status in this format.
    """
    if not is_protobuf(body):
        raise ValueError("an object that does not begin as it must")
    outer = _parse("Unknown", body[len(MAGIC) :])
    meta = outer.get("typeMeta") or {}
    kind = (meta.get("apiVersion") or "", meta.get("kind") or "")
    if kind not in _KINDS:
        raise ValueError(f"an object of kind {kind[1][:64]!r} of API version {kind[0][:64]!r}")
    return _parse(_KINDS[kind], outer.get("raw") or b"")


def read_event(frame: bytes) -> dict[str, Any]:
    """Return a watch event as ``{"type": …, "object": …}``; ValueError if it is none."""
    event = _parse("WatchEvent", frame)
    return {
        "type": event.get("type") or "",
        "object": read_object((event.get("object") or {}).get("raw") or b""),
    }


def _parse(name: str, body: bytes) -> dict[str, Any]:
    try:
        message = CLASSES[name].FromString(body)
    except DecodeError as error:
        raise ValueError(f"{name} that cannot be parsed: {error}") from error
    found: dict[str, Any] = _CONVERTERS[name](message)
    return found


# --- messages to what their JSON would be ------------------------------------------------


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        # Not "replace", which makes one U+FFFD of the begin of a character, however long it is.
        return value.decode("utf-8", "surrogateescape").translate(_REPLACED)


@lru_cache(4096)
def _format_seconds(seconds: int) -> str:
    # Years before 1 and after 9999, which the server writes too: who parses them refuses them.
    cycles, rest = divmod(seconds, _CYCLE_SECONDS)
    text = format_rfc3339(_EPOCH + timedelta(seconds=rest))
    year = int(text[:4]) + cycles * _CYCLE_YEARS
    return f"{'-' * (year < 0)}{abs(year):04}{text[4:]}"


def _time(value: Any) -> str | None:
    # The zero time is an empty message, and null in JSON. That of 1970 has 0 seconds.
    return _format_seconds(value.seconds) if value.HasField("seconds") else None


def _map(entries: Any) -> dict[str, str]:
    return {_text(entry.key): _text(entry.value) for entry in entries}


def _owners(references: Any) -> list[Any]:
    convert = _CONVERTERS["OwnerReference"]
    return [convert(reference) for reference in references if reference.controller]


def _terms(bodies: Any) -> list[Any]:
    key, operator = _NAMES_NODE
    return [
        _parse("NodeSelectorTerm", body)
        for body in bodies[:NODE_TERMS_LIMIT]
        if key in body and operator in body
    ]


def _same(value: Any) -> Any:
    return value


def _converter_of(name: str) -> _Convert:
    """Return the function that makes a dict of a message of that name, of the fields it has.

    Empty texts and lists are left out. To ask for each declared field takes half the time of
    asking the message which fields it has.
    """
    declared = MESSAGES[name].items()
    texts = [field for field, (_, kind) in declared if kind == "text"]
    several = [
        (field, _field_converter(kind)) for field, (_, kind) in declared if _is_repeated(kind)
    ]
    others = [
        (field, _field_converter(kind))
        for field, (_, kind) in declared
        if kind != "text" and not _is_repeated(kind)
    ]

    def convert(message: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in texts:
            if value := getattr(message, field):
                found[field] = _text(value)
        for field, inner in several:
            if value := getattr(message, field):
                found[field] = inner(value)
        for field, inner in others:
            if message.HasField(field):
                found[field] = inner(getattr(message, field))
        return found

    return convert


def _is_repeated(kind: str) -> bool:
    return kind in {"map", "owners", "terms"} or kind.startswith("[")


def _field_converter(kind: str) -> _Convert:
    if kind.startswith("["):
        each = _field_converter(kind.strip("[]"))
        return lambda values: [each(value) for value in values]
    converters: dict[str, _Convert] = {
        "text": _text,
        "time": _time,
        "map": _map,
        "owners": _owners,
        "terms": _terms,
    }
    if kind in converters:
        return converters[kind]
    return _same if kind in _SCALARS else _converter_of(kind)


# --- the classes of the messages ---------------------------------------------------------


def _message_classes() -> dict[str, type[Message]]:
    file = FileDescriptorProto(name="objects.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in MESSAGES.items():
        file.message_type.append(
            DescriptorProto(
                name=name,
                field=[_descriptor(field, *described) for field, described in fields.items()],
            )
        )
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in MESSAGES
    }


def _descriptor(name: str, number: int, kind: str) -> FieldDescriptorProto:
    bare = kind.strip("[]")
    found = FieldDescriptorProto(
        name=name,
        number=number,
        label=FieldDescriptorProto.LABEL_REPEATED
        if _is_repeated(kind)
        else FieldDescriptorProto.LABEL_OPTIONAL,
    )
    if bare in _SCALARS:
        found.type = _SCALARS[bare]
    else:
        found.type = FieldDescriptorProto.TYPE_MESSAGE
        found.type_name = f".{_PACKAGE}.{_MESSAGE_TYPES.get(bare, bare)}"
    return found


CLASSES: Final = _message_classes()
_CONVERTERS: Final = {name: _converter_of(name) for name in MESSAGES}
