"""Which pods of a Job count: the current one of each node, and those that are in excess."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod
from job_controller.core.state.first_seen import pod_without_node
from job_controller.core.state.snapshot import Snapshot

# A pod may wait to be scheduled to a node that is not in the cache. After this time the node is
# taken for deleted, and not for too new for the cache. If it exists after all, the DaemonSet
# controller creates the pod again. Its task has not started.
NODE_GONE_AFTER: Final = timedelta(seconds=30)


def current_pods(snapshot: Snapshot) -> dict[str, Pod]:
    """Return the current pod of each existing node, by the node's name; none being deleted.

    For a moment a node can have two pods: a replacement and a pod that is about to be removed. The
    younger one is the current one.
    """
    return {
        pod.node_name: pod
        for pod in sorted(snapshot.pods, key=_age)
        if not pod.is_terminating and pod.node_name in snapshot.nodes
    }


def pods_without_node(snapshot: Snapshot) -> list[Pod]:
    """Return the pods that wait to be scheduled to a node that does not exist."""
    return [
        pod
        for pod in snapshot.pods
        if pod.node_name
        and not (pod.is_scheduled or pod.is_terminating)
        and pod.node_name not in snapshot.nodes
    ]


def find_pods_of_deleted_nodes(
    snapshot: Snapshot, known: AbstractSet[str], now: datetime
) -> tuple[list[Pod], datetime | None]:
    """Return the pods that wait for a deleted node, and when there may be more.

    The DaemonSet controller does not handle the deletion of nodes (addNode and updateNode in
    kubernetes pkg/controller/daemon). It counts such a node until a pod of the DaemonSet changes. A
    node without a record, not in `known`, may be too new for the cache of nodes, so it gets some
    time. It may also have been deleted while this process was not running.
    """
    found: list[Pod] = []
    later: list[datetime] = []
    for pod in pods_without_node(snapshot):
        sighting = snapshot.seen.get(pod_without_node(pod))
        decidable_at = (sighting.first if sighting is not None else now) + NODE_GONE_AFTER
        if pod.node_name in known or now >= decidable_at:
            found.append(pod)
        else:
            later.append(decidable_at)
    return found, min(later, default=None)


def terminating_nodes(snapshot: Snapshot, pods_by_node: Mapping[str, Pod]) -> frozenset[str]:
    """Return the nodes whose only pod is being deleted and has not ended."""
    return frozenset(pod.node_name for pod in terminating_pods(snapshot, pods_by_node))


def terminating_pods(snapshot: Snapshot, pods_by_node: Mapping[str, Pod]) -> Iterator[Pod]:
    """Yield the pods that are being deleted and have not ended, of nodes that have no other one."""
    for pod in snapshot.pods:
        if (
            pod.is_terminating
            and not pod.is_terminal
            and pod.node_name in snapshot.nodes
            and pod.node_name not in pods_by_node
        ):
            yield pod


def is_older_than_node(pod: Pod, node: Node) -> bool:
    """Return whether the pod is older than its node, so that it belongs to an earlier one."""
    return (
        pod.created_at is not None
        and node.created_at is not None
        and pod.created_at < node.created_at
    )


def is_kept_off_by_taint(snapshot: Snapshot, pod: Pod, node: Node) -> bool:
    """Return whether the pod waits to be scheduled to a node whose taints it does not tolerate.

    The node got the taint after the pod was created. The DaemonSet controller would not create
    the pod now, but does not delete it. Once deleted, it is created again when the taint is gone.
    Taints for a condition of the node (not-ready, unreachable, network-unavailable) do not count:
    such a node is desired, and unreachable.
    """
    if pod.is_scheduled or snapshot.owned_daemon_set is None:
        return False
    return not snapshot.tolerations.is_only_condition(node.taints)


def _age(pod: Pod) -> tuple[float, str]:
    return (pod.created_at.timestamp() if pod.created_at else 0.0, pod.uid)
