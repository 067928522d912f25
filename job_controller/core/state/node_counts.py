"""The controller's own count: the state of each desired node.

It is independent of the terminator's count on purpose, see docs/explanation/architecture.md. A Job
is deleted only when both counts agree. Two programs make them from the same cluster.
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
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import untolerated
from daemonset_job.api.times import parse_time
from job_controller.core.desired.daemon_set import build_pod_template, has_same_placement
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.state.absence import (
    Absence,
    assess_absent,
    find_absence,
    has_begun,
    tainted_with_pod,
)
from job_controller.core.state.first_seen import pod_without_node
from job_controller.core.state.node_state import NodeInputs, RunContext
from job_controller.core.state.snapshot import Snapshot

# A pod may wait to be scheduled to a node that is not in the cache. After this time the node is
# taken for deleted, and not for too new for the cache. If it exists after all, the DaemonSet
# controller creates the pod again. Its task has not started.
NODE_GONE_AFTER: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class DesiredNode:
    """One desired node: its record as it is now, and its current pod.

    `replace_pod` and `delete_pod`: see `node_state.NodeAssessment`.
    """

    name: str
    record: NodeRecord
    pod: Pod
    replace_pod: bool = False
    delete_pod: bool = False

    @property
    def uid(self) -> str:
        """The node's UID."""
        return self.record.uid

    @property
    def state(self) -> NodeState:
        """The state of the node; `Waiting` while its pod is to be replaced."""
        return NodeState.WAITING if self.replace_pod else self.record.state


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """All desired nodes by name, and whether the list is known to be complete.

    Attributes:
        nodes: The nodes with a pod that is not being deleted.
        desired: How many nodes are desired: those that should run a pod, those that should not (an
            untolerated NoSchedule taint) and still have one, and those in `absent`.
        is_exact: Whether `nodes` and `absent` are all desired nodes. It is False in these cases:
            the DaemonSet differs from what the Job asks for; its controller has not acted on its
            newest spec; any other desired node has no pod; the only pod of a node that still
            matches is being deleted; a node that does not match has a pod.
        absent: The records of desired nodes without a pod, which a condition of the node keeps
            off. Example: the node is not Ready. The DaemonSet controller does not count them.
        completed_without_pod: Completed nodes that have no pod at the moment. They stay counted.
        surplus_pods: Pods that only this controller deletes. A pod of a deleted node, when another
            node has its name or the pod waits to be scheduled; and a pod that waits to be
            scheduled to a node whose taints it does not tolerate. The DaemonSet controller keeps
            all of them, and counts their nodes.
        desired_is_known: False while there is no DaemonSet, or its controller has not observed it.
            The number of desired nodes is unknown then.
        nodes_spec_is_applied: False while the DaemonSet has an older `spec.nodes`, and the API
            server has not refused the newer one.
        new_pods_are_gated: Whether each new pod waits at its scheduling gate: the DaemonSet
            controller has observed a template with the gate, or there is no DaemonSet.
        is_altered: Whether another client changed where the DaemonSet's pods run since the last
            apply.
        has_unrecorded_start: Whether a node has begun, may lose its pod by its condition, and has
            no record of having begun. Without the pod nothing else shows that it has.
        wake_at: The next time at which the counts may change without an event, None for never.
    """

    nodes: Mapping[str, DesiredNode]
    desired: int
    is_exact: bool
    absent: Mapping[str, NodeRecord] = field(default_factory=dict)
    completed_without_pod: frozenset[str] = frozenset()
    surplus_pods: tuple[Pod, ...] = ()
    desired_is_known: bool = True
    nodes_spec_is_applied: bool = True
    new_pods_are_gated: bool = True
    is_altered: bool = False
    has_unrecorded_start: bool = False
    wake_at: datetime | None = None

    def names(self, *states: NodeState) -> list[str]:
        """Return the names of the nodes in those states, sorted."""
        found = {name for name, node in self.nodes.items() if node.state in states}
        found |= {name for name, record in self.absent.items() if record.state in states}
        return sorted(
            found | self.completed_without_pod if NodeState.COMPLETED in states else found
        )

    def record(self, name: str) -> NodeRecord:
        """Return the record of a node that is in `nodes` or `absent`."""
        node = self.nodes.get(name)
        return node.record if node is not None else self.absent[name]

    @property
    def missing(self) -> int:
        """How many desired nodes have neither a pod nor completed, those in `absent` aside."""
        known = len(self.nodes) + len(self.absent) + len(self.completed_without_pod)
        return max(self.desired - known, 0)

    @property
    def is_complete(self) -> bool:
        """Whether every desired node is completed, and there is at least one."""
        return self.is_settled(NodeState.COMPLETED)

    def is_settled(self, *states: NodeState) -> bool:
        """Return whether all desired nodes are in those states, and there is at least one."""
        return (
            self.is_exact
            and self.desired > 0
            and bool(self.nodes or self.absent)
            and all(node.state in states for node in self.nodes.values())
            and all(record.state in states for record in self.absent.values())
        )


