"""How Go writes a pod as Protocol Buffers and as JSON, without anything of the product.

Numbers are those of generated.proto, names and what is left out of JSON those of types.go, of
kubernetes v1.34 api/core/v1 and apimachinery/pkg/apis/meta/v1.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from daemonset_job.api import names

# Of each field its number and its kind. In JSON an empty text (`s`), map (`m`) and list (`[…]`) and
# a missing pointer (`*…`) are left out. All else is always there, also an empty text (`S`).
FIELDS: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Pod": {"metadata": (1, "ObjectMeta"), "spec": (2, "PodSpec"), "status": (3, "PodStatus")},
    "ObjectMeta": {
        "name": (1, "s"),
        "generateName": (2, "s"),
        "namespace": (3, "s"),
        "selfLink": (4, "s"),
        "uid": (5, "s"),
        "resourceVersion": (6, "s"),
        "generation": (7, "i"),
        "creationTimestamp": (8, "t"),
        "deletionTimestamp": (9, "*t"),
        "labels": (11, "m"),
        "annotations": (12, "m"),
        "ownerReferences": (13, "[OwnerReference]"),
    },
    "OwnerReference": {
        "kind": (1, "S"),
        "name": (3, "S"),
        "uid": (4, "S"),
        "apiVersion": (5, "S"),
        "controller": (6, "*b"),
        "blockOwnerDeletion": (7, "*b"),
    },
    "PodSpec": {
        "nodeName": (10, "s"),
        "affinity": (18, "*Affinity"),
        "initContainers": (20, "[Container]"),
        "schedulingGates": (38, "[PodSchedulingGate]"),
    },
    "PodSchedulingGate": {"name": (1, "S")},
    "Container": {"name": (1, "S"), "image": (2, "s"), "restartPolicy": (24, "*S")},
    "Affinity": {"nodeAffinity": (1, "*NodeAffinity")},
    "NodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": (1, "*NodeSelector")},
    "NodeSelector": {"nodeSelectorTerms": (1, "[NodeSelectorTerm]")},
    "NodeSelectorTerm": {
        "matchExpressions": (1, "[NodeSelectorRequirement]"),
        "matchFields": (2, "[NodeSelectorRequirement]"),
    },
    "NodeSelectorRequirement": {"key": (1, "S"), "operator": (2, "S"), "values": (3, "[S]")},
    "PodStatus": {
        "phase": (1, "s"),
        "conditions": (2, "[PodCondition]"),
        "message": (3, "s"),
        "reason": (4, "s"),
        "hostIP": (5, "s"),
        "startTime": (7, "*t"),
        "containerStatuses": (8, "[ContainerStatus]"),
        "initContainerStatuses": (10, "[ContainerStatus]"),
    },
    "PodCondition": {
        "type": (1, "S"),
        "status": (2, "S"),
        "lastProbeTime": (3, "t"),
        "lastTransitionTime": (4, "t"),
        "reason": (5, "s"),
        "message": (6, "s"),
    },
    "ContainerStatus": {
        "name": (1, "S"),
        "state": (2, "ContainerState"),
        "lastState": (3, "ContainerState"),
        "ready": (4, "b"),
        "restartCount": (5, "i"),
        "image": (6, "S"),
        "imageID": (7, "S"),
        "containerID": (8, "s"),
        "started": (9, "*b"),
    },
    "ContainerState": {
        "waiting": (1, "*ContainerStateWaiting"),
        "running": (2, "*ContainerStateRunning"),
        "terminated": (3, "*ContainerStateTerminated"),
    },
    "ContainerStateWaiting": {"reason": (1, "s"), "message": (2, "s")},
    "ContainerStateRunning": {"startedAt": (1, "t")},
    "ContainerStateTerminated": {
        "exitCode": (1, "i"),
        "signal": (2, "i"),
        "reason": (3, "s"),
        "message": (4, "s"),
        "startedAt": (5, "t"),
        "finishedAt": (6, "t"),
        "containerID": (7, "s"),
    },
}

# What decisions look at, and bytes that are no UTF-8 or need an escape in JSON.
TEXTS = (
    *(b"", b"a", b"True", b"False", b"Always", b"In", b"NotIn", b"metadata.name", b"apps/v1"),
    *(b"DaemonSet", b"PodScheduled", b"DisruptionTarget", b"Unschedulable", b"Running", b"Failed"),
    *(b"ContainerStatusUnknown", b"PodInitializing", b"Evicted", b"\xff", b"\xe2\x82", b"\x00"),
    *(b"\xed\xa0\x80x", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80", b"\xc0\x80", b'"<\xe2\x80\xa8'),
    *(names.CONTAINER_NAME.encode(), names.START_GATE.encode()),
)
KEYS = tuple(
    each.encode()
    for each in (
        *(names.ANNOTATION_REVISION, names.LABEL_EXCLUSIVE, names.LABEL_JOB_UID),
        *(names.LABEL_DAEMON_SET, names.LABEL_JOB, "other"),
    )
)
ZERO_TIME = -62_135_596_800  # the first second of the year 1, which Go takes for no time at all
SECONDS = (
    *(0, 1, -1, ZERO_TIME, ZERO_TIME - 1, ZERO_TIME + 1, 1_793_588_645),
    *(253_402_300_799, 253_402_300_800),
)


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Return the strategy of the values of a kind; those of a message are dicts by field."""
    if kind.startswith("*"):
        return st.none() | values_of(kind[1:])
    if kind.startswith("["):
        return st.lists(values_of(kind[1:-1]), max_size=2)
    simple: Mapping[str, st.SearchStrategy[Any]] = {
        "i": st.sampled_from((0, 1, -1, 137, 2**31 - 1, -(2**31))),
        "b": st.booleans(),
        "t": st.sampled_from(SECONDS) | st.integers(0, 2**32),
        "m": st.dictionaries(st.sampled_from(KEYS), text_values(), max_size=3),
    }
    if kind in "sS":
        return text_values()
    return simple[kind] if kind in simple else message_values(kind)


