"""Whose turn it is: which pods may leave the scheduling gate, and when pods get one at all."""

from __future__ import annotations

from job_controller.api.objects import Pod
from job_controller.core.snapshot import Snapshot
from job_controller.core.tally import COMPLETED, Tally, merge_evidence


def wants_gate(snapshot: Snapshot, tally: Tally) -> bool:
    """Return whether pods made from now on shall wait for their turn.

    A run starts without the gate: a patch for each of a thousand pods would cost as much as the
    pods themselves. The gate goes up once every node has its first pod, so that what follows,
    the successor of a pod that somebody deleted, does not do a completed node's work again. It
    never comes down. A DaemonSet that has to be made anew when work is on record starts with it.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        return bool(merge_evidence(snapshot))
    return daemon_set.is_gated or (tally.is_exact and tally.desired > 0)


def due_pods(tally: Tally) -> tuple[Pod, ...]:
    """Return the gated pods whose turn it is, in order of node name.

    Without an order asked for that is every node that has not completed its work.
    """
    return tuple(
        node.pod
        for _, node in sorted(tally.nodes.items())
        if node.pod is not None and node.pod.is_gated and node.state != COMPLETED
    )
