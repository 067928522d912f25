"""The controller's own count: where each wanted node stands.

Independent of the terminator's count on purpose (see docs/explanation/architecture.md): a Job
is deleted only when two counts, made by two programs from the same cluster, agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api import report
from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.job import Job
from daemonset_job.api.objects import DaemonSet, Node, Pod
from daemonset_job.api.report import Evidence, NodeRecord
from daemonset_job.api.taints import untolerated
from daemonset_job.api.times import parse_time
from job_controller.core.desired.daemon_set import build_pod_template, is_placed
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.state.absence import (
    Absence,
    find_absence,
    has_begun,
    held_pods,
    judge_absent,
)
from job_controller.core.state.node_state import COMPLETED, WAITING, Case, Court
from job_controller.core.state.sightings import stray
from job_controller.core.state.snapshot import Snapshot

# A pod waits to be scheduled to a node that this process has not heard of: so long after it was
# first seen, the node is taken for gone and not for too new. Should it be there after all, the
# DaemonSet controller makes the pod again, whose task has not started.
STRAY_AFTER: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class NodeTally:
    """One wanted node: its record as it is now, and the pod that stands for it.

    `retire` and `discard`: see `judge.Verdict`.
    """

    name: str
    record: NodeRecord
    pod: Pod
    retire: bool = False
    discard: bool = False

    @property
    def uid(self) -> str:
        """The node's UID."""
        return self.record.uid

    @property
    def state(self) -> str:
        """Where the node stands, one of `node_state.STATES`."""
        return WAITING if self.retire else self.record.state


@dataclass(frozen=True, slots=True)
class Tally:
    """All wanted nodes by name, and whether the list is known to be whole.

    Attributes:
        nodes: The nodes with a pod that is not being deleted.
        desired: How many nodes are wanted: those that should run a pod, those that should not (an
            untolerated NoSchedule taint) and still have one, and those in `absent`.
        is_exact: Whether `nodes` and `absent` are all wanted nodes. False while the DaemonSet does
            not say what the Job says, while its controller has yet to act on its newest spec, while
            any other wanted node has no pod, while the only pod of a node that still matches is
            being deleted, and while a node that does not match has a pod.
        absent: The records of wanted nodes without a pod that a condition of their own keeps pods
            off, such as not being Ready. The DaemonSet controller does not count them.
        resting: Completed nodes that have no pod at the moment. They stay counted.
        surplus: Pods that nobody else deletes: those of nodes that are gone, on nodes that have
            their names now or waiting to be scheduled; and those that wait to be scheduled to a
            node whose taints they do not tolerate. The DaemonSet controller keeps all of them, and
            counts their nodes.
        is_known: False while there is no DaemonSet, or its controller has yet to look at it: then
            the number of wanted nodes is unknown.
        is_applied: False while the DaemonSet is still the one of an older `spec.nodes`, and the API
            server has not refused the newer one.
        is_shut: Whether each pod created from now on waits at its scheduling gate: the DaemonSet
            controller has looked at a template that has the gate, or there is no DaemonSet.
        is_altered: Whether somebody changed where the DaemonSet's pods run since it was applied.
        has_unrecorded: Whether a node has begun, may lose its pod by its condition, and is not on
            record as begun. Without the pod nothing else says that it has.
        wake_at: When time alone may change the tally, None for never.
    """

    nodes: Mapping[str, NodeTally]
    desired: int
    is_exact: bool
    absent: Mapping[str, NodeRecord] = field(default_factory=dict)
    resting: frozenset[str] = frozenset()
    surplus: tuple[Pod, ...] = ()
    is_known: bool = True
    is_applied: bool = True
    is_shut: bool = True
    is_altered: bool = False
    has_unrecorded: bool = False
    wake_at: datetime | None = None

    def names(self, *states: str) -> list[str]:
        """Return the names of the nodes in those states, sorted; resting ones are completed."""
        found = {name for name, node in self.nodes.items() if node.state in states}
        found |= {name for name, record in self.absent.items() if record.state in states}
        return sorted(found | self.resting if COMPLETED in states else found)

    def record(self, name: str) -> NodeRecord:
        """Return the record of a node that is in `nodes` or `absent`."""
        node = self.nodes.get(name)
        return node.record if node is not None else self.absent[name]

    @property
    def missing(self) -> int:
        """How many wanted nodes have neither a pod nor completed, those in `absent` aside."""
        known = len(self.nodes) + len(self.absent) + len(self.resting)
        return max(self.desired - known, 0)

    @property
    def is_complete(self) -> bool:
        """Whether every wanted node is completed, and there is at least one."""
        return self.is_settled(COMPLETED)

    def is_settled(self, *states: str) -> bool:
        """Return whether every wanted node is in one of those states, and there is at least one."""
        return (
            self.is_exact
            and self.desired > 0
            and bool(self.nodes or self.absent)
            and all(node.state in states for node in self.nodes.values())
            and all(record.state in states for record in self.absent.values())
        )