def count_nodes(snapshot: Snapshot, now: datetime) -> NodeCounts:
    """Return the state of every desired node.

    A node is desired while it has a pod of the DaemonSet that is not being deleted. A node that has
    begun is desired also without a pod, while only its own condition keeps pods off (see
    `absence`). Ledger and records count only for the same node UID: a node that is created again
    under its old name starts again.
    """
    daemon_set = snapshot.owned_daemon_set
    job = snapshot.job
    context = RunContext(
        job.spec,
        job.retry_request,
        snapshot.settings.timeouts,
        now,
        snapshot.seen,
        parse_time(job.status.get("completionTime")),
    )
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    nodes: dict[str, DesiredNode] = {}
    surplus_pods: list[Pod] = []
    wakes: list[datetime] = []
    pods_by_node = current_pods(snapshot)
    tainted = tainted_with_pod(snapshot, pods_by_node)
    has_unrecorded_start = False
    for name, pod in pods_by_node.items():
        node = snapshot.nodes[name]
        if is_older_than_node(pod, node) or _is_kept_off_by_taint(snapshot, pod, node):
            surplus_pods.append(pod)
            continue
        evidence = ledger.get(name)
        if evidence is not None and evidence.node_uid != node.uid:
            evidence = None
        record = records.get(name)
        assessment = context.assess_node(NodeInputs(node, pod, evidence, record, tainted.get(name)))
        nodes[name] = DesiredNode(
            name, assessment.record, pod, assessment.replace_pod, assessment.delete_pod
        )
        if assessment.wake_at is not None:
            wakes.append(assessment.wake_at)
        if not node.ready or pod.is_disrupted or pod.is_terminal:
            is_recorded = has_begun(record if record and record.uid == node.uid else None)
            has_unrecorded_start |= has_begun(assessment.record) and not is_recorded
    orphans, stray_at = _orphans(snapshot, ledger.keys() | records.keys(), now)
    surplus_pods += orphans
    if stray_at is not None:
        wakes.append(stray_at)
    absence = find_absence(snapshot, pods_by_node, ledger, records)
    absent: dict[str, NodeRecord] = {}
    for name, taint in absence.tainted.items():
        absent[name], wake_at = assess_absent(
            context, snapshot.nodes[name], taint, ledger.get(name), records.get(name)
        )
        if wake_at is not None:
            wakes.append(wake_at)
    terminating = _terminating_nodes(snapshot, pods_by_node)
    matching = _matching_nodes(snapshot, (*pods_by_node, *terminating))
    present = pods_by_node.keys() | (terminating & matching)
    desired = _add_absent(
        _count_desired(daemon_set, terminating - matching), snapshot, absence, present
    )
    # `applied` is the DaemonSet if its controller has observed the apply of the Job's `spec.nodes`.
    # `placed` is the same object if nobody has changed the placement since.
    applied = _observed_daemon_set(job, daemon_set)
    placed = applied if applied is not None and _has_desired_placement(snapshot, applied) else None
    return NodeCounts(
        nodes=nodes,
        desired=desired,
        is_exact=placed is not None
        and not surplus_pods
        # Nothing keeps a pod off them, and the DaemonSet controller has yet to count them.
        and not absence.uncounted
        and _agrees_with_daemon_set(placed, pods_by_node, terminating)
        # The DaemonSet controller is about to delete a pod whose node does not match.
        and matching == pods_by_node.keys(),
        absent=absent,
        completed_without_pod=_completed_without_pod(
            snapshot, ledger, nodes.keys() | absent.keys(), desired - len(nodes) - len(absent)
        ),
        surplus_pods=tuple(surplus_pods),
        desired_is_known=daemon_set is not None and daemon_set.observed_generation > 0,
        nodes_spec_is_applied=daemon_set is None
        or daemon_set.nodes_hash == job.nodes_hash
        or bool(snapshot.daemon_set_refusal),
        new_pods_are_gated=daemon_set is None or (daemon_set.is_gated and daemon_set.is_observed),
        is_altered=applied is not None and placed is None,
        has_unrecorded_start=has_unrecorded_start,
        wake_at=min(wakes, default=None),
    )


