"""Whether the pods of a DaemonSet tolerate a node's taints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api.tolerations import parse_tolerations

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


class Tolerations:
    """Which taints daemon pods of a raw spec tolerate, made ready for many nodes.

    A tenant may write thousands of tolerations: they cost no more for each taint than one.
    """

    def __init__(self, pod_spec: Mapping[str, Any]) -> None:
        """Read the tolerations of a pod's spec."""
        self._is_on_host_network = bool(pod_spec.get("hostNetwork"))
        # By key, effect and value. An empty key or effect, or no value, means every one
        # (k8s.io/api core/v1 Toleration.ToleratesTaint).
        self._known: set[tuple[str, str, str | None]] = set()
        for each in parse_tolerations(pod_spec):
            if each.operator == "Exists":
                self._known.add((each.key, each.effect, None))
            elif each.key:
                self._known.add((each.key, each.effect, each.value))

    def untolerated(self, taints: Iterable[Taint]) -> tuple[Taint, ...]:
        """Return the taints that keep the pods off a node."""
        return tuple(taint for taint in taints if not self.tolerates(taint))

    def is_only_condition(self, taints: Collection[Taint]) -> bool:
        """Return whether only the own condition of a node keeps the pods off, if any taint does."""
        # Most nodes have no taint, and this is asked of each of them in each reconcile.
        return not taints or all(taint.is_condition for taint in self.untolerated(taints))

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the pods tolerate the taint."""
        known = (taint.key, taint.effect)
        if known in _BY_DEFAULT or (known == _ON_HOST_NETWORK and self._is_on_host_network):
            return True
        return any(
            ("", effect, None) in self._known
            or (taint.key, effect, None) in self._known
            or (taint.key, effect, taint.value) in self._known
            for effect in ("", taint.effect)
        )
