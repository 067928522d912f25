"""Desired nodes whose own condition keeps pods off, so that they have none.

A node that is not Ready has a taint that pods of a DaemonSet do not tolerate
(node.kubernetes.io/not-ready:NoSchedule; kubernetes pkg/controller/nodelifecycle). The DaemonSet
controller does not delete an existing pod for it. After a graceful shutdown or a forced deletion it
no longer counts the node and creates no pod. The condition passes, and the node's work is not done.
So a node that has begun stays desired.

On a machine that is down a deleted pod cannot end, and no other one is created. Its node stays
desired meanwhile, whether or not it has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeGuard

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import Taint
from daemonset_job.api.times import add_seconds
from job_controller.core.state.first_seen import node_not_ready
from job_controller.core.state.node_context import RunContext
from job_controller.core.state.node_pods import is_older_than_node, terminating_pods
from job_controller.core.state.node_unreachable import is_away, unreachable_reason, with_absence
from job_controller.core.state.snapshot import (
    Snapshot,
    find_tried,
    merge_evidence,
    merge_records,
)


@dataclass(frozen=True, slots=True)
class Absence:
    """The desired nodes that have no current pod.

    `kept_off`: those that get none for a condition of theirs, with its taint. They have begun, or
    are not Ready, and have a pod that is being deleted; these may have no taint. `uncounted`: those
    that have begun and that nothing keeps a pod off; the DaemonSet controller is about to count
    them.
    """

    kept_off: Mapping[str, Taint | None] = field(default_factory=dict)
    uncounted: frozenset[str] = frozenset()


def find_absence(
    snapshot: Snapshot,
    pods_by_node: Mapping[str, Pod],
    ledger: Mapping[str, Evidence],
    records: Mapping[str, NodeRecord],
) -> Absence:
    """Return the desired nodes that are not in `pods_by_node`.

    A node that has begun counts with the UID it had when it began. A node that is due again has
    begun, also if nothing of its next try has. Each counts while the DaemonSet selects it. A taint
    that an administrator set takes it out of the count.
    """
    if snapshot.owned_daemon_set is None:
        return Absence()
    ending = list(terminating_pods(snapshot, pods_by_node))
    terminating = {pod.node_name for pod in ending}
    stuck = _find_stuck(snapshot, ending)
    kept_off: dict[str, Taint | None] = {}
    uncounted: set[str] = set()
    for name in sorted(stuck | _find_begun(snapshot, pods_by_node, ledger, records)):
        node = snapshot.nodes[name]
        if not snapshot.affinity.matches(name, node.labels):
            continue
        taints = snapshot.tolerations.untolerated(node.taints)
        if not all(taint.is_condition for taint in taints):
            continue
        if taints or name in stuck:
            kept_off[name] = next(iter(taints), None)
        else:
            uncounted |= {name} - terminating
    return Absence(kept_off, frozenset(uncounted))


def _find_stuck(snapshot: Snapshot, terminating: Iterable[Pod]) -> frozenset[str]:
    """Return the nodes of those of the deleted pods that cannot end, as the node is not Ready.

    The pod of a former node says nothing of the one that has its name now.
    """
    return frozenset(
        pod.node_name
        for pod in terminating
        if is_away(snapshot.nodes[pod.node_name])
        and not is_older_than_node(pod, snapshot.nodes[pod.node_name])
    )


def _find_begun(
    snapshot: Snapshot,
    pods_by_node: Mapping[str, Pod],
    ledger: Mapping[str, Evidence],
    records: Mapping[str, NodeRecord],
) -> set[str]:
    """Return the nodes that have begun, in this try or an earlier one, and have no current pod."""
    tried = find_tried(snapshot)
    found: set[str] = set()
    known = (records.keys() | ledger.keys() | tried.keys()) - pods_by_node.keys()
    for name in known & snapshot.nodes.keys():
        node, record = snapshot.nodes[name], records.get(name)
        is_due_again = record is not None and record.uid == node.uid and record.earlier_pods
        has_tried = is_due_again or tried.get(name) == node.uid
        if has_tried or node_has_begun(node, ledger.get(name), record):
            found.add(name)
    return found


def find_kept_off(snapshot: Snapshot, pods_by_node: Mapping[str, Pod]) -> frozenset[str]:
    """Return the nodes whose condition keeps their next or waiting pod off."""
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    absence = find_absence(snapshot, pods_by_node, ledger, records)
    return frozenset(absence.kept_off.keys() | tainted_with_pod(snapshot, pods_by_node).keys())


def tainted_with_pod(snapshot: Snapshot, pods_by_node: Mapping[str, Pod]) -> dict[str, Taint]:
    """Return the nodes whose pod cannot be scheduled until a condition of the node has passed.

    The node got the taint after the pod was created.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        return {}
    tainted: dict[str, Taint] = {}
    for name, pod in pods_by_node.items():
        if pod.is_scheduled or not snapshot.nodes[name].taints:
            continue
        taints = snapshot.tolerations.untolerated(snapshot.nodes[name].taints)
        if taints and all(taint.is_condition for taint in taints):
            tainted[name] = taints[0]
    return tainted