def current_pods(snapshot: Snapshot) -> dict[str, Pod]:
    """Return the current pod of each existing node, by the node's name; none being deleted.

    For a moment a node can have two pods: a replacement and a pod that is about to be removed. The
    younger one is the current one.
    """
    return {
        pod.node_name: pod
        for pod in sorted(snapshot.pods, key=_age)
        if not pod.is_terminating and pod.node_name in snapshot.nodes
    }


def stray_pods(snapshot: Snapshot) -> list[Pod]:
    """Return the pods that wait to be scheduled to a node that does not exist."""
    return [
        pod
        for pod in snapshot.pods
        if pod.node_name
        and not (pod.is_scheduled or pod.is_terminating)
        and pod.node_name not in snapshot.nodes
    ]


def _orphans(
    snapshot: Snapshot, known: AbstractSet[str], now: datetime
) -> tuple[list[Pod], datetime | None]:
    """Return the pods that wait for a deleted node, and when there may be more.

    The DaemonSet controller does not handle the deletion of nodes (addNode and updateNode in
    kubernetes pkg/controller/daemon). It counts such a node until a pod of the DaemonSet changes. A
    node without a record, not in `known`, may be too new for the cache of nodes, so it gets some
    time. It may also have been deleted while this process was not running.
    """
    orphans: list[Pod] = []
    later: list[datetime] = []
    for pod in stray_pods(snapshot):
        sighting = snapshot.seen.get(pod_without_node(pod))
        decidable_at = (sighting.first if sighting is not None else now) + NODE_GONE_AFTER
        if pod.node_name in known or now >= decidable_at:
            orphans.append(pod)
        else:
            later.append(decidable_at)
    return orphans, min(later, default=None)


def _terminating_nodes(snapshot: Snapshot, pods_by_node: Mapping[str, Pod]) -> frozenset[str]:
    """Return the nodes whose only pod is being deleted and has not ended."""
    return frozenset(
        pod.node_name
        for pod in snapshot.pods
        if pod.is_terminating
        and not pod.is_terminal
        and pod.node_name in snapshot.nodes
        and pod.node_name not in pods_by_node
    )


def _observed_daemon_set(job: Job, daemon_set: DaemonSet | None) -> DaemonSet | None:
    """Return the DaemonSet if its controller has observed the Job's newest spec.nodes."""
    if daemon_set is None or not daemon_set.is_observed:
        return None
    if daemon_set.nodes_hash != job.nodes_hash or has_too_many_terms(job):
        return None
    return daemon_set


def _has_desired_placement(snapshot: Snapshot, daemon_set: DaemonSet) -> bool:
    """Return whether the DaemonSet still selects the Job's nodes."""
    template = build_pod_template(snapshot.job, gated=True, settings=snapshot.settings)
    return has_same_placement(daemon_set, {"spec": {"template": template}})


