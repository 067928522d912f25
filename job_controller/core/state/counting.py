"""Counts the nodes of a run: which are desired, and in which state each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.states import ConditionType, NodeState
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.absence import (
    Absence,
    assess_absent,
    find_absence,
    has_begun,
    node_has_begun,
    tainted_with_pod,
)
from job_controller.core.state.causes import has_started
from job_controller.core.state.desired_count import (
    Misplaced,
    add_absent,
    agrees_with_daemon_set,
    count_desired,
    find_completed,
    find_completed_others,
    find_completed_without_pod,
    find_misplaced,
    find_selections,
    has_desired_placement,
    has_uncached_pods,
    has_undone_node_without_pod,
    matching_nodes,
    observed_daemon_set,
)
from job_controller.core.state.due_again import is_of_earlier_try, is_stale, stamp
from job_controller.core.state.failed_without_pod import find_failed_without_pod
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_counts import DesiredNode, NodeCounts
from job_controller.core.state.node_exits import is_fatal
from job_controller.core.state.node_observed import record_from_pod
from job_controller.core.state.node_pods import (
    current_pods,
    find_pods_of_deleted_nodes,
    is_kept_off_by_taint,
    is_older_than_node,
    terminating_nodes,
)
from job_controller.core.state.node_state import assess_node
from job_controller.core.state.overlooked_nodes import find_overlooked_for_long
from job_controller.core.state.placement_wait import stalled_at
from job_controller.core.state.replaced_pods import replaced_node
from job_controller.core.state.set_aside_nodes import find_set_aside, is_set_aside
from job_controller.core.state.skipped_nodes import find_skipped
from job_controller.core.state.snapshot import (
    Snapshot,
    find_held,
    merge_evidence,
    merge_records,
)

_ENDED: Final = frozenset({NodeState.COMPLETED, NodeState.FAILED})


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the steps of a count start from: ledger, records and current pods by node name.

    `chosen`: the selection that chooses each of these nodes; for policy Continuous only.
    `held`: those whose pods are left alone until the report says that the node is due again.
    """

    snapshot: Snapshot
    context: RunContext
    ledger: Mapping[str, Evidence]
    records: Mapping[str, NodeRecord]
    pods_by_node: Mapping[str, Pod]
    chosen: Mapping[str, str]
    held: frozenset[str]


@dataclass(frozen=True, slots=True)
class _NodesWithPod:
    """The nodes with a pod, pods that are none of theirs, and when time alone changes a state."""

    nodes: Mapping[str, DesiredNode]
    surplus_pods: tuple[Pod, ...]
    is_record_urgent: bool
    wakes: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class _Placement:
    """How many nodes are desired; whether the DaemonSet and the caches agree on which they are.

    `is_newest`: the DaemonSet controller has acted on the newest selection of the Job.
    """

    desired: int
    misplaced: Misplaced
    is_agreed: bool
    is_altered: bool
    is_newest: bool