def take_tally(snapshot: Snapshot, now: datetime) -> Tally:
    """Return where every wanted node stands.

    A node is wanted while the DaemonSet controller keeps a pod there that is not being deleted; and
    when it has begun, while nothing but its own condition keeps pods off it (see `absence`). Ledger
    and records are looked up by node UID: a node created again under its name starts again.
    """
    daemon_set = snapshot.owned_daemon_set
    job = snapshot.job
    court = Court(
        job.spec,
        job.retry_token,
        snapshot.settings.patience,
        now,
        snapshot.seen,
        parse_time(job.status.get("completionTime")),
    )
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    nodes: dict[str, NodeTally] = {}
    surplus: list[Pod] = []
    wakes: list[datetime] = []
    standing = standing_pods(snapshot)
    held = held_pods(snapshot, standing)
    has_unrecorded = False
    for name, pod in standing.items():
        node = snapshot.nodes[name]
        if is_of_former_node(pod, node) or _is_kept_off(snapshot, pod, node):
            surplus.append(pod)
            continue
        evidence = ledger.get(name)
        if evidence is not None and evidence.node_uid != node.uid:
            evidence = None
        record = records.get(name)
        verdict = court.judge(Case(node, pod, evidence, record, held.get(name)))
        nodes[name] = NodeTally(name, verdict.record, pod, verdict.retire, verdict.discard)
        if verdict.wake_at is not None:
            wakes.append(verdict.wake_at)
        if not node.ready or pod.is_disrupted or pod.is_terminal:
            is_recorded = has_begun(record if record and record.uid == node.uid else None)
            has_unrecorded |= has_begun(verdict.record) and not is_recorded
    orphans, stray_at = _orphans(snapshot, ledger.keys() | records.keys(), now)
    surplus += orphans
    if stray_at is not None:
        wakes.append(stray_at)
    absence = find_absence(snapshot, standing, ledger, records)
    absent: dict[str, NodeRecord] = {}
    for name, taint in absence.held.items():
        absent[name], wake_at = judge_absent(
            court, snapshot.nodes[name], taint, ledger.get(name), records.get(name)
        )
        if wake_at is not None:
            wakes.append(wake_at)
    leaving = _leaving(snapshot, standing)
    matching = _matching(snapshot, (*standing, *leaving))
    present = standing.keys() | (leaving & matching)
    desired = _with_absent(
        _count_desired(daemon_set, leaving - matching), snapshot, absence, present
    )
    # The DaemonSet, if its controller acts on what was applied for the Job's choice of nodes; and
    # that, if nobody has changed the choice since.
    applied = _applied(job, daemon_set)
    placed = applied if applied is not None and _is_placed(snapshot, applied) else None
    return Tally(
        nodes=nodes,
        desired=desired,
        is_exact=placed is not None
        and not surplus
        # Nothing keeps a pod off them, and the DaemonSet controller has yet to count them.
        and not absence.due
        and _is_accounted_for(placed, standing, leaving)
        # A pod on a node that does not match is about to be deleted: the cache of pods is behind.
        and matching == standing.keys(),
        absent=absent,
        resting=_resting(
            snapshot, ledger, nodes.keys() | absent.keys(), desired - len(nodes) - len(absent)
        ),
        surplus=tuple(surplus),
        is_known=daemon_set is not None and daemon_set.observed_generation > 0,
        is_applied=daemon_set is None
        or daemon_set.nodes_hash == job.nodes_hash
        or bool(snapshot.refusal),
        is_shut=daemon_set is None or (daemon_set.is_gated and daemon_set.is_observed),
        is_altered=applied is not None and placed is None,
        has_unrecorded=has_unrecorded,
        wake_at=min(wakes, default=None),
    )