def _agrees_with_daemon_set(
    daemon_set: DaemonSet, pods_by_node: Mapping[str, Pod], terminating: frozenset[str]
) -> bool:
    """Return whether the cached pods are those that the DaemonSet controller counted last.

    Its counters are nodes that should run a pod (desired), those of them with one (scheduled), and
    nodes with a pod that they should not have (misscheduled); see `api.objects.DaemonSet`. Equal
    numbers alone prove nothing: a desired node without a pod and another node with a pod that it
    should not have add up to the same number.
    """
    return (
        daemon_set.scheduled == daemon_set.desired
        and len(pods_by_node) + len(terminating) == daemon_set.scheduled + daemon_set.misscheduled
    )


def _matching_nodes(snapshot: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return the nodes whose labels and names match the DaemonSet's node selection."""
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        return frozenset()
    affinity = NodeAffinity(daemon_set.pod_spec)
    return frozenset(name for name in names if affinity.matches(name, snapshot.nodes[name].labels))


def _count_desired(daemon_set: DaemonSet | None, unwanted: frozenset[str]) -> int:
    """Return how many nodes are desired.

    `unwanted` are the nodes whose pod is being deleted because they no longer match. They count as
    misscheduled until the pod is gone.
    """
    if daemon_set is None:
        return 0
    return daemon_set.desired + max(daemon_set.misscheduled - len(unwanted), 0)


def _add_absent(
    counted: int, snapshot: Snapshot, absence: Absence, present: AbstractSet[str]
) -> int:
    """Return how many nodes are desired, the absent ones included.

    `counted` is the DaemonSet's count, `present` are the nodes with a pod. A DaemonSet's count that
    is out of date may include an absent node.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None or not (absence.tainted or absence.uncounted):
        return counted
    without_pod = max(daemon_set.desired - daemon_set.scheduled, len(absence.uncounted))
    return max(counted, len(present | absence.tainted.keys()) + without_pod)


def _completed_without_pod(
    snapshot: Snapshot, ledger: Mapping[str, Evidence], known: AbstractSet[str], room: int
) -> frozenset[str]:
    """Return the completed nodes without a pod, at most `room` of them.

    `known` are the nodes that are counted already. It is not known which of the others are desired.
    A completed node without a pod counts as long as the number of desired nodes leaves room.
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
    # A pod that is being deleted on a node that has not completed takes up room: another pod
    # follows it. If the node is no longer desired, there is room once the pod is gone.
    ending = {pod.node_name for pod in snapshot.pods if pod.is_terminating}
    room -= len(ending - known - found)
    return frozenset(sorted(found)[: max(room, 0)])


def merge_evidence(snapshot: Snapshot) -> dict[str, Evidence]:
    """Return the ledger of the Job, all shards as one: node name to evidence."""
    return report.merge_evidence(snapshot.reports)


def merge_records(snapshot: Snapshot) -> dict[str, NodeRecord]:
    """Return the record of each node, all shards as one."""
    return report.merge_records(snapshot.reports)


def is_older_than_node(pod: Pod, node: Node) -> bool:
    """Return whether the pod is older than its node, so that it belongs to an earlier one."""
    return (
        pod.created_at is not None
        and node.created_at is not None
        and pod.created_at < node.created_at
    )


def _is_kept_off_by_taint(snapshot: Snapshot, pod: Pod, node: Node) -> bool:
    """Return whether the pod waits to be scheduled to a node whose taints it does not tolerate.

    The node got the taint after the pod was created. The DaemonSet controller would not create
    the pod now, but does not delete it. Once deleted, it is created again when the taint is gone.
    Taints for a condition of the node (not-ready, unreachable, network-unavailable) do not count:
    such a node is desired, and unreachable.
    """
    daemon_set = snapshot.owned_daemon_set
    if pod.is_scheduled or not node.taints or daemon_set is None:
        return False
    taints = untolerated(node.taints, daemon_set.pod_spec)
    return not all(taint.is_condition for taint in taints)


def _age(pod: Pod) -> tuple[float, str]:
    return (pod.created_at.timestamp() if pod.created_at else 0.0, pod.uid)
