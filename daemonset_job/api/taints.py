"""Whether the pods of a DaemonSet tolerate a node's taints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# Taints that keep a pod from being placed on a node.
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
# What the pods of every DaemonSet tolerate
# (kubernetes pkg/controller/daemon/util AddOrUpdateDaemonPodTolerations).
_NODE: Final = "node.kubernetes.io"
# Prefixes of the taint keys that Kubernetes or a cloud controller uses for node conditions.
_CONDITION_PREFIXES: Final = (f"{_NODE}/", "node.cloudprovider.kubernetes.io/")
_BY_DEFAULT: Final = frozenset(
    {
        (f"{_NODE}/not-ready", "NoExecute"),
        (f"{_NODE}/unreachable", "NoExecute"),
        (f"{_NODE}/disk-pressure", "NoSchedule"),
        (f"{_NODE}/memory-pressure", "NoSchedule"),
        (f"{_NODE}/pid-pressure", "NoSchedule"),
        (f"{_NODE}/unschedulable", "NoSchedule"),
    }
)
_ON_HOST_NETWORK: Final = (f"{_NODE}/network-unavailable", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, as in its spec."""

    key: str
    effect: str
    value: str = ""

    @property
    def is_condition(self) -> bool:
        """Whether it is for a node condition, which may pass; no administrator chose it."""
        return self.key.startswith(_CONDITION_PREFIXES)


def parse_taints(raw: Iterable[Mapping[str, Any]]) -> tuple[Taint, ...]:
    """Return the taints of a node's raw spec that can keep pods off."""
    return tuple(
        Taint(str(taint.get("key") or ""), taint["effect"], str(taint.get("value") or ""))
        for taint in raw
        if taint.get("effect") in _KEEPS_OFF
    )


def untolerated(taints: Iterable[Taint], pod_spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints that keep daemon pods of this raw spec off a node."""
    return tuple(taint for taint in taints if not is_tolerated(taint, pod_spec))


def is_tolerated(taint: Taint, pod_spec: Mapping[str, Any]) -> bool:
    """Return whether daemon pods of this raw spec tolerate the taint."""
    known = (taint.key, taint.effect)
    if known in _BY_DEFAULT or (known == _ON_HOST_NETWORK and pod_spec.get("hostNetwork")):
        return True
    return any(_tolerates(toleration, taint) for toleration in pod_spec.get("tolerations") or ())


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """k8s.io/api core/v1 Toleration.ToleratesTaint: an empty key or effect matches every one."""
    key, effect = toleration.get("key") or "", toleration.get("effect") or ""
    if effect not in {"", taint.effect} or key not in {"", taint.key}:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == taint.value
