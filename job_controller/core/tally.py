"""The controller's own count: where each wanted node stands.

Independent of the terminator's count on purpose (see docs/explanation/architecture.md): a Job
is deleted only when two counts, made by two programs from the same cluster, agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from job_controller.api.objects import Node, Pod
from job_controller.api.report import Evidence
from job_controller.core.snapshot import Snapshot

WAITING = "Waiting"
ACTIVE = "Active"
COMPLETED = "Completed"

# Why a task container that should start does not (kubernetes pkg/kubelet/images/types.go and
# pkg/kubelet/container/sync_result.go). Each needs a person; none heals by waiting alone.
IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
START_REASONS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PostStartHookError",
    }
)
CRASH_REASON = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class NodeTally:
    """One wanted node: its state, the pod that stands for it, and the proof if it is completed."""

    name: str
    uid: str
    state: str
    pod: Pod | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """All wanted nodes by name, and whether the list is known to be whole.

    `is_exact` is False while the DaemonSet controller has yet to act on the newest spec, or a
    node that it wants has no pod yet: what is missing must not be taken for done.
    """

    nodes: Mapping[str, NodeTally]
    desired: int
    is_exact: bool

    def names(self, state: str) -> list[str]:
        """Return the names of the nodes in that state, sorted."""
        return sorted(name for name, node in self.nodes.items() if node.state == state)

    @property
    def is_complete(self) -> bool:
        """Whether every wanted node is completed, and there is at least one."""
        return (
            self.is_exact
            and self.desired > 0
            and all(node.state == COMPLETED for node in self.nodes.values())
        )


def take_tally(snapshot: Snapshot) -> Tally:
    """Return where every wanted node stands.

    A node is wanted when the DaemonSet controller keeps a pod there that is not being deleted.
    Its state is looked up by node UID: a node made anew under an old name starts anew.
    """
    daemon_set = snapshot.owned_daemon_set
    ledger = merge_evidence(snapshot)
    nodes: dict[str, NodeTally] = {}
    for pod in sorted(snapshot.pods, key=_age):
        node = snapshot.nodes.get(pod.node_name)
        if pod.deleting or node is None or is_of_former_node(pod, node):
            continue
        # Two pods of one node for a moment (a replacement beside a pod about to be removed):
        # the younger one speaks for the node.
        nodes[node.name] = _tally_node(node, pod, ledger.get(node.name))
    desired = daemon_set.desired if daemon_set is not None else 0
    return Tally(
        nodes=nodes,
        desired=desired,
        is_exact=(daemon_set is not None and daemon_set.is_observed and len(nodes) == desired),
    )


def merge_evidence(snapshot: Snapshot) -> dict[str, Evidence]:
    """Return the ledger of the Job, all shards as one: node name to evidence."""
    return {
        name: evidence
        for report in sorted(snapshot.reports, key=lambda r: r.shard)
        if report.job_uid == snapshot.job.uid
        for name, evidence in report.evidence.items()
    }


def is_of_former_node(pod: Pod, node: Node) -> bool:
    """Return whether the pod was made before the node that has its node's name now."""
    return (
        pod.created_at is not None
        and node.created_at is not None
        and pod.created_at < node.created_at
    )


def _tally_node(node: Node, pod: Pod, evidence: Evidence | None) -> NodeTally:
    if evidence is not None and evidence.node_uid != node.uid:
        evidence = None
    if evidence is not None and evidence.is_completed:
        state = COMPLETED
    elif _has_started(pod):
        state = ACTIVE
    else:
        state = WAITING
    return NodeTally(node.name, node.uid, state, pod, evidence)


def _has_started(pod: Pod) -> bool:
    container = pod.container
    if container is None:
        return False
    return container.state in {"running", "terminated"} or container.restart_count > 0


def _age(pod: Pod) -> tuple[float, str]:
    return (pod.created_at.timestamp() if pod.created_at else 0.0, pod.uid)
