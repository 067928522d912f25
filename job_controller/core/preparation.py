"""What is done to a node before its gate is opened, and what is undone once its turn is over.

A node is cordoned by one patch that also marks it (see `daemonset_job.api.drain`), then drained,
and only then may its pod start. Whatever ends the turn, the next reconcile finds the mark and lifts
the cordon. So nothing has to be remembered, and a crash at any point leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.drain import CordonMark
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.report import find_evidence
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import whole_seconds
from job_controller.core.drain_actions import (
    CordonNodes,
    EvictPods,
    NodeCordon,
    UncordonNodes,
)
from job_controller.core.plan import Action, Plan, RefusedWrite
from job_controller.core.rollout.kept_nodes import has_taken_turn
from job_controller.core.state.cordons import find_own_cordons, mark_of, other_mark
from job_controller.core.state.evictions import NodeDrain, describe_left
from job_controller.core.state.exclusive import is_at_work
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunState
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records
from job_controller.core.text.sanitize import DETAIL_LIMIT, single_line

# How often the pods of a node are listed while it is drained. No event says that one has left.
POLL_SECONDS: Final = 1.0
# Of a large Job each decision takes long: per 500 nodes, its drains are looked at a second later.
_NODES_PER_POLL_SECOND: Final = 500
# A node that another Job uses is looked at again after this time. Usually an event is earlier.
IN_USE_SECONDS: Final = 10.0
# Each plan cordons and drains so few nodes: other Jobs have their turn in between. Nodes that other
# Jobs use are passed over: they keep no further node from its turn.
NODES_PER_PLAN: Final = 100
_OVER: Final = frozenset({NodeState.COMPLETED, NodeState.FAILED})
_MESSAGE_LIMIT: Final = 2 * DETAIL_LIMIT


@dataclass(frozen=True, slots=True)
class Preparation:
    """The pods whose nodes are ready for their turn; what is to be done to the other nodes.

    `records` are those of nodes that are being prepared, with what they wait for. `wake_at` is when
    the nodes that are being drained are to be looked at again. `is_unrecorded`: of some it is only
    to be recorded that they are ready.
    """

    ready: tuple[Pod, ...] = ()
    actions: tuple[Action, ...] = ()
    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    wake_at: datetime | None = None
    is_unrecorded: bool = False


def prepare_nodes(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, due: tuple[Pod, ...], now: datetime
) -> Preparation:
    """Return how far the nodes are whose turn has come, and what is to be done next.

    `due` are the gated pods that may start but for that.
    """
    job = snapshot.job
    if not (job.spec.cordons or job.spec.exclusive or find_own_cordons(snapshot)):
        unrecorded = _find_unrecorded(snapshot, counts, due)
        recorded = tuple(pod for pod in due if pod.node_name not in unrecorded)
        return Preparation(recorded, records=unrecorded, is_unrecorded=bool(unrecorded))
    mark, drain = mark_of(job), job.spec.drain
    records = {
        pod.node_name: _in_use(counts.nodes[pod.node_name].record, words)
        for pod in due
        if (words := _what_uses(snapshot, snapshot.nodes[pod.node_name], mark))
    }
    free = [pod for pod in due if pod.node_name not in records]
    ready: list[Pod] = [] if job.spec.cordons else free
    to_cordon: list[NodeCordon] = []
    evictions: list[Action] = []
    known = merge_records(snapshot)
    is_refused = RefusedWrite.CORDON in snapshot.refusals
    for pod in free[:NODES_PER_PLAN] if job.spec.cordons else ():
        name = pod.node_name
        node, record = snapshot.nodes[name], counts.nodes[name].record
        is_settled = name not in snapshot.unsettled_cordons
        is_cordoned = is_settled and (node.is_cordoned or node.cordoned_by == str(mark))
        if is_settled and not is_cordoned:
            to_cordon.append(NodeCordon(name, node.uid, mark))
        found = snapshot.drains.get(name) if is_cordoned else None
        if is_cordoned and (drain is None or (found is not None and found.is_done)):
            ready.append(pod)
            continue
        if drain is None or (is_refused and not is_cordoned):
            # A drain that has not begun has no time that could run out.
            continue
        records[name] = _draining(record, known.get(name), found, now)
        if found is not None and found.due:
            evictions.append(EvictPods(name, found.due, drain.grace_period_seconds))
    unrecorded = _find_unrecorded(snapshot, counts, ready)
    ready = [pod for pod in ready if pod.node_name not in unrecorded]
    records |= unrecorded
    over = _find_over(snapshot, counts, run, {pod.node_name for pod in due})
    # A pod whose DaemonSet was deleted may have lost the label by which its end is seen.
    is_waiting = len(ready) < len(due) or bool(snapshot.left_pods)
    if over:
        # While one cannot be lifted, there are not to be more of them.
        to_cordon = []
    # What was refused is not requested again at once: cordons as other writes, their ends sooner.
    is_waiting = is_waiting or bool(over)
    is_changing = (bool(over or to_cordon) and not is_refused) or any(
        record.drain_started_at for record in records.values()
    )
    if RefusedWrite.GATE_REMOVAL in snapshot.refusals:
        records |= _find_drained(counts, known, ready)
    return Preparation(
        tuple(ready),
        (
            *((UncordonNodes(over),) if over else ()),
            *((CordonNodes(tuple(to_cordon)),) if to_cordon else ()),
            *evictions,
        ),
        records,
        _wakes_at(counts, now, is_changing=is_changing, is_waiting=is_waiting),
        bool(unrecorded),
    )


def _wakes_at(
    counts: NodeCounts, now: datetime, *, is_changing: bool, is_waiting: bool
) -> datetime | None:
    """Return when nodes are to be looked at again, None if only an event matters."""
    if is_changing:
        seconds = max(POLL_SECONDS, len(counts.nodes) / _NODES_PER_POLL_SECOND)
        return now + timedelta(seconds=seconds)
    return now + timedelta(seconds=IN_USE_SECONDS) if is_waiting else None


def with_preparation(counts: NodeCounts, found: Preparation) -> NodeCounts:
    """Return the counts with the records of nodes that are being prepared."""
    if not found.records:
        return counts
    prepared = {
        name: replace(counts.nodes[name], record=record) for name, record in found.records.items()
    }
    return replace(counts, nodes={**counts.nodes, **prepared})


def _what_uses(snapshot: Snapshot, node: Node, mark: CordonMark) -> str:
    """Return which other Job the node has to wait for, "" for none.

    A node that this Job has cordoned passes those that are older: one of them may wait for that
    cordon.
    """
    name, use = node.name, snapshot.other_use
    if other := use.in_use.get(name):
        return f"Job {other}, which has the same key rollout.exclusive, is at work on the node"
    if other_job := (other_mark(node, mark) if snapshot.job.spec.cordons else None):
        job = f"{other_job.namespace}/{other_job.job_name}"
        return f"Job {job} has cordoned the node, and has its turn there"
    if node.cordoned_by != str(mark) and (older := use.claimed.get(name)):
        return f"Job {older}, which has the same key rollout.exclusive and is older, is first there"
    return ""


def _find_unrecorded(
    snapshot: Snapshot, counts: NodeCounts, ready: Sequence[Pod]
) -> dict[str, NodeRecord]:
    """Return the new records of the nodes whose turn the report does not show well enough.

    It is to have the pod first, and that the node is ready. Once the gate is removed and the pod is
    gone, only the report shows whether the node took its turn.
    """
    if snapshot.job.spec.rollout is None:
        return {}
    known, ledger = merge_records(snapshot), merge_evidence(snapshot)
    uids = snapshot.pod_uids - {pod.uid for pod in ready}
    return {
        name: _prepared(counts.nodes[name].record, known[name])
        for name in (pod.node_name for pod in ready)
        if not has_taken_turn(known[name], ledger.get(name), uids)
    }


def _prepared(record: NodeRecord, known: NodeRecord) -> NodeRecord:
    """Return the record of a node that is ready for its turn; its drain may have begun by then."""
    return replace(record, drain_started_at=known.drain_started_at)


def _find_drained(
    counts: NodeCounts, known: Mapping[str, NodeRecord], ready: Sequence[Pod]
) -> dict[str, NodeRecord]:
    """Return the records of the nodes that are drained, and whose gate is not removed.

    They stay as they are. Else each try to remove the gate would be followed by another drain.
    """
    return {
        name: _prepared(counts.nodes[name].record, known[name])
        for name in (pod.node_name for pod in ready)
        if name in known and known[name].drain_started_at is not None
    }


def _in_use(record: NodeRecord, words: str) -> NodeRecord:
    return replace(record, reason=NodeReason.NODE_IN_USE, message=_after_absence(record, words))


def _after_absence(record: NodeRecord, words: str) -> str:
    """Return the message of a node that waits for `words`: one that is away says that first.

    Its reason is what it waits for: that shows that its gate was not removed.
    """
    is_away = record.state == NodeState.UNREACHABLE
    parts = (record.message, words) if is_away else (words,)
    return single_line("; ".join(filter(None, parts)), _MESSAGE_LIMIT)


def _draining(
    record: NodeRecord, known: NodeRecord | None, found: NodeDrain | None, now: datetime
) -> NodeRecord:
    """Return the record of a node that is drained: since when, and which pods have yet to leave."""
    began = None
    if known is not None and (known.uid, known.retry) == (record.uid, record.retry):
        is_back = known.state == NodeState.UNREACHABLE != record.state
        # Its pods had left, and it is not known what is there now.
        is_lost = found is None and known.is_drained
        began = None if is_back or is_lost else known.drain_started_at
    is_blocked = found is not None and found.is_blocked
    return replace(
        record,
        drain_started_at=began or whole_seconds(now),
        reason=NodeReason.DRAIN_BLOCKED if is_blocked else NodeReason.DRAINING,
        message=_after_absence(record, describe_left(found) if found is not None else ""),
    )


def plan_deleted(snapshot: Snapshot) -> Plan | None:
    """Return the plan of a Job that is being deleted, which lifts cordons; None for any other one.

    Foreground deletion keeps the Job until its last pod is gone. On a machine that is down no pod
    ends, and the other nodes are not to stay cordoned for that long.
    """
    if not snapshot.job.is_terminating:
        return None
    if not (found := find_own_cordons(snapshot)):
        return Plan()
    if RefusedWrite.CORDON in snapshot.refusals:
        return Plan(requeue_after=snapshot.retry_seconds)
    over = tuple(cordon for cordon in found if not _is_at_work_after_end(snapshot, cordon.node))
    actions = (UncordonNodes(over),) if over else ()
    return Plan(actions=actions, requeue_after=IN_USE_SECONDS)


def _is_at_work_after_end(snapshot: Snapshot, name: str) -> bool:
    """Return whether a task may be at work on a node that can be reached, after the run is over."""
    node, evidence = snapshot.nodes[name], merge_evidence(snapshot).get(name)
    is_completed = evidence is not None and evidence.completes(node.uid)
    pods = (pod for pod in snapshot.all_pods if pod.node_name == name)
    return node.ready and not is_completed and any(_may_run(pod, is_over=True) for pod in pods)


def _find_over(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, due: AbstractSet[str]
) -> tuple[NodeCordon, ...]:
    """Return the cordons of this Job on nodes where its turn is over."""
    return tuple(
        cordon
        for cordon in find_own_cordons(snapshot)
        if not _has_turn(snapshot, counts, run, due, cordon.node)
    )


def _has_turn(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, due: AbstractSet[str], name: str
) -> bool:
    """Return whether the Job has its turn on the node: it is prepared, or its task may be at work.

    A task may be at work after the node has failed, while its pod is being deleted, and on a node
    that cannot be reached. For that last one nothing waits after the end of the run.
    """
    node = counts.nodes.get(name)
    if node is None or node.pod.is_gated:
        is_prepared = node is not None and node.state not in _OVER and name in due
        return is_prepared or _is_ending_pod_at_work(snapshot, counts, run, name)
    if node.state == NodeState.COMPLETED:
        return False
    if node.replace_pod or node.awaits_retry:
        # The pod of an earlier try. While the Job is suspended it is left alone.
        return is_at_work(node.pod, find_evidence(snapshot.reports, name))
    if node.state == NodeState.FAILED:
        return _is_waited_for(snapshot, run, name) and not node.pod.is_terminal
    return node.state != NodeState.UNREACHABLE or not run.has_ended


def _is_ending_pod_at_work(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, name: str
) -> bool:
    """Return whether a task may be at work on a node but for its current pod, if it has one.

    That may be in a pod that is being deleted, or whose DaemonSet was.
    """
    absent = counts.absent.get(name)
    if absent is not None and absent.state != NodeState.FAILED:
        return absent.state != NodeState.COMPLETED and not run.has_ended
    node = snapshot.nodes[name]
    evidence, record = merge_evidence(snapshot).get(name), merge_records(snapshot).get(name)
    if evidence is not None and evidence.completes(node.uid):
        return False
    has_failed = record is not None and record.uid == node.uid and record.state == NodeState.FAILED
    return _is_waited_for(snapshot, run, name) and any(
        _may_run(pod, is_over=has_failed or run.has_ended)
        for pod in snapshot.all_pods
        if pod.node_name == name
    )


def _may_run(pod: Pod, *, is_over: bool) -> bool:
    """Return whether the task of a pod may be at work, or be started.

    A kubelet starts no container of a pod that is being deleted. What the API server has of one may
    be older, so this counts only where the node `is_over`: no other pod of it is to start.
    """
    container = pod.container
    has_ended = container is not None and container.state == "terminated"
    if is_over and pod.is_terminating and has_ended:
        return False
    return not (pod.is_gated or pod.is_terminal)


def _is_waited_for(snapshot: Snapshot, run: RunState, name: str) -> bool:
    """Return whether the cordon of a node waits for its task: not after the run, if it is away."""
    return snapshot.nodes[name].ready or not run.has_ended
