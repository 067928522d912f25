"""A pod on a node that is drained, of any client: what decides whether it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daemonset_job.api.owners import controller_kind
from daemonset_job.api.shape import METADATA, STRING, fields, list_of

# The kubelet's own mark of a pod from a file of its node (k8s.io/kubernetes pkg/kubelet/types).
_MIRROR: Final = "kubernetes.io/config.mirror"
_SHAPE: Final = fields(
    metadata=METADATA,
    spec=fields(volumes=list_of(fields(name=STRING))),
    status=fields(phase=STRING),
)


@dataclass(frozen=True, slots=True)
class DrainedPod:
    """A pod on a node. `controller_kind` is that of its controller, "" if it has none."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    controller_kind: str = ""
    is_mirror: bool = False
    has_ended: bool = False
    is_terminating: bool = False
    has_empty_dir: bool = False
    is_unreadable: bool = False

    @property
    def path(self) -> str:
        """How messages name it."""
        return f"{self.namespace}/{self.name}"


def parse_drained_pod(raw: Mapping[str, Any]) -> DrainedPod:
    """Return the pod in a raw object.

    Raises KeyError without metadata, ValueError for odd types.
    """
    _SHAPE(raw)
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    volumes = spec.get("volumes") or ()
    return DrainedPod(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        labels=meta.get("labels") or {},
        controller_kind=controller_kind(meta),
        is_mirror=_MIRROR in (meta.get("annotations") or {}),
        has_ended=status.get("phase") in {"Succeeded", "Failed"},
        is_terminating=bool(meta.get("deletionTimestamp")),
        has_empty_dir=any("emptyDir" in volume for volume in volumes),
    )
