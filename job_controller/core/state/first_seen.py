"""When the controller first saw the facts that its timers count from, by its own clock.

Kubelets and API servers write times by their own clocks, which may be hours away from the
controller's. None of these times is compared with it. The reconciler keeps the sightings of a Job
between reconciles. Losing them in a restart is safe: each timer then starts again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from daemonset_job.api.container import ended_count
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.times import format_time
from job_controller.core.state.causes import (
    find_cause,
    has_started,
    is_backing_off,
    is_start_pending,
)

_NOT_READY: Final = "not ready"
_FAILED: Final = "failed"
_ENDED: Final = "ended"
_ENDED_BY_RULE: Final = "ended by a rule"
_WITHOUT_NODE: Final = "without node"
_RESULTS_MISSING: Final = "results missing"
_DRAINING: Final = "draining"
_LEFT: Final = "left"
_OWNED_FAILED: Final = "owned failed"
_LIMITS: Final = "limits"
BLOCKED: Final = "blocked"
UNEXPLAINED: Final = "unexplained"
UNSEEN: Final = "unseen by a scheduler"
REJECTED: Final = "rejected"
UNSCHEDULABLE: Final = "unschedulable"
OVERLOOKED: Final = "overlooked"
# The kinds of causes that keep a task from starting, by reason. Each kind has its own timer.
_KINDS: Final = {
    NodeReason.IMAGE_PULL_FAILED: BLOCKED,
    NodeReason.CONTAINER_START_FAILED: BLOCKED,
    NodeReason.POD_REJECTED: REJECTED,
    NodeReason.UNSCHEDULABLE: UNSCHEDULABLE,
}
# A cause that keeps a task from starting may be absent for a moment. Examples: between a rejected
# pod and the next one, between two starts of a failed init container, while a node is not Ready. A
# gap up to this length is subtracted; after a longer one the timer starts again.
_GAP: Final = timedelta(seconds=60)


class Fact(NamedTuple):
    """A fact about a pod or a node, by its UID.

    A fact that keeps a task from starting is about one start of the task, and one retry request.
    `start` is how many earlier starts in the pod have ended. `since` is a time of another clock, by
    which facts differ. It is compared with no time.
    """

    uid: str
    kind: str
    start: int = 0
    retry: str = ""
    since: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """When a fact was first seen, and since when it is gone (None: it holds).

    `first` is moved forward by each gap in which the fact did not hold.
    """

    first: datetime
    gone_at: datetime | None = None

    @property
    def forgotten_at(self) -> datetime | None:
        """When the sighting expires: after that, the fact counts as new. None while it holds."""
        return self.gone_at + _GAP if self.gone_at is not None else None


Sightings = Mapping[Fact, Sighting]


# The fact that the evidence of each node can be recorded.
LEDGER_ROOM: Final = Fact("", "ledger room")


def has_limits(spec: JobSpec) -> Fact:
    """Return the fact that the Job has these limits, for which a node fails.

    By lower ones a node may fail now for what was seen long ago.
    """
    return Fact("", _LIMITS, spec.backoff_limit, since=str(spec.node_deadline_seconds))


def are_limits_new(seen: Sightings, spec: JobSpec, since: datetime) -> bool:
    """Return whether this process has first seen the limits of the Job after that time."""
    sighting = seen.get(has_limits(spec))
    return sighting is not None and sighting.first > since


def task_ended(pod: Pod, count: int) -> Fact:
    """Return the fact that `count` starts of the task in the pod have ended."""
    return Fact(pod.uid, _ENDED, count)


def ended_by_rule(pod_uid: str) -> Fact:
    """Return the fact that the task in that pod has ended so that a rule fails its node."""
    return Fact(pod_uid, _ENDED_BY_RULE)


def node_failed(node: Node) -> Fact:
    """Return the fact that the node is recorded as failed."""
    return Fact(node.uid, _FAILED)


def node_not_ready(node: Node, retry: str) -> Fact:
    """Return the fact that the node is not Ready, or that its condition keeps its pod off.

    It is a new fact with each retry, so that a retry gives the node its time to come back. It is
    one with each change of its condition Ready, too: no reconcile may have seen the node Ready. The
    same holds for the network of a node that is Ready: it may have had one meanwhile.
    """
    times = [node.ready_changed_at, *((node.network_changed_at,) if node.ready else ())]
    since = " ".join(format_time(time) for time in times if time is not None)
    return Fact(node.uid, _NOT_READY, retry=retry, since=since)


def pod_without_node(pod: Pod) -> Fact:
    """Return the fact that the pod waits to be scheduled to a node that does not exist."""
    return Fact(pod.uid, _WITHOUT_NODE)


def results_missing(node_uid: str) -> Fact:
    """Return the fact that the node has completed, and results of its task are not recorded."""
    return Fact(node_uid, _RESULTS_MISSING)


def node_draining(node: Node, started_at: datetime) -> Fact:
    """Return the fact that the drain of a node is on record as begun, once for each drain."""
    return Fact(node.uid, _DRAINING, since=format_time(started_at))


def node_left(node: Node) -> Fact:
    """Return the fact that the node is not Ready, is no longer desired, and its pod has not ended.

    It is a new one with each change of its condition Ready, as `node_not_ready` is.
    """
    since = format_time(node.ready_changed_at) if node.ready_changed_at is not None else ""
    return Fact(node.uid, _LEFT, since=since)


def node_overlooked(node: Node) -> Fact:
    """Return the fact that the DaemonSet chooses the node, and its controller does not count it."""
    return Fact(node.uid, OVERLOOKED)


def owned_failed(job_uid: str) -> Fact:
    """Return the fact that a Job with that UID, which this Job owns, has failed."""
    return Fact(job_uid, _OWNED_FAILED)


def pods_rejected(node: Node, retry: str, revision: str = "") -> Fact:
    """Return the fact that the kubelet of the node rejects its pods, one after the other.

    Those of a revision: what the Job runs since may not be rejected.
    """
    return Fact(node.uid, REJECTED, retry=retry, revision=revision)


def not_starting(node: Node, pod: Pod, retry: str, seen: Sightings) -> Fact | None:
    """Return the fact that keeps the task from starting, None without one that has a timer.

    While a node is not Ready, the status of its pods is out of date and nothing there can start.
    """
    if not node.ready or pod.is_gated:
        return None
    if is_backing_off(pod):
        # The back-off hides whether the container can be created: an earlier fact is kept.
        fact = _of_start(pod, BLOCKED, retry)
        return fact if fact in seen else None
    if not is_start_pending(pod):
        return None
    cause = find_cause(pod)
    if cause is None:
        is_unexplained = not pod.has_init_running and not pod.is_disrupted
        kind = UNEXPLAINED if pod.is_scheduled else UNSEEN
        return _of_start(pod, kind, retry) if is_unexplained else None
    kind = _KINDS.get(cause.reason, "")
    if kind == REJECTED:
        return pods_rejected(node, retry, pod.revision)
    return _of_start(pod, kind, retry) if kind else None


def _of_start(pod: Pod, kind: str, retry: str) -> Fact:
    count = ended_count(pod.container) if pod.container is not None else 0
    return Fact(pod.uid, kind, count, retry)


def shift_sightings(sightings: Sightings, step: timedelta) -> Sightings:
    """Return the sightings for a clock that was set forward by `step` since they were made."""
    return {
        fact: Sighting(
            sighting.first + step, sighting.gone_at + step if sighting.gone_at is not None else None
        )
        for fact, sighting in sightings.items()
    }


@dataclass(frozen=True, slots=True)
class ObservedObjects:
    """The pods and nodes of a Job at one moment, each by the node's name.

    `failed` are the names of nodes that are recorded as failed. `tainted` are those whose condition
    keeps their pod off. `not_ready` are those that are not Ready, of a run that is rolled back.
    `retry` is the Job's retry request. `without_node` are pods that wait to be scheduled to nodes
    that do not exist. `has_ledger_room`: the evidence of each node can be recorded.
    `without_results` are the UIDs of completed nodes that lack results. `draining` is when the
    drains of nodes began by their records. `ending` are the names of nodes without a current pod on
    which an earlier one has not ended. `waiting`: see `placement_wait`. `failed_owned` are the UIDs
    of owned Jobs that have failed. `ended` is how many starts of the task have ended by the
    records, by the UID of the pod. `ended_by_rule` are the UIDs of pods with an end for which a
    rule fails the node. `limits`: see `has_limits`. `overlooked`: see `overlooked_nodes`.
    """

    pods: Mapping[str, Pod]
    nodes: Mapping[str, Node]
    failed: Collection[str] = ()
    tainted: Collection[str] = ()
    not_ready: Collection[str] = ()
    retry: str = ""
    without_node: Collection[Pod] = ()
    has_ledger_room: bool = True
    without_results: Collection[str] = ()
    draining: Mapping[str, datetime] = field(default_factory=dict)
    ending: Collection[str] = ()
    waiting: Fact | None = None
    failed_owned: Collection[str] = ()
    ended: Mapping[str, int] = field(default_factory=dict)
    ended_by_rule: Collection[str] = ()
    limits: Fact | None = None
    overlooked: Collection[str] = ()


def update_sightings(
    before: Sightings, observed: ObservedObjects, now: datetime
) -> dict[Fact, Sighting]:
    """Return the sightings after these objects were observed.

    A fact that still holds keeps its first time, and any other is dropped. A fact that keeps a task
    from starting is dropped only after a gap, see `_GAP`.
    """
    holding = _facts_without_pod(observed)
    settled: set[Fact] = set()
    ends = {fact.uid: fact for fact in before if fact.kind == _ENDED}
    for name, pod in observed.pods.items():
        node = observed.nodes[name]
        if not node.ready:
            holding.add(node_not_ready(node, observed.retry))
        if newest := _newest_end(pod, ends.get(pod.uid), observed.ended.get(pod.uid, 0)):
            holding.add(newest)
        if name in observed.failed or has_started(pod):
            settled.add(pods_rejected(node, observed.retry, pod.revision))
        if name in observed.failed:
            holding.add(node_failed(node))
        elif name not in observed.tainted and (
            fact := not_starting(node, pod, observed.retry, before)
        ):
            holding.add(fact)
    after = {fact: _seen_again(before.get(fact), now) for fact in holding}
    for fact, sighting in before.items():
        if fact not in after and fact not in settled and fact.kind in _INTERMITTENT:
            gone = replace(sighting, gone_at=sighting.gone_at or now)
            if not _is_forgotten(gone, now):
                after[fact] = gone
    return after


def _facts_without_pod(observed: ObservedObjects) -> set[Fact]:
    """Return the facts for which no pod has to be looked at."""
    away = {*observed.tainted, *observed.not_ready}
    holding = {node_not_ready(observed.nodes[name], observed.retry) for name in away}
    holding |= {pod_without_node(pod) for pod in observed.without_node}
    holding |= {results_missing(uid) for uid in observed.without_results}
    holding |= {ended_by_rule(uid) for uid in observed.ended_by_rule}
    holding |= {owned_failed(uid) for uid in observed.failed_owned}
    holding |= {node_overlooked(observed.nodes[name]) for name in observed.overlooked}
    holding |= {node_draining(observed.nodes[name], at) for name, at in observed.draining.items()}
    # With a taint of its own condition only, the node is still desired.
    left = (observed.nodes[name] for name in observed.ending if name not in observed.tainted)
    holding |= {node_left(node) for node in left if not node.ready}
    holding |= {fact for fact in (observed.waiting, observed.limits) if fact is not None}
    return holding | {LEDGER_ROOM} if observed.has_ledger_room else holding


def nodes_not_ready_for(
    seen: Sightings, nodes: Iterable[Node], retry: str, limit: timedelta, now: datetime
) -> list[Node]:
    """Return the nodes that are not Ready, or keep their pod off, for `limit` or longer.

    What was seen before the newest retry does not count.
    """
    suspects = {fact.uid for fact in seen if fact.kind == _NOT_READY}
    return [
        node
        for node in nodes
        # Few nodes are suspects, and the fact of each node is made from text.
        if node.uid in suspects
        and (sighting := seen.get(node_not_ready(node, retry))) is not None
        and now >= sighting.first + limit
    ]


_INTERMITTENT: Final = frozenset({BLOCKED, UNEXPLAINED, REJECTED, UNSCHEDULABLE})


def _newest_end(pod: Pod, known: Fact | None, recorded: int) -> Fact | None:
    """Return the fact about the newest end of the task; its count never decreases.

    Nor is it below what an earlier process has `recorded`: the kubelet of a machine that is
    installed again counts from 0.
    """
    count = ended_count(pod.container) if pod.container is not None else 0
    count = max(count, recorded, known.start if known is not None else 0)
    return task_ended(pod, count) if count else None


def _seen_again(before: Sighting | None, now: datetime) -> Sighting:
    """Return the sighting of a fact that holds now."""
    if before is None or _is_forgotten(before, now):
        return Sighting(now)
    return before if before.gone_at is None else Sighting(before.first + (now - before.gone_at))


def _is_forgotten(sighting: Sighting, now: datetime) -> bool:
    return sighting.forgotten_at is not None and now >= sighting.forgotten_at
