"""Conditions and taints of nodes: what kubelet, node lifecycle controller and cloud write."""

from collections.abc import Collection, Iterable

from tests.fakekube.conditions import condition, find_condition
from tests.fakekube.daemon_sets import Raw

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
NETWORK_TAINT = {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}
# Keys of the taints that say what the Ready condition says.
READY_KEYS = frozenset({NOT_READY, UNREACHABLE})
_KEYS = {"False": NOT_READY, "Unknown": UNREACHABLE}


def ready(status: str, since: str) -> Raw:
    """Return the condition Ready of a node: True, False, or Unknown when its kubelet is silent.

    Without reason and heartbeat: nothing here reads them.
    """
    return condition("Ready", status, at=since)


def network_unavailable(since: str, *, is_so: bool) -> Raw:
    """Return the condition NetworkUnavailable of a node, which a cloud's controller writes."""
    return condition("NetworkUnavailable", str(is_so), at=since)


def ready_status(node: Raw) -> str:
    """Return the status of a raw node's Ready condition, "Unknown" if it has none."""
    return str(find_condition(node.get("status"), "Ready").get("status", "Unknown"))


def taints_of(node: Raw) -> list[Raw]:
    """Return the raw taints of a raw node."""
    return (node.get("spec") or {}).get("taints") or []


def ready_taints(status: str) -> list[Raw]:
    """Return the taints that a node has for the status of its Ready condition.

    doNoScheduleTaintingPass and doNoExecuteTaintingPass in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go. Pods of a DaemonSet tolerate those of
    the effect NoExecute: while a node is not Ready, its pod counts as misscheduled.
    """
    key = _KEYS.get(status)
    return [{"key": key, "effect": e} for e in ("NoSchedule", "NoExecute")] if key else []


def replace_taints(taints: Iterable[Raw], keys: Collection[str], new: Iterable[Raw]) -> list[Raw]:
    """Return the taints with those of these keys replaced by others."""
    return [*(taint for taint in taints if taint["key"] not in keys), *new]
