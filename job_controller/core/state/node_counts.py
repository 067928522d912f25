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


@dataclass(frozen=True, slots=True)
class DesiredNode:
    """One desired node: its record as it is now, and its current pod.

    `replace_pod` and the flags after it: see `node_state.NodeAssessment`. `awaits_record`: the node
    is due again, and its pod is left alone until the report says so.
    """

    name: str
    record: NodeRecord
    pod: Pod
    replace_pod: bool = False
    delete_pod: bool = False
    awaits_retry: bool = False
    repeats_task: bool = False
    awaits_record: bool = False

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
        desired: How many nodes are desired: those that should run a pod, and those that should not
            (an untolerated NoSchedule taint) and still have one. Those in `absent` and in
            `completed_unselected` count as well.
        is_exact: Whether `nodes` and `absent` are all desired nodes. It is False if the DaemonSet
            differs from what the Job asks for, or its controller has not acted on its newest spec.
            It is False if any other desired node has no pod, or a node that does not match has one.
            It is also False if the only pod of a node that still matches is being deleted.
        absent: The records of desired nodes without a pod, which a condition of the node keeps
            off. Example: the node is not Ready. The DaemonSet controller does not count them.
        ending: The records of other nodes that have begun. Only a pod that is being deleted shows
            it, and once that is gone, only the record.
        skipped: Why each node is skipped that the Job selects and that is not desired, by its name.
        completed_without_pod: Completed nodes that have no pod at the moment, or only one that is
            about to be gone. They stay counted.
        failed_without_pod: The records of failed nodes that have no pod at the moment. They count
            as failed, and among the missing ones as well.
        completed_unselected: Completed nodes that the DaemonSet does not choose any more, because
            their labels or taints changed. They stay counted, too.
        surplus_pods: Pods that only this controller deletes. One kind is a pod of a deleted node,
            if another node has its name or the pod waits to be scheduled. The other kind waits to
            be scheduled to a node whose taints it does not tolerate. The DaemonSet controller
            keeps all of them, and counts their nodes.
        desired_is_known: False while there is no DaemonSet, or its controller has not observed it.
            The number of desired nodes is unknown then.
        desired_is_current: Whether that number is of the newest `spec.nodes`, or the API server has
            refused that. It is False until the DaemonSet controller has acted on the newest
            selection, and while another client has changed the selection of the DaemonSet.
        nodes_spec_is_applied: False while the DaemonSet has an older `spec.nodes`, and the API
            server has not refused the newer one.
        nodes_spec_is_refused: Whether the DaemonSet has an older `spec.nodes`, and the API server
            has refused the newer one.
        set_aside: Nodes that the run does not wait for, by their records: they are unreachable.
        new_pods_are_gated: Whether each new pod waits at its scheduling gate: the DaemonSet
            controller has observed a template with the gate, or there is no DaemonSet.
        is_altered: Whether another client changed where the DaemonSet's pods run since the last
            apply.
        is_stalled: Whether the DaemonSet controller has not acted for a minute although it should.
        overlooked: Nodes without a pod that the DaemonSet chooses, and that its controller has not
            counted for a minute. They are not among the desired ones, and `is_exact` is False.
        is_record_urgent: Whether the record lacks what nothing else may show soon. A node has
            begun, and is losing its pod or may lose it by its condition. Or a task has ended with
            an exit code for which a rule fails its node: the kubelet shows only the newest end.
        wake_at: The next time at which the counts may change without an event, None for never.
    """

    nodes: Mapping[str, DesiredNode]
    desired: int
    is_exact: bool
    absent: Mapping[str, NodeRecord] = field(default_factory=dict)
    ending: Mapping[str, NodeRecord] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    completed_without_pod: frozenset[str] = frozenset()
    failed_without_pod: Mapping[str, NodeRecord] = field(default_factory=dict)
    completed_unselected: frozenset[str] = frozenset()
    surplus_pods: tuple[Pod, ...] = ()
    desired_is_known: bool = True
    desired_is_current: bool = True
    nodes_spec_is_applied: bool = True
    nodes_spec_is_refused: bool = False
    set_aside: frozenset[str] = frozenset()
    new_pods_are_gated: bool = True
    is_altered: bool = False
    is_stalled: bool = False
    overlooked: frozenset[str] = frozenset()
    is_record_urgent: bool = False
    wake_at: datetime | None = None

    def names(self, *states: NodeState) -> list[str]:
        """Return the names of the nodes in those states, sorted."""
        found = {name for name, node in self.nodes.items() if node.state in states}
        found |= {name for name, record in self.absent.items() if record.state in states}
        if NodeState.COMPLETED in states:
            found |= self.completed_without_pod | self.completed_unselected
        if NodeState.FAILED in states:
            found |= self.failed_without_pod.keys()
        return sorted(found)

    @property
    def desired_names(self) -> set[str]:
        """The names of the desired nodes that are known; some of them may be deleted since."""
        found = self.nodes.keys() | self.absent.keys()
        return found | self.completed_without_pod | self.completed_unselected

    def record(self, name: str) -> NodeRecord:
        """Return the record of a node in `nodes`, in `absent` or in `failed_without_pod`."""
        if (node := self.nodes.get(name)) is not None:
            return node.record
        return self.absent[name] if name in self.absent else self.failed_without_pod[name]

    @property
    def missing(self) -> int:
        """How many desired nodes have neither a pod nor completed, those in `absent` aside."""
        known = len(self.nodes) + len(self.absent) + len(self.completed_without_pod)
        return max(self.desired - len(self.completed_unselected) - known, 0)

    @property
    def is_complete(self) -> bool:
        """Whether every desired node is completed, and there is at least one."""
        return self.is_settled(NodeState.COMPLETED)

    def is_settled(self, *states: NodeState) -> bool:
        """Return whether all desired nodes are in those states, and there is at least one."""
        return self._are_all_in(states, frozenset())

    @property
    def is_over(self) -> bool:
        """Whether each desired node has completed or failed, or is set aside."""
        return self._are_all_in((NodeState.COMPLETED, NodeState.FAILED), self.set_aside)

    def _are_all_in(self, states: tuple[NodeState, ...], others: frozenset[str]) -> bool:
        return (
            self.is_exact
            and self.desired > 0
            and self.missing == 0
            and bool(self.nodes or self.absent or self.completed_unselected)
            and all(node.state in states or name in others for name, node in self.nodes.items())
            and all(rec.state in states or name in others for name, rec in self.absent.items())
        )