def standing_pods(snapshot: Snapshot) -> dict[str, Pod]:
    """Return the pod that speaks for each present node, by the node's name; none being deleted.

    For a moment a node can have two (a replacement beside a pod about to be removed): the younger
    one speaks for it.
    """
    return {
        pod.node_name: pod
        for pod in sorted(snapshot.pods, key=_age)
        if not pod.deleting and pod.node_name in snapshot.nodes
    }


def stray_pods(snapshot: Snapshot) -> list[Pod]:
    """Return the pods that wait to be scheduled to a node that is not there."""
    return [
        pod
        for pod in snapshot.pods
        if pod.node_name and not (pod.bound or pod.deleting) and pod.node_name not in snapshot.nodes
    ]


def _orphans(
    snapshot: Snapshot, known: AbstractSet[str], now: datetime
) -> tuple[list[Pod], datetime | None]:
    """Return the pods that wait to be scheduled to a node that has gone, and when more are.

    The DaemonSet controller does not hear of deleted nodes (addNode and updateNode in kubernetes
    pkg/controller/daemon): it goes on counting such a node until a pod of the DaemonSet changes. A
    node that is not in `known`, the names on record, may be too new for the cache of nodes: then
    it takes some time. It may also have gone while this process was away.
    """
    orphans: list[Pod] = []
    later: list[datetime] = []
    for pod in stray_pods(snapshot):
        sighting = snapshot.seen.get(stray(pod))
        ripe = (sighting.first if sighting is not None else now) + STRAY_AFTER
        if pod.node_name in known or now >= ripe:
            orphans.append(pod)
        else:
            later.append(ripe)
    return orphans, min(later, default=None)


def _leaving(snapshot: Snapshot, standing: Mapping[str, Pod]) -> frozenset[str]:
    """Return the nodes whose only pod is being deleted and has not ended."""
    return frozenset(
        pod.node_name
        for pod in snapshot.pods
        if pod.deleting
        and not pod.is_terminal
        and pod.node_name in snapshot.nodes
        and pod.node_name not in standing
    )


def _applied(job: Job, daemon_set: DaemonSet | None) -> DaemonSet | None:
    """Return the DaemonSet if its controller has seen what was applied for the Job's spec.nodes."""
    if daemon_set is None or not daemon_set.is_observed:
        return None
    if daemon_set.nodes_hash != job.nodes_hash or has_too_many_terms(job):
        return None
    return daemon_set


def _is_placed(snapshot: Snapshot, daemon_set: DaemonSet) -> bool:
    """Return whether the DaemonSet has the Job's choice of nodes, however it was changed since."""
    template = build_pod_template(snapshot.job, gated=True, settings=snapshot.settings)
    return is_placed(daemon_set, {"spec": {"template": template}})


def _is_accounted_for(
    daemon_set: DaemonSet, standing: Mapping[str, Pod], leaving: frozenset[str]
) -> bool:
    """Return whether the pods here are those that the DaemonSet controller counted last.

    It counts nodes that should run a pod (desired), those of them with one (scheduled), and nodes
    with a pod that they should not have (misscheduled); see `api.objects.DaemonSet`. Equal numbers
    of nodes alone prove nothing: a wanted node without a pod and an unwanted one with a pod make
    the same number.
    """
    return (
        daemon_set.scheduled == daemon_set.desired
        and len(standing) + len(leaving) == daemon_set.scheduled + daemon_set.misscheduled
    )


