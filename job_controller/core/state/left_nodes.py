"""Nodes that are no longer desired, and what of their tasks may still be at work.

The DaemonSet controller deletes the pod of such a node, but only the kubelet ends it. A node that
is not Ready may be back in a moment, so the task may be at work. It may also be down for good, and
the user took it out for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod
from job_controller.core.state.first_seen import node_left
from job_controller.core.state.node_pods import terminating_nodes
from job_controller.core.state.snapshot import Snapshot

# A node that is read in this time, and is still not Ready, is not read again: the cache has it.
CONFIRMED_AFTER: Final = timedelta(seconds=60)
# How often pods are looked at again whose DaemonSet was deleted. Each change of one causes a
# reconcile by the label that leads to the Job, which a client may have taken away.
LEFT_PODS_SECONDS: Final = 30.0


def find_ending(snapshot: Snapshot, pods_by_node: Mapping[str, Pod]) -> frozenset[str]:
    """Return the nodes without a current pod on which an earlier one has not ended."""
    left = {pod.node_name for pod in snapshot.left_pods if not (pod.is_gated or pod.is_terminal)}
    left &= snapshot.nodes.keys() - pods_by_node.keys()
    return terminating_nodes(snapshot, pods_by_node) | left


def left_limit(snapshot: Snapshot) -> timedelta:
    """Return for how long the task on such a node counts as at work.

    It is the time after which a desired node is unreachable. What the run waits for beyond that,
    `failurePolicy.unreachableSeconds`, is the work of the node, which is not to be done any more.
    """
    return timedelta(seconds=snapshot.unreachable_seconds)


def counts_until(snapshot: Snapshot, node: Node, now: datetime) -> datetime:
    """Return until when the task on such a node counts as at work."""
    sighting = snapshot.seen.get(node_left(node))
    return (sighting.first if sighting is not None else now) + left_limit(snapshot)


def find_excluded(snapshot: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return those of the nodes on which no pod of the Job is created any more.

    The DaemonSet does not choose them, or a taint keeps pods off that is not of their own
    condition. It need not be known which other nodes are desired.
    """
    if snapshot.owned_daemon_set is None:
        return frozenset()
    affinity, tolerations = snapshot.affinity, snapshot.tolerations
    nodes = ((name, snapshot.nodes[name]) for name in names)
    return frozenset(
        name
        for name, node in nodes
        if not affinity.matches(name, node.labels) or not tolerations.is_only_condition(node.taints)
    )


def find_chosen(snapshot: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return those of the nodes on which the DaemonSet creates a pod, if they have none."""
    return frozenset(_iterate_chosen(snapshot, names))


def find_chosen_others(snapshot: Snapshot, known: AbstractSet[str]) -> frozenset[str]:
    """Return the nodes beside these on which the DaemonSet creates a pod, if they have none."""
    return find_chosen(snapshot, snapshot.nodes.keys() - known)


def has_chosen_other(snapshot: Snapshot, known: AbstractSet[str]) -> bool:
    """Return whether there is such a node: see `find_chosen_others`."""
    others = (name for name in snapshot.nodes if name not in known)
    return any(True for _ in _iterate_chosen(snapshot, others))


def _iterate_chosen(snapshot: Snapshot, names: Iterable[str]) -> Iterator[str]:
    if snapshot.owned_daemon_set is None:
        return
    affinity, tolerations = snapshot.affinity, snapshot.tolerations
    for name in names:
        node = snapshot.nodes[name]
        if not tolerations.untolerated(node.taints) and affinity.matches(name, node.labels):
            yield name


def find_nearly_given_up(snapshot: Snapshot, nodes: Iterable[Node], now: datetime) -> list[Node]:
    """Return those of the nodes whose tasks no longer count as at work, for a Job with a rollout.

    Other Jobs have no places that such a node would free.
    """
    if snapshot.job.spec.rollout is None:
        return []
    return [
        node
        for node in nodes
        if not node.ready
        and node_left(node) in snapshot.seen
        and timedelta() <= now - counts_until(snapshot, node, now) < CONFIRMED_AFTER
    ]
