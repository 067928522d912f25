"""Which selection chose a node, or was left by it, in the records of policy Continuous.

A node whose labels bring it back runs the task again. One that a change of the Job takes in does
not. Only its record says which of them it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState
from job_controller.core.render.late_records import change_records
from job_controller.core.state.desired_count import find_selections
from job_controller.core.state.due_again import (
    has_left,
    has_left_by_labels,
    keep_left,
    mark_undone_left,
    selection_of,
    stamp,
)
from job_controller.core.state.left_nodes import find_chosen
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_records


def record_selections(
    snapshot: Snapshot, counts: NodeCounts, statuses: Sequence[tuple[JobReport, ReportStatus]]
) -> list[tuple[JobReport, ReportStatus]]:
    """Return the reports to write, with what is new of completed nodes; the rest of them stays.

    It is for a run that has ended, while its nodes are not counted: a pod may be refused for long.
    `statuses` are reports that are written anyway.
    """
    if not snapshot.job.spec.is_continuous:
        return list(statuses)
    marked = mark_completed(snapshot, counts, merge_records(snapshot))

    def find_changed(records: Mapping[str, NodeRecord]) -> dict[str, NodeRecord]:
        return {
            name: new
            for name, record in records.items()
            if (mark := marked.get(name)) is not None
            and record.state == NodeState.COMPLETED
            and record.uid == snapshot.nodes[name].uid
            and (new := replace(record, selection=mark.selection, reason=mark.reason)) != record
        }

    return change_records(snapshot.reports, statuses, find_changed)


def mark_completed(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Return the new records of completed nodes without a pod, and of those that have left."""
    if not snapshot.job.spec.is_continuous:
        return {}
    marked = _chosen_since(snapshot, counts, records)
    others = counts.completed_unselected | counts.completed_without_pod
    marked |= _mark_left(snapshot, {**records, **marked}, others)
    return marked | _keep_left(snapshot, counts, {**records, **marked})


def mark_undone(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Return the new records of nodes that had not completed when their labels took them out."""
    if not counts.desired_is_current:
        return {}
    return {
        name: mark_undone_left(record)
        for name, record in records.items()
        if record.state in {NodeState.FAILED, NodeState.REMOVED}
        and name not in counts.nodes
        and name not in counts.absent
        and has_left_by_labels(snapshot, name, record)
    }


def _chosen_since(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Return the new records of completed nodes without a pod that the newest selection chooses.

    If they leave that selection, nothing else shows that no change of the Job has taken them out.
    """
    selection = snapshot.job.selection_hash
    chosen = find_selections(snapshot, counts.completed_without_pod)
    return {
        name: stamp(snapshot.job, name, records[name], records[name], chosen_by=selection)
        for name, chosen_by in chosen.items()
        if chosen_by == selection and name in records and selection_of(records[name]) != selection
    }


def _mark_left(
    snapshot: Snapshot, records: Mapping[str, NodeRecord], names: Iterable[str]
) -> dict[str, NodeRecord]:
    """Return the new records of completed nodes whose labels took them out of the selection.

    `names` are completed nodes without a pod. A taint may keep it off, or it may be about to come.
    The labels of a node in the cache may not have matched while it had its pod. Then they may be
    newer than the cache, and have brought it in. It has left only if that pod is gone, and no other
    one follows. Besides, the DaemonSet controller must have counted the nodes that match by the
    cache: as many, and each has a pod, unless pods are refused.
    """
    daemon_set = snapshot.owned_daemon_set
    if not snapshot.job.spec.is_continuous or daemon_set is None:
        return {}
    left = [
        name
        for name in names
        if name in records
        and not has_left(records[name])
        and not snapshot.affinity.matches(name, snapshot.nodes[name].labels)
    ]
    doubtful = {name for name in left if not records[name].selection}
    chosen = find_chosen(snapshot, snapshot.nodes) if doubtful else ()
    if doubtful and daemon_set.is_observed and daemon_set.desired == len(chosen):
        with_pods = {pod.node_name for pod in snapshot.pods}
        if snapshot.failed_create_message or with_pods.issuperset(chosen):
            doubtful &= with_pods
    left = [name for name in left if name not in doubtful]
    # Without a selection in its record, a node counts because the first one chose it: the newest.
    selection = snapshot.job.selection_hash
    return {
        name: replace(
            records[name],
            reason=NodeReason.LEFT_SELECTION,
            selection=records[name].selection or selection,
        )
        for name in left
    }


def _keep_left(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Return the new records of nodes that had left when another selection was asked for.

    They match that one neither. So if they match it later, their labels have brought them back, and
    no change of the Job has taken them in.
    """
    if not counts.desired_is_current or counts.nodes_spec_is_refused:
        return {}
    return {
        name: kept
        for name, record in records.items()
        if (kept := keep_left(snapshot.job, record)) != record
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == record.uid
        and not snapshot.affinity.matches(name, node.labels)
    }
