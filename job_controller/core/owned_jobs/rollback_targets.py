"""Which nodes are rolled back: those whose task has started; and on which it is still at work."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from daemonset_job.api.daemon_set import pod_spec_of
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.states import FINAL_PHASES, ConditionType, NodeState
from daemonset_job.api.taints import Tolerations
from daemonset_job.api.times import add_seconds
from job_controller.core.state.exclusive import is_at_work
from job_controller.core.state.first_seen import node_not_ready
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.node_unreachable import is_away, unreachable_reason
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

_STARTED = frozenset({NodeState.ACTIVE, NodeState.COMPLETED})
# The UID of a former node of which the report has no UID.
_UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Targets:
    """The nodes of a rollback, by name.

    `started`: all whose task has started, or may have on a node that is away. `at_work`: those of
    all nodes on which it is at work, or may be, and that can be reached. `out_of_reach`: those that
    take no pod now, since they are gone, away, or tainted. On one that is away the task may still
    be at work. `ready`: those of `started` that take a pod now for certain. `away_for`: for how
    long those of `started` that are not Ready, or gone, count as away; below 0 if not yet.
    """

    started: frozenset[str]
    at_work: frozenset[str]
    out_of_reach: frozenset[str]
    ready: frozenset[str] = frozenset()
    away_for: Mapping[str, timedelta] = field(default_factory=dict)


def find_targets(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> Targets:
    """Return the nodes of the rollback, by the report and by the pods that there are."""
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    # What this pass is about to record counts, too: the rollback may end in this pass.
    seen = {name: node.record for name, node in counts.nodes.items()}
    started = {
        name: record.uid
        for found in (seen, counts.ending, counts.absent, records)
        for name, record in found.items()
        if has_started(record, ledger.get(name))
    }
    # Nodes that have no record, and former ones: the record is about another node of that name.
    others = ledger.keys() - started.keys()
    started |= {name: ledger[name].node_uid for name in others}
    started |= dict.fromkeys(_find_former(records, started.keys()), _UNKNOWN)
    busy = {pod.node_name for pod in _pods_at_work(snapshot, counts, ledger)}
    unreachable = frozenset(counts.names(NodeState.UNREACHABLE))
    away = {
        name
        for name in busy | started.keys()
        if name in unreachable or _is_away(snapshot, records.get(name), name, now)
    }
    # Whether their tasks have started is not known: they are named, and looked at when back.
    unknown = (busy & away & snapshot.nodes.keys()) - started.keys()
    started |= {name: snapshot.nodes[name].uid for name in unknown}
    tolerations = Tolerations(pod_spec_of({"template": snapshot.job.spec.template}))
    out_of_reach = frozenset(
        name
        for name, uid in started.items()
        if name in away or not _takes_pods(snapshot.nodes.get(name), uid, tolerations)
    )
    return Targets(
        started=frozenset(started),
        at_work=frozenset(busy - away),
        out_of_reach=out_of_reach,
        ready=frozenset(
            name
            for name in started.keys() - out_of_reach
            if snapshot.nodes[name].ready
            and not tolerations.untolerated(snapshot.nodes[name].taints)
        ),
        away_for={
            name: time for name in started if (time := _away_for(snapshot, name, now)) is not None
        },
    )


def _find_former(records: Mapping[str, NodeRecord], known: Collection[str]) -> set[str]:
    """Return the names that another node had before, on which the task had started and failed.

    The failures of that one are all that its successor, which has not started, has in its record.
    """
    return {
        name
        for name, record in records.items()
        if name not in known and any(failure.attempts for failure in record.failures)
    }


def find_not_ready(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes that are not Ready, of all that a rollback may wait for or leave out.

    Without a pod nothing else looks at them, and the rollback asks since when they are.
    """
    job = snapshot.job
    if job.status.rollback is None or job.is_true(ConditionType.ROLLED_BACK):
        return frozenset()
    found = frozenset(name for name, node in snapshot.nodes.items() if is_away(node))
    if not found:
        return found
    known = {pod.node_name for pod in snapshot.all_pods}
    return found & (known | merge_records(snapshot).keys() | merge_evidence(snapshot).keys())