def text_values() -> st.SearchStrategy[bytes]:
    """Return the strategy of texts, as the bytes that a client has stored."""
    return st.sampled_from(TEXTS) | st.lists(st.sampled_from(TEXTS), max_size=3).map(b"".join)


def message_values(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy of a message."""
    return st.fixed_dictionaries(
        {field: values_of(kind) for field, (_, kind) in FIELDS[name].items()}
    )


# --- the format of Protocol Buffers ---------------------------------------------------------


def field(number: int, value: int | bytes) -> bytes:
    """Return one field as it is written: of a number, or of bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return a number as it is written."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def written(*, kind: bytes = b"Pod", raw: bytes = b"") -> bytes:
    """Return an object as it is written, with what it is and its bytes."""
    return b"k8s\x00" + field(1, field(1, b"v1") + field(2, kind)) + field(2, raw)


def to_bytes(name: str, message: Mapping[str, Any]) -> bytes:
    """Return a message as Go writes it: every field that is no missing pointer."""
    return b"".join(
        field(number, written)
        for key, (number, kind) in FIELDS[name].items()
        for written in _written(kind, message[key])
    )


def _written(kind: str, value: Any) -> list[Any]:
    if kind.startswith("*"):
        return [] if value is None else _written(kind[1:], value)
    if kind.startswith("["):
        return [written for each in value for written in _written(kind[1:-1], each)]
    if kind == "m":
        return [field(1, key) + field(2, value[key]) for key in sorted(value)]
    if kind == "t":
        return [b"" if value == ZERO_TIME else field(1, value) + field(2, 0)]
    return [value if kind in "sSib" else to_bytes(kind, value)]


# --- JSON -----------------------------------------------------------------------------------


def to_json(name: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Go's JSON of a message is, parsed."""
    found = {}
    for key, (_, kind) in FIELDS[name].items():
        value = message[key]
        if (kind[0] == "*" and value is None) or (kind[0] in "s[m" and not value):
            continue
        found[key] = _shown(kind.lstrip("*"), value)
    return found


def _shown(kind: str, value: Any) -> Any:
    if kind.startswith("["):
        return [_shown(kind[1:-1], each) for each in value]
    if kind == "m":
        return {_text(key): _text(value[key]) for key in sorted(value)}
    if kind == "t":
        return None if value == ZERO_TIME else _time(value)
    if kind in "sS":
        return _text(value)
    return value if kind in "ib" else to_json(kind, value)


def _text(value: bytes) -> str:
    # encoding/json replaces each byte that begins no character by U+FFFD.
    found = ""
    while value:
        for size in range(1, 5):
            try:
                found += value[:size].decode()
            except UnicodeDecodeError:
                continue
            break
        else:
            size = 1
            found += "\ufffd"
        value = value[size:]
    return found


def _time(seconds: int) -> str:
    # Go writes the years 0 and 10000, too.
    if seconds < ZERO_TIME:
        return f"0000{_time(seconds + 1_461 * 86_400)[4:]}"
    if seconds >= 253_402_300_800:
        return f"1{_time(seconds - 146_097 * 86_400 * 25)}"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return moment.isoformat().replace("+00:00", "Z")
