"""The terminator's own count of desired, completed and failed nodes.

Pure, and independent of the controller's count on purpose: a Job is deleted only if both agree.
Everything is keyed by UID. A pod counts only if its DaemonSet's UID is that of the DaemonSet that
the Job's UID owns; labels and names prove nothing.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from daemonset_job.api import report
from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import JobReport, merge_evidence
from daemonset_job.api.states import NodeState
from terminator.node_selection import find_unselected_node


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One Job and the objects around it in the caches.

    Attributes:
        pods: Any pods; those that do not belong to the Job are ignored.
        nodes: The current nodes by name, also those without a pod.
        ledger: The evidence of this run, by name of the node.
        records: The controller's records of this run, by name of the node.
    """

    job: Job
    daemon_set: DaemonSet | None
    pods: Iterable[Pod]
    nodes: Mapping[str, Node]
    ledger: Mapping[str, Evidence]
    records: Mapping[str, NodeRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Count:
    """The state of a run, as names of nodes.

    Attributes:
        desired: The nodes on which the DaemonSet controller keeps a pod.
        completed: Desired nodes with a completion in the ledger under their UID.
        failed: Other desired nodes that the controller recorded as failed.
        recorded: Desired nodes that the controller recorded as completed or failed.
        ended_without_pod: Other nodes that have no pod, and have completed, or match and have
            failed. The controller counts them, unless an administrator's taint keeps pods off a
            failed one, or the user took a completed one out of the selection. Neither is known
            here.
        running: Desired nodes that have neither completed nor failed, whose pod runs the task or is
            about to restart it, and which are not recorded as unreachable.
        has_failures: Whether any node is recorded as failed, desired or not.
        has_completions: Whether any node has a completion in the ledger, desired or not.
        inexact: Why `desired` may not be all desired nodes, "" if it is.
    """

    desired: frozenset[str]
    completed: frozenset[str]
    failed: frozenset[str]
    recorded: frozenset[str]
    ended_without_pod: frozenset[str]
    running: frozenset[str]
    has_failures: bool
    has_completions: bool
    inexact: str

    @property
    def unfinished(self) -> frozenset[str]:
        """Return the desired nodes that have neither completed nor failed."""
        return self.desired - self.completed - self.failed

    @property
    def all_completed(self) -> bool:
        """Return whether every desired node is completed, and there is at least one."""
        return not self.inexact and bool(self.desired) and self.completed == self.desired


def merge_ledger(job: Job, reports: Iterable[JobReport]) -> dict[str, Evidence]:
    """Return the evidence of this run from all shards, by name of the node."""
    return merge_evidence(reports_of_run(job, reports))


def merge_records(job: Job, reports: Iterable[JobReport]) -> dict[str, NodeRecord]:
    """Return the controller's records of this run from all shards, by name of the node."""
    return report.merge_records(reports_of_run(job, reports))


def reports_of_run(job: Job, reports: Iterable[JobReport]) -> list[JobReport]:
    """Return the reports of this run among `reports`; those of another namespace are forged."""
    return [r for r in reports if r.job_uid == job.uid and r.namespace == job.namespace]


def owned_pods(job: Job, daemon_set: DaemonSet | None, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods whose chain of owners leads to this Job, by UID."""
    if daemon_set is None or not _is_owned(job, daemon_set):
        return []
    return [
        pod
        for pod in pods
        if pod.owner_uid == daemon_set.uid and pod.namespace == daemon_set.namespace
    ]


def pod_belongs_to_node(pod: Pod, node: Node | None) -> bool:
    """Return whether this pod ran on this node, and not on a deleted node of the same name.

    A pod older than the node belonged to a deleted one. API times are whole seconds of the API
    server's clock, so equal times pass.
    """
    if node is None or not node.uid or node.name != pod.node_name:
        return False
    if pod.created_at is None or node.created_at is None:
        return True
    return pod.created_at >= node.created_at


def count_nodes(snapshot: Snapshot) -> Count:
    """Return the state of the run."""
    job = snapshot.job
    pods = owned_pods(job, snapshot.daemon_set, snapshot.pods)
    desired = frozenset(pod.node_name for pod in pods if not pod.is_terminating and pod.node_name)
    leaving = frozenset(
        pod.node_name
        for pod in pods
        if pod.is_terminating and not pod.is_terminal and pod.node_name in snapshot.nodes
    )
    completed = frozenset(name for name in desired if _is_completed(name, snapshot))
    failed = _recorded_as(desired - completed, snapshot, {NodeState.FAILED})
    ended_without_pod, begun_without_pod = _nodes_without_pod(snapshot, desired)
    return Count(
        desired=desired,
        completed=completed,
        failed=failed,
        recorded=_recorded_as(desired, snapshot, {NodeState.COMPLETED, NodeState.FAILED}),
        ended_without_pod=ended_without_pod,
        running=_running_nodes(pods, desired - completed - failed, snapshot),
        has_failures=any(r.has_failed(job.retry_request) for r in snapshot.records.values()),
        has_completions=any(entry.is_completed for entry in snapshot.ledger.values()),
        inexact=_find_inexactness(snapshot, desired, leaving - desired) or begun_without_pod,
    )


def _running_nodes(
    pods: Iterable[Pod], unfinished: AbstractSet[str], snapshot: Snapshot
) -> frozenset[str]:
    """Return those of the `unfinished` nodes whose task starts, runs or is about to be restarted.

    A task that never starts fails after a timeout.
    """
    bound = frozenset(
        pod.node_name
        for pod in pods
        if pod.is_scheduled and not pod.is_terminating and not pod.is_terminal
    )
    return (bound & unfinished) - _recorded_as(unfinished, snapshot, {NodeState.UNREACHABLE})


def _recorded_as(
    names: Iterable[str], snapshot: Snapshot, states: AbstractSet[str]
) -> frozenset[str]:
    """Return those of the nodes of which the controller recorded one of `states`."""
    return frozenset(name for name in names if _is_recorded(name, snapshot, states))


def _is_owned(job: Job, daemon_set: DaemonSet) -> bool:
    return bool(job.uid) and daemon_set.owner_uid == job.uid and bool(daemon_set.uid)


def _is_completed(name: str, snapshot: Snapshot) -> bool:
    node, entry = snapshot.nodes.get(name), snapshot.ledger.get(name)
    if node is None or entry is None or not node.uid:
        return False
    return entry.completes(node.uid)


def _is_recorded(name: str, snapshot: Snapshot, states: AbstractSet[str]) -> bool:
    """Return whether the controller recorded one of `states` for the node.

    A failure does not count once a retry was requested, although its record remains until the pod
    of the retry exists.
    """
    node, record = snapshot.nodes.get(name), snapshot.records.get(name)
    if node is None or record is None or not node.uid:
        return False
    if record.state == NodeState.FAILED and not record.has_failed(snapshot.job.retry_request):
        return False
    return record.uid == node.uid and record.state in states


def _find_inexactness(snapshot: Snapshot, desired: frozenset[str], leaving: frozenset[str]) -> str:
    """Return why the desired nodes are not known for certain, "" if they are.

    `leaving` are nodes whose only pod is being deleted. If such a node still matches, it is desired
    and waits for its next pod. Equal numbers alone prove nothing. The DaemonSet controller counts
    nodes that should have a pod (desired), those of them that have one (scheduled), and other nodes
    that have one (misscheduled).
    """
    found = snapshot.daemon_set
    if found is None or not _is_owned(snapshot.job, found):
        return "the Job has no DaemonSet"
    if unusable := _find_unusable(snapshot.job, found):
        return unusable
    if unselected := find_unselected_node(snapshot.job, found, snapshot.nodes.values()):
        return unselected
    if found.scheduled != found.desired:
        return f"{found.scheduled} of {found.desired} desired nodes have a pod"
    counted, present = found.scheduled + found.misscheduled, len(desired | leaving)
    if counted != present:
        return f"the DaemonSet's status counts {counted} nodes with a pod, but {present} have one"
    return _find_mismatch(snapshot, found, desired, leaving)


def _nodes_without_pod(snapshot: Snapshot, desired: frozenset[str]) -> tuple[frozenset[str], str]:
    """Return the ended nodes without a pod, and a message about one that has not ended.

    A node that is not Ready leaves the DaemonSet's counters once its pod is deleted, perhaps before
    its task has completed. The controller's report shows which nodes have started, and records
    nodes as removed that no longer count. Taints are not known here.
    """
    found = snapshot.daemon_set
    if found is None:
        return frozenset(), ""
    affinity = NodeAffinity(found.pod_spec)
    ended: set[str] = set()
    begun = ""
    for name in sorted((snapshot.records.keys() | snapshot.ledger.keys()) - desired):
        node = snapshot.nodes.get(name)
        if node is None:
            continue
        if _is_completed(name, snapshot):
            ended.add(name)
        elif not affinity.matches(name, node.labels):
            continue
        elif _is_recorded(name, snapshot, {NodeState.FAILED}):
            ended.add(name)
        elif not begun and _has_begun(name, snapshot):
            begun = f"node {name} has begun, has not finished and has no pod"
    return frozenset(ended), begun


def _has_begun(name: str, snapshot: Snapshot) -> bool:
    """Return whether the node's task is recorded as started, and the node not as removed."""
    node, record = snapshot.nodes.get(name), snapshot.records.get(name)
    if (
        node is None
        or record is None
        or record.uid != node.uid
        or record.state == NodeState.REMOVED
    ):
        return False
    return (
        record.state in {NodeState.ACTIVE, NodeState.UNREACHABLE, NodeState.FAILED}
        or record.attempts > 0
    )


def _find_mismatch(
    snapshot: Snapshot, found: DaemonSet, desired: frozenset[str], leaving: frozenset[str]
) -> str:
    """Return which pod is not on a node that the DaemonSet selects, "" for none.

    Such a pod is about to be deleted: the cache of pods is stale, and equal numbers are a
    coincidence.
    """
    affinity = NodeAffinity(found.pod_spec)
    for name in sorted((desired | leaving) & snapshot.nodes.keys()):
        is_match = affinity.matches(name, snapshot.nodes[name].labels)
        if is_match and name in leaving:
            return f"the pod of node {name} is being deleted, and a new one follows"
        if not is_match and name in desired:
            return f"node {name} is not selected any more, and its pod still exists"
    return ""


def _find_unusable(job: Job, found: DaemonSet) -> str:
    """Return why the DaemonSet's counters are not those of the Job's spec, "" if they are."""
    if found.is_terminating:
        return "its DaemonSet is being deleted"
    if not found.is_observed:
        return "the DaemonSet controller has not observed the newest spec yet"
    if found.nodes_hash != job.nodes_hash:
        return "its DaemonSet was applied for an older spec.nodes"
    return ""