def may_lack_pods(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether a pod may start the task that the cache does not have.

    The DaemonSet controller creates pods without the gate until it has seen the gate. Once it says
    that it has, it has counted all of these. The cache of pods may be older than that count.
    """
    ours = snapshot.owned_daemon_set
    if ours is None or ours.is_terminating:
        return False
    return not counts.new_pods_are_gated or lacks_counted_pods(snapshot)


def lacks_counted_pods(snapshot: Snapshot) -> bool:
    """Return whether the DaemonSet controller has counted pods that the cache does not have."""
    ours = snapshot.owned_daemon_set
    if ours is None:
        return False
    known = {pod.node_name for pod in snapshot.pods} & snapshot.nodes.keys()
    return len(known) < ours.scheduled + ours.misscheduled


def lacks_starts(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether the report lacks a task that has started, and is about to get it.

    The task may have started after the end of the run was recorded. While the nodes cannot be
    counted exactly, the report gets only the starts of pods that it names.
    """
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    seen = {name: node.record for name, node in counts.nodes.items()}
    for name, record in (*seen.items(), *counts.ending.items()):
        known = records.get(name)
        if known is None or known.uid != record.uid:
            known = NodeRecord(record.uid, NodeState.WAITING)
        is_due = counts.is_exact or known.pod_uid == record.pod_uid
        if is_due and has_started(record, None) and not has_started(known, ledger.get(name)):
            return True
    return False


def is_end_recorded(snapshot: Snapshot) -> bool:
    """Return whether Job and report both say how the run has ended.

    The report has each task then that had started by that time.
    """
    status, first = snapshot.job.status, snapshot.first_report
    if status.phase not in FINAL_PHASES or first is None:
        return False
    ended = (first.status.phase, first.status.completion_time)
    return ended == (status.phase, status.completion_time)


def has_started(record: NodeRecord, evidence: Evidence | None) -> bool:
    """Return whether the node's task has ever started, by its record and its evidence.

    Its earlier failures do not show it: a node with the name of another one has those of that one.
    """
    if evidence is not None and evidence.node_uid == record.uid:
        return True
    return (
        record.attempts > 0
        or record.started_at is not None
        or record.exit_code is not None
        or record.state in _STARTED
    )


def _takes_pods(node: Node | None, uid: str, tolerations: Tolerations) -> bool:
    """Return whether the node is still the one that it was, and no taint keeps its pod off."""
    if node is None or node.uid != uid:
        return False
    return tolerations.is_only_condition(node.taints)


def _pods_at_work(
    snapshot: Snapshot, counts: NodeCounts, ledger: dict[str, Evidence]
) -> Iterator[Pod]:
    """Yield the pods of the Job whose task may be at work, those of a deleted DaemonSet too."""
    for pod in snapshot.all_pods:
        node = counts.nodes.get(pod.node_name)
        is_repeated = node is not None and node.pod.uid == pod.uid and node.repeats_task
        if is_repeated or is_at_work(pod, ledger.get(pod.node_name)):
            yield pod


def _is_away(snapshot: Snapshot, record: NodeRecord | None, name: str, now: datetime) -> bool:
    """Return whether a node cannot be reached, so that the rollback does not wait for it.

    Its record says so at once, if it is about the present absence. Without the DaemonSet no record
    is written when the node is back.
    """
    time = _away_for(snapshot, name, now)
    return time is not None and (time >= timedelta() or _is_recorded_away(snapshot, record, name))


def _is_recorded_away(snapshot: Snapshot, record: NodeRecord | None, name: str) -> bool:
    """Return whether the record says that the node is away since it has last been Ready."""
    if record is None or record.state != NodeState.UNREACHABLE:
        return False
    node = snapshot.nodes[name]
    return record.uid == node.uid and unreachable_reason(node, None)[1] in record.message


def _away_for(snapshot: Snapshot, name: str, now: datetime) -> timedelta | None:
    """Return for how long a node has counted as away, None if it is not away at all.

    Less than 0 until the controller has seen it not Ready for its time. A node that is gone has
    always been away.
    """
    node = snapshot.nodes.get(name)
    if node is None:
        return timedelta.max
    if not is_away(node):
        return None
    sighting = snapshot.seen.get(node_not_ready(node, snapshot.job.retry_request))
    first = sighting.first if sighting is not None else now
    return now - add_seconds(first, snapshot.unreachable_seconds)
