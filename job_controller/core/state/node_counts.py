"""The controller's own count: the state of each desired node.

It is independent of the terminator's count on purpose, see docs/explanation/architecture.md. A Job
is deleted only when both counts agree. Two programs make them from the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from job_controller.core.state.absence import (
    assess_absent,
    find_absence,
    has_begun,
    tainted_with_pod,
)
from job_controller.core.state.desired_count import (
    add_absent,
    agrees_with_daemon_set,
    count_desired,
    find_completed_without_pod,
    has_desired_placement,
    matching_nodes,
    observed_daemon_set,
)
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_pods import (
    current_pods,
    find_orphans,
    is_kept_off_by_taint,
    is_older_than_node,
    terminating_nodes,
)
from job_controller.core.state.node_state import assess_node
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records


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
        job.status.completion_time,
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
        if is_older_than_node(pod, node) or is_kept_off_by_taint(snapshot, pod, node):
            surplus_pods.append(pod)
            continue
        evidence = ledger.get(name)
        if evidence is not None and evidence.node_uid != node.uid:
            evidence = None
        record = records.get(name)
        assessment = assess_node(
            context, NodeInputs(node, pod, evidence, record, tainted.get(name))
        )
        nodes[name] = DesiredNode(
            name, assessment.record, pod, assessment.replace_pod, assessment.delete_pod
        )
        if assessment.wake_at is not None:
            wakes.append(assessment.wake_at)
        if not node.ready or pod.is_disrupted or pod.is_terminal:
            is_recorded = has_begun(record if record and record.uid == node.uid else None)
            has_unrecorded_start |= has_begun(assessment.record) and not is_recorded
    orphans, stray_at = find_orphans(snapshot, ledger.keys() | records.keys(), now)
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
    terminating = terminating_nodes(snapshot, pods_by_node)
    matching = matching_nodes(snapshot, (*pods_by_node, *terminating))
    present = pods_by_node.keys() | (terminating & matching)
    desired = add_absent(
        count_desired(daemon_set, terminating - matching), snapshot, absence, present
    )
    # `applied` is the DaemonSet if its controller has observed the apply of the Job's `spec.nodes`.
    # `placed` is the same object if nobody has changed the placement since.
    applied = observed_daemon_set(job, daemon_set)
    placed = applied if applied is not None and has_desired_placement(snapshot, applied) else None
    return NodeCounts(
        nodes=nodes,
        desired=desired,
        is_exact=placed is not None
        and not surplus_pods
        # Nothing keeps a pod off them, and the DaemonSet controller has yet to count them.
        and not absence.uncounted
        and agrees_with_daemon_set(placed, pods_by_node, terminating)
        # The DaemonSet controller is about to delete a pod whose node does not match.
        and matching == pods_by_node.keys(),
        absent=absent,
        completed_without_pod=find_completed_without_pod(
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
