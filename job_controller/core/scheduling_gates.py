"""Whose turn it is: which pods may leave the scheduling gate, and when pods get one at all."""

from __future__ import annotations

from daemonset_job.api.objects import Pod
from job_controller.core.state.node_counts import NodeCounts, merge_evidence
from job_controller.core.state.node_state import COMPLETED, FAILED
from job_controller.core.state.run_state import RUN_FAILED, RUN_PAUSED, RunState
from job_controller.core.state.snapshot import Snapshot


def may_start_nodes(snapshot: Snapshot, run: RunState) -> bool:
    """Return whether nodes may start their work now; those that have started go on in any case."""
    return not snapshot.job.spec.suspend and run.state not in {RUN_PAUSED, RUN_FAILED}


def should_gate_new_pods(snapshot: Snapshot, counts: NodeCounts, run: RunState) -> bool:
    """Return whether pods made from now on shall wait for their turn.

    A run starts without the gate: a patch for each of a thousand pods would cost as much as the
    pods themselves. The gate goes up once every node has its first pod, so that what follows,
    the successor of a pod that somebody deleted, does not do a completed node's work again; and
    at once when no turns are given. It never comes down. A DaemonSet that has to be made anew
    when there were nodes before, or work is on record, starts with it.
    """
    if not may_start_nodes(snapshot, run):
        return True
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        had_nodes = bool(snapshot.job.reported_desired)
        recorded = any(report.records for report in snapshot.reports)
        return had_nodes or recorded or bool(merge_evidence(snapshot))
    return daemon_set.is_gated or (counts.is_exact and counts.desired > 0)


def pods_to_ungate(snapshot: Snapshot, counts: NodeCounts, run: RunState) -> tuple[Pod, ...]:
    """Return the gated pods whose turn it is, in order of node name.

    Without an order asked for that is every node that has neither completed nor failed. A node
    that joins a run which has completed meanwhile is served like the others.
    """
    if not may_start_nodes(snapshot, run):
        return ()
    return tuple(
        node.pod
        for _, node in sorted(counts.nodes.items())
        if node.pod.is_gated and node.state not in {COMPLETED, FAILED}
    )
