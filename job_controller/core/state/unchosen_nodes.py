"""Nodes that the newest spec or their labels have taken out, and whose pods are still there.

The DaemonSet controller deletes these pods once it has seen the change. Until then a pod that waits
at its gate is like any other, and its task must not start. The scheduler does not keep it off: in
the affinity of a pod, that controller puts the name of its node in the place of all terms.
"""

from __future__ import annotations

from collections.abc import Collection

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.taints import Tolerations
from job_controller.core.desired.daemon_set import desired_pod_spec
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot


def find_unchosen(snapshot: Snapshot, counts: NodeCounts, names: Collection[str]) -> frozenset[str]:
    """Return those of the nodes that the Job does not choose, or tolerate, any more.

    Of a selection with too many terms it is not known whether it chooses a node. A pod has the
    tolerations with which it was created, so the scheduler may bind one that a change takes out.
    """
    if not names:
        return frozenset()
    affinity, tolerations = snapshot.affinity, snapshot.tolerations
    if not counts.desired_is_current or counts.nodes_spec_is_refused:
        # The DaemonSet need not have the newest selection.
        if has_too_many_terms(snapshot.job):
            return frozenset(names)
        spec = desired_pod_spec(snapshot.job, snapshot.settings)
        affinity, tolerations = NodeAffinity(spec), Tolerations(spec)
    return frozenset(
        name
        for name in names
        if (node := snapshot.nodes.get(name)) is None
        or not affinity.matches(name, node.labels)
        or not tolerations.is_only_condition(node.taints)
    )


def count_chosen(snapshot: Snapshot) -> int | None:
    """Return how many nodes the newest selection chooses, by the cache; None if that is not known.

    A node that only its own condition keeps from a pod counts: it may be desired.
    """
    if has_too_many_terms(snapshot.job):
        return None
    spec = desired_pod_spec(snapshot.job, snapshot.settings)
    affinity, tolerations = NodeAffinity(spec), Tolerations(spec)
    return sum(
        affinity.matches(name, node.labels) and tolerations.is_only_condition(node.taints)
        for name, node in snapshot.nodes.items()
    )
