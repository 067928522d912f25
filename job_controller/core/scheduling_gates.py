"""Which pods may be scheduled, and when new pods get a scheduling gate."""

from __future__ import annotations

from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.core.state.snapshot import Snapshot, merge_evidence


def may_start_nodes(snapshot: Snapshot, run: RunState) -> bool:
    """Return whether nodes may start their work now; started ones continue in any case."""
    return not snapshot.job.spec.suspend and run.outcome not in {
        RunOutcome.PAUSED,
        RunOutcome.FAILED,
    }


def should_gate_new_pods(snapshot: Snapshot, counts: NodeCounts, run: RunState) -> bool:
    """Return whether new pods are to wait at the scheduling gate.

    A run starts without the gate: a patch for each of a thousand pods would cost as much as the
    pods themselves. The gate is added once every node has its first pod. Then the successor of a
    deleted pod does not repeat a completed node's work. While pods are refused that may take long:
    then the gate is added once a node has completed. It is added at once while no node may start,
    and before the pod of a failed node is deleted. It is never removed. A DaemonSet that is created
    again starts with the gate if there were nodes before, or work is recorded.
    """
    if not may_start_nodes(snapshot, run):
        return True
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        had_nodes = bool(snapshot.job.reported_desired)
        recorded = any(report.records for report in snapshot.reports)
        return had_nodes or recorded or bool(merge_evidence(snapshot))
    if daemon_set.is_gated or (counts.is_exact and counts.desired > 0):
        return True
    if any(node.delete_pod and node.state == NodeState.FAILED for node in counts.nodes.values()):
        return True
    ledger = merge_evidence(snapshot) if snapshot.failed_create_message else {}
    return any(evidence.is_completed for evidence in ledger.values())


def pods_with_removable_gate(
    snapshot: Snapshot, counts: NodeCounts, run: RunState
) -> tuple[Pod, ...]:
    """Return the gated pods that may start, in order of node name.

    Those are the pods of all nodes that have neither completed nor failed. A node that joins a run
    after its completion is treated like the others.
    """
    if not may_start_nodes(snapshot, run):
        return ()
    return tuple(
        node.pod
        for _, node in sorted(counts.nodes.items())
        if node.pod.is_gated
        and node.state not in {NodeState.COMPLETED, NodeState.FAILED}
        and not (node.replace_pod or node.awaits_retry or node.awaits_record)
    )
