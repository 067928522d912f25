"""A pod on a node that is drained, of any client: what decides whether it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daemonset_job.api.owners import controller_kind
from daemonset_job.api.shape import METADATA, STRING, fields, list_of
from daemonset_job.api.tolerations import parse_tolerations

# The kubelet's own mark of a pod from a file of its node (k8s.io/kubernetes pkg/kubelet/types).
_MIRROR: Final = "kubernetes.io/config.mirror"
# The taint of a node that is cordoned.
_CORDON: Final = "node.kubernetes.io/unschedulable"
_SHAPE: Final = fields(
    metadata=METADATA,
    spec=fields(
        volumes=list_of(fields(name=STRING)),
        tolerations=list_of(fields(key=STRING, operator=STRING, value=STRING, effect=STRING)),
    ),
    status=fields(phase=STRING),
)


@dataclass(frozen=True, slots=True)
class DrainedPod:
    """A pod on a node. `controller_kind` is that of its controller, "" if it has none.

    `tolerates_cordon`: the scheduler may bind its successor to a cordoned node.
    """

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
    tolerates_cordon: bool = False

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
        tolerates_cordon=_tolerates_cordon(spec),
    )


def _tolerates_cordon(pod_spec: Mapping[str, Any]) -> bool:
    return any(
        each.effect in {"", "NoSchedule"}
        and (each.key == _CORDON or (not each.key and each.operator == "Exists"))
        and not each.value
        for each in parse_tolerations(pod_spec)
    )