# States of nodes that have begun, whether or not their task was started. A node that failed before
# that may come back without its work being done. One that left has begun if its task was started.
_BEGUN: Final = frozenset({NodeState.ACTIVE, NodeState.UNREACHABLE, NodeState.FAILED})


def has_begun(record: NodeRecord | None) -> bool:
    """Return whether the node's task was started, or may have been, by its record.

    A node can fail before its task has started. It stays failed while it has no pod.
    """
    if record is None:
        return False
    return record.state in _BEGUN or record.attempts > 0


def assess_absent(
    context: RunContext,
    node: Node,
    taint: Taint | None,
    evidence: Evidence | None,
    record: NodeRecord | None,
) -> tuple[NodeRecord, datetime | None]:
    """Return the record of a node that a condition keeps a pod off, and when time changes it."""
    known = record if record is not None and record.uid == node.uid else None
    if _is_completed(evidence, node):
        return complete_record(known or NodeRecord(node.uid, NodeState.WAITING), evidence), None
    # A node that is due again has begun, and may have no record of that.
    known = known or NodeRecord(node.uid, NodeState.WAITING, retry=context.retry)
    if known.has_failed(context.retry):
        return known, None
    was_unreachable = known.state == NodeState.UNREACHABLE and known.retry == context.retry
    if (
        known.state not in {NodeState.ACTIVE, NodeState.WAITING, NodeState.UNREACHABLE}
        or known.retry != context.retry
    ):
        # Removed, or failed before a retry: it is tried again as soon as it takes a pod.
        known = NodeRecord(
            uid=known.uid,
            state=NodeState.WAITING,
            # At least one, to record that the node has begun: `Waiting` alone does not say so.
            attempts=max(known.attempts, int(known.state != NodeState.WAITING)),
            started_at=known.started_at,
            pod_uid=known.pod_uid,
            retry=context.retry,
        )
    if context.is_suspended:
        # As for a pod at its gate: the time in which no pod may start does not count.
        known = replace(known, active_since=None)
    sighting = context.seen.get(node_not_ready(node, context.retry))
    first = sighting.first if sighting is not None else context.now
    limit = add_seconds(first, context.unreachable_seconds)
    if context.now < limit and not was_unreachable:
        return with_absence(context, known, node), limit
    reason, message = unreachable_reason(node, taint)
    return replace(known, state=NodeState.UNREACHABLE, reason=reason, message=message), None


def node_has_begun(node: Node, evidence: Evidence | None, record: NodeRecord | None) -> bool:
    """Return whether ledger or record show that this node, by its UID, has begun or completed."""
    if _is_completed(evidence, node):
        return True
    if record is None or record.uid != node.uid:
        return False
    return has_begun(record)


def _is_completed(evidence: Evidence | None, node: Node) -> TypeGuard[Evidence]:
    """Return whether the evidence is about this node, by its UID, and completes it."""
    return evidence is not None and evidence.completes(node.uid)


def complete_record(record: NodeRecord, evidence: Evidence) -> NodeRecord:
    """Return the record of a node that has completed by that evidence, and has no pod."""
    if record.state == NodeState.COMPLETED:
        return record
    return NodeRecord(
        uid=record.uid,
        state=NodeState.COMPLETED,
        attempts=max(record.attempts, 1),
        started_at=record.started_at,
        finished_at=evidence.completion_time,
        pod_uid=evidence.pod_uid or record.pod_uid,
        retry=record.retry,
    )