def _matching(snapshot: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return which of these nodes may be wanted, as far as their labels and names tell."""
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        return frozenset()
    affinity = NodeAffinity(daemon_set.pod_spec)
    return frozenset(name for name in names if affinity.matches(name, snapshot.nodes[name].labels))


def _count_desired(daemon_set: DaemonSet | None, unwanted: frozenset[str]) -> int:
    """Return how many nodes are wanted.

    `unwanted` are the nodes whose pod is being deleted because they do not match any more: they
    count as misscheduled until it is gone.
    """
    if daemon_set is None:
        return 0
    return daemon_set.desired + max(daemon_set.misscheduled - len(unwanted), 0)


def _with_absent(
    counted: int, snapshot: Snapshot, absence: Absence, present: AbstractSet[str]
) -> int:
    """Return how many nodes are wanted with the absent ones, by the DaemonSet's count of the rest.

    `present` are the nodes with a pod. While the DaemonSet's count is behind, it may have an absent
    node already, or still.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None or not (absence.held or absence.due):
        return counted
    without_pod = max(daemon_set.desired - daemon_set.scheduled, len(absence.due))
    return max(counted, len(present | absence.held.keys()) + without_pod)


def _resting(
    snapshot: Snapshot, ledger: Mapping[str, Evidence], known: AbstractSet[str], room: int
) -> frozenset[str]:
    """Return the completed nodes without a pod, no more than there are wanted nodes without one.

    `known` are the nodes that are counted already. Which of the others are wanted is not known. A
    node that completed and lost its pod is wanted as long as the count of wanted nodes leaves room
    for it.
    """
    if room <= 0:
        return frozenset()
    found = {
        name
        for name, evidence in ledger.items()
        if name not in known
        and evidence.is_completed
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == evidence.node_uid
    }
    # Where a pod is on its way out and the node has not completed, the room is that node's: another
    # pod follows. (Or the node is not wanted any more; then there is room once the pod is gone.)
    ending = {pod.node_name for pod in snapshot.pods if pod.deleting}
    room -= len(ending - known - found)
    return frozenset(sorted(found)[: max(room, 0)])


def merge_evidence(snapshot: Snapshot) -> dict[str, Evidence]:
    """Return the ledger of the Job, all shards as one: node name to evidence."""
    return report.merge_evidence(snapshot.reports)


def merge_records(snapshot: Snapshot) -> dict[str, NodeRecord]:
    """Return what was recorded of each node, all shards as one."""
    return report.merge_records(snapshot.reports)


def is_of_former_node(pod: Pod, node: Node) -> bool:
    """Return whether the pod was made before the node that has its node's name now."""
    return (
        pod.created_at is not None
        and node.created_at is not None
        and pod.created_at < node.created_at
    )


def _is_kept_off(snapshot: Snapshot, pod: Pod, node: Node) -> bool:
    """Return whether the pod waits to be scheduled to a node whose taints it does not tolerate.

    The node got the taint after the pod was created. The DaemonSet controller would not create
    the pod now, but lets it stay; deleted, it comes again when the taint has gone. Taints that tell
    a condition of the node (not-ready, unreachable, network-unavailable) do not count: such a node
    is wanted, and unreachable.
    """
    daemon_set = snapshot.owned_daemon_set
    if pod.bound or not node.taints or daemon_set is None:
        return False
    taints = untolerated(node.taints, daemon_set.pod_spec)
    return not all(taint.is_condition for taint in taints)


def _age(pod: Pod) -> tuple[float, str]:
    return (pod.created_at.timestamp() if pod.created_at else 0.0, pod.uid)
