"""Which pods may be scheduled, and when new pods get a scheduling gate."""

from __future__ import annotations

from daemonset_job.api.pod import Pod
from daemonset_job.api.rollback import starts_no_node
from daemonset_job.api.states import NodeState
from job_controller.core.rollout.rollout_state import RolloutState
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunState
from job_controller.core.state.snapshot import Snapshot, merge_evidence
from job_controller.core.state.unchosen_nodes import find_unchosen


def may_start_nodes(snapshot: Snapshot, run: RunState, rollout: RolloutState) -> bool:
    """Return whether nodes may start their work now; started ones continue in any case."""
    if starts_no_node(snapshot.job) or run.is_enough or not run.is_open:
        return False
    return rollout.hold is None


def should_gate_new_pods(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, rollout: RolloutState
) -> bool:
    """Return whether new pods are to wait at the scheduling gate.

    With a rollout they always do: a node may start when its turn is on record. Without one, a run
    starts without the gate: a patch for each of a thousand pods would cost as much as the
    pods themselves. The gate is added once every node has its first pod. Then the successor of a
    deleted pod does not repeat a completed node's work. While pods are refused that may take long:
    then the gate is added once a node has completed. It is added at once while no node may start,
    and before the pod of a failed node is deleted. It is never removed. A DaemonSet that is created
    again starts with the gate if there were nodes before, or work is recorded. So does each one of
    a Job with a rollout.
    """
    has_rollout = snapshot.job.spec.rollout is not None
    if has_rollout or not may_start_nodes(snapshot, run, rollout):
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
    snapshot: Snapshot, counts: NodeCounts, run: RunState, rollout: RolloutState
) -> tuple[Pod, ...]:
    """Return the gated pods that may start, in order of node name.

    Those are the pods of all nodes that have neither completed nor failed. A node that joins a run
    after its completion is treated like the others. With a rollout, see `RolloutState.open_pods`.
    None is the pod of a node that is taken out, by a change of the spec or of its labels. The
    DaemonSet controller deletes it, but only once it has seen that change.
    """
    found = rollout.open_pods
    if snapshot.job.spec.rollout is None:
        found = _waiting_pods(counts) if may_start_nodes(snapshot, run, rollout) else ()
    unchosen = find_unchosen(snapshot, counts, [pod.node_name for pod in found])
    return tuple(pod for pod in found if pod.node_name not in unchosen)


def _waiting_pods(counts: NodeCounts) -> tuple[Pod, ...]:
    return tuple(
        node.pod
        for _, node in sorted(counts.nodes.items())
        if node.pod.is_gated
        and node.state not in {NodeState.COMPLETED, NodeState.FAILED}
        and not (node.replace_pod or node.awaits_retry or node.awaits_record)
    )
