"""The terminator's own count: which nodes are wanted, which completed, whether the Job may go.

Pure, and independent of the controller's count on purpose: a Job is deleted only when both agree.
Everything is keyed by UID. A pod counts only if its DaemonSet's UID is that of the DaemonSet that
the Job's UID owns; labels and names prove nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from job_controller.api import names
from job_controller.api.job import Job
from job_controller.api.objects import DaemonSet, Node, Pod
from job_controller.api.report import Evidence, JobReport


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One Job and what the caches hold around it.

    `pods` may hold any pods, `reports` any reports; what does not belong to the Job is passed
    over. `nodes` are the current nodes by name.
    """

    job: Job
    daemon_set: DaemonSet | None
    pods: Iterable[Pod]
    nodes: Mapping[str, Node]
    ledger: Mapping[str, Evidence]


@dataclass(frozen=True, slots=True)
class Count:
    """Where the run stands: node names, and what is missing for the Job to be deleted.

    `wanted` are the nodes on which the DaemonSet controller keeps a pod, `completed` those of
    them that stand in the ledger by their UID. `is_exact`: `wanted` is known to be all of them.
    `obstacle` says in words why the Job stays, "" when it may be deleted.
    """

    wanted: frozenset[str]
    completed: frozenset[str]
    is_exact: bool
    obstacle: str

    @property
    def all_completed(self) -> bool:
        """Whether every wanted node is completed, and there is at least one."""
        return self.is_exact and bool(self.wanted) and self.completed == self.wanted

    @property
    def may_delete(self) -> bool:
        """Whether both counts agree that the Job is done."""
        return not self.obstacle


def merge_ledger(job: Job, reports: Iterable[JobReport]) -> dict[str, Evidence]:
    """Return the ledger of this run, all shards as one: node name to evidence.

    Should a node stand in two shards, an entry that completes it wins, then the lower shard.
    """
    ledger: dict[str, Evidence] = {}
    for report in sorted(reports, key=lambda report: report.shard):
        if report.job_uid != job.uid or report.namespace != job.namespace:
            continue
        for name, entry in report.evidence.items():
            if name not in ledger or (entry.is_completed and not ledger[name].is_completed):
                ledger[name] = entry
    return ledger


def owned_pods(job: Job, daemon_set: DaemonSet | None, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods whose chain of owners leads to this Job, by UID."""
    if daemon_set is None or not _is_owned(job, daemon_set):
        return []
    return [
        pod
        for pod in pods
        if pod.owner_uid == daemon_set.uid and pod.namespace == daemon_set.namespace
    ]


def speaks_for(pod: Pod, node: Node | None) -> bool:
    """Return whether what this pod's log says is said of this node.

    A pod made before the node belonged to a deleted node of the same name. API times are whole
    seconds of the API server's clock, so equal ones pass.
    """
    if node is None or not node.uid or node.name != pod.node_name:
        return False
    if pod.created_at is None or node.created_at is None:
        return True
    return pod.created_at >= node.created_at


def take_count(snapshot: Snapshot) -> Count:
    """Return the count, and what stands in the way of deleting the Job, if anything."""
    pods = owned_pods(snapshot.job, snapshot.daemon_set, snapshot.pods)
    wanted = frozenset(pod.node_name for pod in pods if not pod.deleting and pod.node_name)
    completed = frozenset(name for name in wanted if _is_completed(name, snapshot))
    inexact = _inexactness(snapshot.job, snapshot.daemon_set, wanted)
    return Count(
        wanted,
        completed,
        is_exact=not inexact,
        obstacle=inexact or _obstacle(snapshot.job, wanted, completed),
    )


def _is_owned(job: Job, daemon_set: DaemonSet) -> bool:
    return bool(job.uid) and daemon_set.owner_uid == job.uid and bool(daemon_set.uid)


def _is_completed(name: str, snapshot: Snapshot) -> bool:
    node, entry = snapshot.nodes.get(name), snapshot.ledger.get(name)
    if node is None or entry is None or not node.uid:
        return False
    return entry.is_completed and entry.node_uid == node.uid


def _inexactness(job: Job, daemon_set: DaemonSet | None, wanted: frozenset[str]) -> str:
    if daemon_set is None or not _is_owned(job, daemon_set):
        return "it has no DaemonSet"
    if daemon_set.deleting:
        return "its DaemonSet is being deleted"
    if not daemon_set.is_observed:
        return "the DaemonSet controller has yet to act on the newest spec"
    if len(wanted) != daemon_set.desired:
        return f"{daemon_set.desired} nodes are wanted and {len(wanted)} have a pod"
    return ""


def _obstacle(job: Job, wanted: frozenset[str], completed: frozenset[str]) -> str:
    if not wanted:
        return "no node is wanted"
    if completed != wanted:
        return f"{len(completed)} of {len(wanted)} nodes are completed"
    if job.deleting:
        return "it is being deleted"
    if int(job.status.get("observedGeneration") or 0) != job.generation:
        return "the controller has yet to act on the newest spec"
    if not job.is_true(names.CONDITION_COMPLETE):
        return "the controller has yet to count it as complete"
    return ""
