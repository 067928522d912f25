"""Which nodes stay counted for the step of their turn: those that left, or wait for another turn.

The task may be why a machine is replaced, fails, or gets a label that the selection excludes. If
others had their turn in its place, a step of one node could go through the cluster before its
check.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from job_controller.core.state.absence import has_begun
from job_controller.core.state.desired_count import matching_nodes
from job_controller.core.state.left_nodes import find_chosen
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

# With one of these states a node had its turn, also if no attempt is on record.
_HAD_TURN: Final = frozenset({NodeState.COMPLETED, NodeState.FAILED, NodeState.REMOVED})
# With one of these reasons a node waits for more than its turn. Its gate is removed once the report
# has another one (see `core.preparation`).
_PREPARING: Final = frozenset(
    {NodeReason.DRAINING, NodeReason.DRAIN_BLOCKED, NodeReason.NODE_IN_USE}
)
# With one of these reasons the pod of a waiting node was not on its node yet.
_BEFORE_NODE: Final = frozenset(
    {
        *_PREPARING,
        NodeReason.FOREIGN_SCHEDULING_GATE,
        NodeReason.POD_TAKEN_BACK,
        NodeReason.UNSCHEDULABLE,
    }
)


@dataclass(frozen=True, slots=True)
class KeptNodes:
    """The nodes that some step has had, by name, for what the Job runs now.

    `left` are those that left the cluster or the selection after their task had begun. A node that
    the user took out of the selection, by a change of the Job, is not among them. `present` are all
    others, those that have their turn now and those that have ended included. The name counts, and
    not the UID: a node that is registered again is one of them.
    """

    left: frozenset[str] = field(default_factory=frozenset)
    present: frozenset[str] = field(default_factory=frozenset)


def find_kept(snapshot: Snapshot, counts: NodeCounts) -> KeptNodes:
    """Return the nodes that stay counted for their step."""
    of_steps = {
        name: record
        for name, record in merge_records(snapshot).items()
        if record.step and record.revision == snapshot.job.revision
    }
    ledger = merge_evidence(snapshot)
    uids = snapshot.pod_uids
    begun = {
        name for name, record in of_steps.items() if has_taken_turn(record, ledger.get(name), uids)
    }
    begun |= of_steps.keys() & find_opened(snapshot)
    left = begun - snapshot.nodes.keys()
    others = (begun & snapshot.nodes.keys()) - counts.desired_names
    selected = find_chosen(snapshot, others)
    # What a change of the Job has taken out does not match. Only a taint keeps the others off.
    is_first = _has_first_selection(snapshot)
    left |= (others if is_first else matching_nodes(snapshot, others)) - selected
    present = {
        name
        for name in of_steps.keys() & (counts.nodes.keys() | counts.absent.keys())
        if name in begun
        or (name in snapshot.nodes and snapshot.nodes[name].uid == of_steps[name].uid)
    }
    # Those without a pod are about to get one.
    return KeptNodes(frozenset(left), frozenset(present | selected))


def find_opened(snapshot: Snapshot) -> set[str]:
    """Return the nodes whose pod is past its gate, deleted nodes included: a task may have begun.

    On a deleted node that is so only if the pod was bound to it.
    """
    return {
        pod.node_name
        for pod in snapshot.all_pods
        if not pod.is_gated and (pod.is_scheduled or pod.node_name in snapshot.nodes)
    }


def find_untaken(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> set[str]:
    """Return the nodes, by name, whose pod waits at the gate and never passes it, or is gone.

    The node is deleted, or has a taint for which the pod is deleted. Their turns are given back
    before the pod is gone, because others may have theirs in their place. Without the pod nothing
    would show that these were not taken. Of a pod past the gate that never was on its node, the
    record shows that.
    """
    of_steps = {name: record for name, record in records.items() if record.step}
    if not of_steps:
        return set()
    gated = {pod.uid for pod in snapshot.all_pods if pod.is_gated}
    surplus = {pod.uid for pod in counts.surplus_pods}
    return _find_without_pod(snapshot, counts, of_steps) | {
        name
        for name, record in of_steps.items()
        if record.pod_uid in gated
        and (
            (node := snapshot.nodes.get(name)) is None
            or node.uid != record.uid
            or record.pod_uid in surplus
        )
    }


def _find_without_pod(
    snapshot: Snapshot, counts: NodeCounts, of_steps: Mapping[str, NodeRecord]
) -> set[str]:
    """Return the nodes that have not taken their turn, and that have no pod and get none now.

    The DaemonSet controller may be away, and count them for long. Others have their turn in their
    place meanwhile. Such a node that is back would have one in the same step.
    """
    if snapshot.owned_daemon_set is None:
        return set()
    ledger, uids = merge_evidence(snapshot), snapshot.pod_uids
    found = {
        name
        for name in of_steps.keys() - counts.nodes.keys() - counts.absent.keys()
        if of_steps[name].pod_uid not in uids
        and not has_taken_turn(of_steps[name], ledger.get(name), uids)
    }
    return found - find_chosen(snapshot, found & snapshot.nodes.keys())


def find_unreturned(snapshot: Snapshot, counts: NodeCounts) -> frozenset[str]:
    """Return the UIDs of such pods, of nodes whose turns have yet to be given back.

    Until that is on record, only these pods show that the turns were not taken.
    """
    records = merge_records(snapshot)
    if not (untaken := find_untaken(snapshot, counts, records)):
        return frozenset()
    ledger, uids = merge_evidence(snapshot), snapshot.pod_uids
    return frozenset(
        records[name].pod_uid
        for name in untaken
        if records[name].pod_uid in uids
        and not has_taken_turn(records[name], ledger.get(name), uids)
    )


def has_taken_turn(record: NodeRecord, evidence: Evidence | None, uids: AbstractSet[str]) -> bool:
    """Return whether the node with that record, which has a step, took the turn in it.

    `uids` are those of all pods. A node that is registered again has no part in a turn that the one
    before had not taken yet. A pod that was at the gate and is gone may have passed the gate
    before: a controller can end right after it has removed the gate.
    """
    is_completed = evidence is not None and evidence.completes(record.uid)
    if record.turn_at is None or is_completed or has_begun(record) or record.state in _HAD_TURN:
        return True
    if not record.pod_uid:
        return False
    if record.reason == NodeReason.SCHEDULING_GATED:
        return record.pod_uid not in uids
    # It was past the gate. What became of it while no controller ran is not known.
    return record.reason not in _BEFORE_NODE


def _has_first_selection(snapshot: Snapshot) -> bool:
    """Return whether the Job selects nodes as it did at the start of the run."""
    first = snapshot.first_report
    return first is not None and first.selection_hash == snapshot.job.selection_hash
