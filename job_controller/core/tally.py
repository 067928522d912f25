"""The controller's own count: where each wanted node stands.

Independent of the terminator's count on purpose (see docs/explanation/architecture.md): a Job
is deleted only when two counts, made by two programs from the same cluster, agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from job_controller.api.objects import Node, Pod
from job_controller.api.report import Evidence, NodeRecord
from job_controller.core.judge import COMPLETED, WAITING, Case, Court
from job_controller.core.snapshot import Snapshot


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
        """Where the node stands, one of `judge.STATES`."""
        return WAITING if self.retire else self.record.state


@dataclass(frozen=True, slots=True)
class Tally:
    """All wanted nodes by name, and whether the list is known to be whole.

    `is_exact` is False while the DaemonSet controller has yet to act on the newest spec, or a
    node that it wants has no pod yet: what is missing must not be taken for done. `resting` are
    completed nodes without a pod at the moment: a node that completed stays counted whatever
    becomes of its pod. `former` are pods of nodes that are gone, on nodes that have their names
    now. `is_known` is False while there is no DaemonSet, or its controller has yet to look at it:
    then nobody knows how many nodes are wanted. `is_shut` is whether every pod made from now on
    waits at its gate: the DaemonSet controller has looked at a template that has one, or there is
    no DaemonSet to make pods of. `wake_at` is when time alone may change the tally.
    """

    nodes: Mapping[str, NodeTally]
    desired: int
    is_exact: bool
    resting: frozenset[str] = frozenset()
    former: tuple[Pod, ...] = ()
    is_known: bool = True
    is_shut: bool = True
    wake_at: datetime | None = None

    def names(self, *states: str) -> list[str]:
        """Return the names of the nodes in those states, sorted; resting ones are completed."""
        found = {name for name, node in self.nodes.items() if node.state in states}
        return sorted(found | self.resting if COMPLETED in states else found)

    @property
    def missing(self) -> int:
        """How many wanted nodes have neither a pod nor completed."""
        return max(self.desired - len(self.nodes) - len(self.resting), 0)

    @property
    def is_complete(self) -> bool:
        """Whether every wanted node is completed, and there is at least one."""
        return self.is_settled(COMPLETED)

    def is_settled(self, *states: str) -> bool:
        """Return whether every wanted node is in one of those states, and there is at least one."""
        return (
            self.is_exact
            and self.desired > 0
            and all(node.state in states for node in self.nodes.values())
        )


def take_tally(snapshot: Snapshot, now: datetime) -> Tally:
    """Return where every wanted node stands.

    A node is wanted when the DaemonSet controller keeps a pod there that is not being deleted.
    Ledger and records are looked up by node UID: a node made anew under an old name starts anew.
    """
    daemon_set = snapshot.owned_daemon_set
    job = snapshot.job
    court = Court(job.spec, job.retry_token, snapshot.settings.patience, now)
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    nodes: dict[str, NodeTally] = {}
    former: list[Pod] = []
    wakes: list[datetime] = []
    # Two pods of one node for a moment (a replacement beside a pod about to be removed): the
    # younger one, which comes last, speaks for the node.
    standing = {pod.node_name: pod for pod in sorted(snapshot.pods, key=_age) if not pod.deleting}
    for name, pod in standing.items():
        node = snapshot.nodes.get(name)
        if node is None:
            continue
        if is_of_former_node(pod, node):
            # Nobody else removes it: the DaemonSet controller goes by the node's name.
            former.append(pod)
            continue
        evidence = ledger.get(name)
        if evidence is not None and evidence.node_uid != node.uid:
            evidence = None
        verdict = court.judge(Case(node, pod, evidence, records.get(name)))
        nodes[name] = NodeTally(name, verdict.record, pod, verdict.retire, verdict.discard)
        if verdict.wake_at is not None:
            wakes.append(verdict.wake_at)
    desired = daemon_set.desired if daemon_set is not None else 0
    return Tally(
        nodes=nodes,
        desired=desired,
        is_exact=(daemon_set is not None and daemon_set.is_observed and len(nodes) == desired),
        resting=_resting(snapshot, ledger, nodes, desired - len(nodes)),
        former=tuple(former),
        is_known=daemon_set is not None and daemon_set.observed_generation > 0,
        is_shut=daemon_set is None or (daemon_set.is_gated and daemon_set.is_observed),
        wake_at=min(wakes, default=None),
    )


def _resting(
    snapshot: Snapshot, ledger: Mapping[str, Evidence], nodes: Mapping[str, NodeTally], room: int
) -> frozenset[str]:
    """Return the completed nodes without a pod, no more than there are wanted nodes without one.

    Which nodes are wanted is known by their pods alone. A node that completed and lost its pod is
    wanted as long as the count of wanted nodes leaves room for it.
    """
    if room <= 0:
        return frozenset()
    found = {
        name
        for name, evidence in ledger.items()
        if name not in nodes
        and evidence.is_completed
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == evidence.node_uid
    }
    # Where a pod is on its way out and the node has not completed, the room is that node's: another
    # pod follows. (Or the node is not wanted any more; then there is room once the pod is gone.)
    ending = {pod.node_name for pod in snapshot.pods if pod.deleting}
    room -= len(ending - nodes.keys() - found)
    return frozenset(sorted(found)[: max(room, 0)])


def merge_evidence(snapshot: Snapshot) -> dict[str, Evidence]:
    """Return the ledger of the Job, all shards as one: node name to evidence."""
    return {
        name: evidence
        for report in sorted(snapshot.reports, key=lambda r: r.shard)
        for name, evidence in report.evidence.items()
    }


def merge_records(snapshot: Snapshot) -> dict[str, NodeRecord]:
    """Return what was recorded of each node, all shards as one."""
    return {
        name: record
        for report in sorted(snapshot.reports, key=lambda r: r.shard)
        for name, record in report.records.items()
    }


def is_of_former_node(pod: Pod, node: Node) -> bool:
    """Return whether the pod was made before the node that has its node's name now."""
    return (
        pod.created_at is not None
        and node.created_at is not None
        and pod.created_at < node.created_at
    )


def _age(pod: Pod) -> tuple[float, str]:
    return (pod.created_at.timestamp() if pod.created_at else 0.0, pod.uid)