def count_nodes(snapshot: Snapshot, now: datetime) -> NodeCounts:
    """Return the state of every desired node.

    A node is desired while it has a pod of the DaemonSet that is not being deleted. A node that has
    begun is desired also without a pod, while only its own condition keeps pods off (see
    `absence`). Ledger and records count only for the same node UID: a node that is created again
    under its old name starts again.
    """
    facts = _gather(snapshot, now)
    ledger, records, daemon_set = facts.ledger, facts.records, snapshot.owned_daemon_set
    found = _assess_nodes_with_pod(facts)
    of_deleted_nodes, wake_at = find_pods_of_deleted_nodes(
        snapshot, ledger.keys() | records.keys(), now
    )
    surplus_pods = (*found.surplus_pods, *of_deleted_nodes)
    absence = find_absence(snapshot, facts.pods_by_node, ledger, records)
    ending = _record_starts_of_ending_pods(facts)
    absent, absent_wakes = _assess_absent_nodes(facts, absence, ending)
    with_pod = {pod.node_name for pod in snapshot.pods if not pod.is_terminal}
    skipped = find_skipped(snapshot, ledger, with_pod | found.nodes.keys() | absent.keys())
    placement = _find_placement(facts, absence)
    counted = found.nodes.keys() | absent.keys()
    without_pod = find_completed_without_pod(
        snapshot, ledger, counted, placement.desired - len(counted)
    )
    others = find_completed_others(
        snapshot, ledger, records, counted | without_pod, placement.misplaced
    )
    without_pod |= others.unsettled
    # Nothing keeps a pod off the uncounted, and the DaemonSet controller has yet to count them.
    is_exact = placement.is_agreed and not (surplus_pods or absence.uncounted or others.unsettled)
    if is_exact and all(node.state in _ENDED for node in found.nodes.values()):
        # Only now, because that takes a look at every node of the cluster.
        is_exact = not has_undone_node_without_pod(snapshot, ledger, counted)
    is_outdated = daemon_set is not None and daemon_set.nodes_hash != snapshot.job.nodes_hash
    is_refused = RefusedWrite.DAEMON_SET in snapshot.refusals
    stalls_at = stalled_at(snapshot, now)
    is_stalled = stalls_at is not None and now >= stalls_at
    overlooked, overlooked_at = find_overlooked_for_long(snapshot, now)
    later = (wake_at, None if is_stalled else stalls_at, overlooked_at)
    wakes = (*found.wakes, *absent_wakes, *(at for at in later if at is not None))
    return NodeCounts(
        nodes=found.nodes,
        # A cached pod of a node that is shut down may be gone. The DaemonSet controller no longer
        # counts that node, and it stays desired (see `absence`).
        desired=max(placement.desired, len(counted | without_pod)) + len(others.unselected),
        is_exact=is_exact,
        absent=absent,
        ending=ending,
        skipped=skipped,
        completed_without_pod=without_pod,
        failed_without_pod=find_failed_without_pod(snapshot, ledger, records, counted),
        completed_unselected=others.unselected,
        surplus_pods=surplus_pods,
        desired_is_known=daemon_set is not None and daemon_set.observed_generation > 0,
        desired_is_current=placement.is_newest or (is_outdated and is_refused),
        nodes_spec_is_applied=not is_outdated or is_refused,
        nodes_spec_is_refused=is_outdated and is_refused,
        set_aside=find_set_aside(snapshot, records, found.nodes, absent),
        new_pods_are_gated=daemon_set is None or (daemon_set.is_gated and daemon_set.is_observed),
        is_altered=placement.is_altered,
        is_stalled=is_stalled,
        overlooked=overlooked,
        is_record_urgent=found.is_record_urgent or bool(ending),
        wake_at=min(wakes, default=None),
    )


def _gather(snapshot: Snapshot, now: datetime) -> _Facts:
    job = snapshot.job
    context = RunContext(
        job.spec,
        job.retry_request,
        snapshot.settings.timeouts,
        now,
        snapshot.seen,
        job.status.completion_time,
        snapshot.failed_mount,
        job.status.observed_retry,
        job.is_suspended,
    )
    ledger, records, pods_by_node = (
        merge_evidence(snapshot),
        merge_records(snapshot),
        current_pods(snapshot),
    )
    known = pods_by_node.keys() | (snapshot.nodes.keys() & (ledger.keys() | records.keys()))
    chosen = find_selections(snapshot, known)
    held = find_held(snapshot, pods_by_node)
    return _Facts(snapshot, context, ledger, records, pods_by_node, chosen, held)


def _assess_nodes_with_pod(facts: _Facts) -> _NodesWithPod:
    """Return the state of each node with a current pod."""
    snapshot = facts.snapshot
    tainted = tainted_with_pod(snapshot, facts.pods_by_node)
    nodes: dict[str, DesiredNode] = {}
    surplus_pods: list[Pod] = []
    wakes: list[datetime | None] = []
    is_record_urgent = False
    for name, pod in facts.pods_by_node.items():
        node, record = snapshot.nodes[name], facts.records.get(name)
        if is_older_than_node(pod, node) or is_kept_off_by_taint(snapshot, pod, node):
            surplus_pods.append(pod)
            continue
        if (evidence := facts.ledger.get(name)) is not None and evidence.node_uid != node.uid:
            evidence = None
        taint, drain = tainted.get(name), snapshot.drains.get(name)
        inputs = NodeInputs(node, pod, evidence, record, taint, drain)
        if is_stale(snapshot.job, pod, evidence, record):
            nodes[name], wake_at = replaced_node(
                snapshot,
                facts.context,
                inputs,
                chosen_by=facts.chosen.get(name, ""),
                awaits_record=name in facts.held,
            )
            wakes.append(wake_at)
            continue
        assessment = assess_node(facts.context, inputs)
        nodes[name] = DesiredNode(
            name,
            stamp(
                snapshot.job, name, assessment.record, record, chosen_by=facts.chosen.get(name, "")
            ),
            pod,
            assessment.replace_pod,
            assessment.delete_pod,
            assessment.awaits_retry,
            assessment.repeats_task,
            awaits_record=name in facts.held,
        )
        wakes.append(assessment.wake_at)
        if not node.ready or pod.is_disrupted or pod.is_terminal:
            is_recorded = has_begun(record if record and record.uid == node.uid else None)
            is_record_urgent |= has_begun(assessment.record) and not is_recorded
        if is_fatal(snapshot.job.spec, assessment.record.exit_code):
            known = record.exit_code if record is not None else None
            is_record_urgent |= known != assessment.record.exit_code
    return _NodesWithPod(nodes, tuple(surplus_pods), is_record_urgent, tuple(filter(None, wakes)))


