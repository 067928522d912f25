"""A node as decisions need it: frozen, parsed once from the raw object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.shape import (
    BOOLEAN,
    CONDITIONS,
    METADATA,
    STRING,
    fields,
    list_of,
)
from daemonset_job.api.taints import Taint, parse_taints
from daemonset_job.api.times import parse_time

_TAINTS: Final = list_of(fields(key=STRING, value=STRING, effect=STRING))
_NODE: Final = fields(
    metadata=METADATA,
    spec=fields(unschedulable=BOOLEAN, taints=_TAINTS),
    status=fields(conditions=CONDITIONS),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    `ready_changed_at` is the last transition of its Ready condition, in either direction.
    `network_changed_at` is that of NetworkUnavailable. `taints` are those that can keep pods off.
    `cordoned_by` is the annotation of the Job that cordoned it.
    """

    name: str
    uid: str
    resource_version: str
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    is_cordoned: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    ready_changed_at: datetime | None = None
    network_changed_at: datetime | None = None
    is_terminating: bool = False
    namespace: str = ""
    cordoned_by: str = ""


def parse_node(raw: Mapping[str, Any]) -> Node:
    """Return the node in a raw object, whole or PartialObjectMetadata.

    Raises KeyError without metadata, ValueError for odd types.
    """
    _NODE(raw)
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    ready, network = conditions.get("Ready", {}), conditions.get("NetworkUnavailable", {})
    return Node(
        name=meta["name"],
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        created_at=parse_time(meta.get("creationTimestamp")),
        labels=meta.get("labels") or {},
        is_cordoned=bool(spec.get("unschedulable")),
        taints=parse_taints(spec.get("taints") or ()),
        ready=ready.get("status") == "True",
        ready_changed_at=parse_time(ready.get("lastTransitionTime")),
        network_changed_at=parse_time(network.get("lastTransitionTime")),
        is_terminating=bool(meta.get("deletionTimestamp")),
        cordoned_by=(meta.get("annotations") or {}).get(names.ANNOTATION_CORDONED_BY) or "",
    )