def _assess_absent_nodes(
    facts: _Facts, absence: Absence, ending: Mapping[str, NodeRecord]
) -> tuple[dict[str, NodeRecord], list[datetime]]:
    """Return the records of nodes that a condition keeps pods off, and when time changes them."""
    absent: dict[str, NodeRecord] = {}
    wakes: list[datetime] = []
    for name, taint in absence.kept_off.items():
        node = facts.snapshot.nodes[name]
        record = facts.records.get(name)
        found, wake_at = assess_absent(
            facts.context, node, taint, facts.ledger.get(name), ending.get(name, record)
        )
        absent[name] = stamp(
            facts.snapshot.job, name, found, record, chosen_by=facts.chosen.get(name, "")
        )
        if wake_at is not None:
            wakes.append(wake_at)
    return absent, wakes


def _record_starts_of_ending_pods(facts: _Facts) -> dict[str, NodeRecord]:
    """Return a record for each node whose start only a pod shows that is being deleted.

    If the machine is down, the pod cannot end, and a client may delete it by force. The node then
    stays desired only by its record (see `absence`).
    """
    found: dict[str, NodeRecord] = {}
    for pod in facts.snapshot.pods:
        name = pod.node_name
        if not pod.is_terminating or name in facts.pods_by_node:
            continue
        node, record = facts.snapshot.nodes.get(name), facts.records.get(name)
        if node is None or is_older_than_node(pod, node) or not has_started(pod):
            continue
        if is_of_earlier_try(facts.snapshot.job, pod, record):
            continue
        if not node_has_begun(node, facts.ledger.get(name), record):
            known = record if record is not None and record.uid == node.uid else None
            inputs = NodeInputs(node, pod, None, known, None)
            start = known or NodeRecord(node.uid, NodeState.WAITING, retry=facts.context.retry)
            # Its end, if it has ended, may be that of its pod.
            record = replace(record_from_pod(facts.context, start, inputs), exit_code=None)
            found[name] = stamp(
                facts.snapshot.job, name, record, known, chosen_by=facts.chosen.get(name, "")
            )
    return found


def _find_placement(facts: _Facts, absence: Absence) -> _Placement:
    """Return how many nodes are desired, and whether it is known which.

    It is not known while the DaemonSet controller is about to delete a pod whose node does not
    match. Nor is it while a pod is being deleted whose successor follows. On a machine that is down
    that does not end. So after the end of the run, a node that has completed or is absent is known
    without its successor. So is one that is set aside, and whose pod is deleted for that. With
    `completion.release` a completed node always is.
    """
    snapshot, pods_by_node = facts.snapshot, facts.pods_by_node
    daemon_set = snapshot.owned_daemon_set
    terminating = terminating_nodes(snapshot, pods_by_node)
    matching = matching_nodes(snapshot, (*pods_by_node, *terminating))
    has_ended = any(map(snapshot.job.is_true, (ConditionType.COMPLETE, ConditionType.FAILED)))
    no_successor: frozenset[str] = frozenset()
    if has_ended or snapshot.job.spec.completion.release:
        no_successor = terminating & find_completed(snapshot, facts.ledger)
    if has_ended:
        no_successor |= terminating & absence.kept_off.keys()
    no_successor |= frozenset(
        name
        for name in terminating & absence.kept_off.keys()
        if is_set_aside(snapshot, facts.records.get(name), name)
    )
    present = pods_by_node.keys() | (terminating & matching)
    leaving = terminating - matching
    counted = count_desired(daemon_set, leaving)
    # `applied` is the DaemonSet if its controller has observed the apply of the Job's `spec.nodes`.
    # `placed` is the same object if no client has changed the placement since.
    applied = observed_daemon_set(snapshot.job, daemon_set)
    placed = applied if applied is not None and has_desired_placement(snapshot, applied) else None
    return _Placement(
        desired=add_absent(counted, snapshot, absence, present),
        misplaced=find_misplaced(snapshot, pods_by_node.keys() | terminating, matching, leaving),
        is_agreed=placed is not None
        and agrees_with_daemon_set(placed, pods_by_node, terminating)
        and matching - no_successor == pods_by_node.keys()
        and not has_uncached_pods(snapshot, placed, pods_by_node, len(leaving)),
        is_altered=applied is not None and placed is None,
        is_newest=placed is not None,
    )
