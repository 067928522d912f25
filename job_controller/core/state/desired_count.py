"""How many nodes are desired, and whether the caches agree with the DaemonSet about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from job_controller.core.desired.comparison import has_same_placement
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.state.absence import Absence
from job_controller.core.state.due_again import ANOTHER_SELECTION, has_left, selection_of
from job_controller.core.state.left_nodes import has_chosen_other
from job_controller.core.state.snapshot import Snapshot


def observed_daemon_set(job: Job, daemon_set: DaemonSet | None) -> DaemonSet | None:
    """Return the DaemonSet if its controller has observed the Job's newest spec.nodes."""
    if daemon_set is None or not daemon_set.is_observed:
        return None
    if daemon_set.nodes_hash != job.nodes_hash or has_too_many_terms(job):
        return None
    return daemon_set


def has_desired_placement(snapshot: Snapshot, daemon_set: DaemonSet) -> bool:
    """Return whether the DaemonSet still selects the Job's nodes."""
    template = build_pod_template(snapshot.job, gated=True, settings=snapshot.settings)
    return has_same_placement(daemon_set, {"spec": {"template": template}})


def agrees_with_daemon_set(
    daemon_set: DaemonSet, pods_by_node: Mapping[str, Pod], terminating: frozenset[str]
) -> bool:
    """Return whether the cached pods are those that the DaemonSet controller counted last.

    It counts nodes that should run a pod (desired), those of them with one (scheduled), and nodes
    with a pod that they should not have (misscheduled); see `DaemonSet`. Equal numbers alone prove
    nothing: a desired node without a pod and another node with a pod that it should not have add up
    to the same number.
    """
    return (
        daemon_set.scheduled == daemon_set.desired
        and len(pods_by_node) + len(terminating) == daemon_set.scheduled + daemon_set.misscheduled
    )


def has_uncached_pods(
    snapshot: Snapshot, daemon_set: DaemonSet, pods_by_node: Mapping[str, Pod], unwanted: int
) -> bool:
    """Return whether the DaemonSet may count a pod that is not in the cache instead of one that is.

    The DaemonSet controller does not count a node with a taint that keeps pods off, or counts it as
    misscheduled. Until it looks again, it counts the node as desired. So a cached pod on such a
    node may be counted instead of the pod of another node, whose event is late. So may a cached pod
    that was deleted since its node no longer matches: there are `unwanted` of them.
    """
    tolerations = snapshot.tolerations
    tainted = sum(
        bool(tolerations.untolerated(snapshot.nodes[name].taints)) for name in pods_by_node
    )
    if tainted + unwanted <= daemon_set.misscheduled:
        return False
    return has_chosen_other(snapshot, pods_by_node.keys())


def has_undone_node_without_pod(
    snapshot: Snapshot, ledger: Mapping[str, Evidence], known: AbstractSet[str]
) -> bool:
    """Return whether a node is to run a pod, is not in `known`, and has not completed.

    A count of the DaemonSet controller may be older than the caches of nodes and pods. It may agree
    with them by chance: since then one node has lost its pod, and another has got its first one.
    """
    return has_chosen_other(snapshot, known | find_completed(snapshot, ledger))


def find_completed(snapshot: Snapshot, ledger: Mapping[str, Evidence]) -> frozenset[str]:
    """Return the nodes that have completed, by the ledger and their UID."""
    return frozenset(
        name
        for name, evidence in ledger.items()
        if (node := snapshot.nodes.get(name)) is not None and evidence.completes(node.uid)
    )


def matching_nodes(snapshot: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return the nodes whose labels and names match the DaemonSet's node selection."""
    if snapshot.owned_daemon_set is None:
        return frozenset()
    affinity = snapshot.affinity
    return frozenset(name for name in names if affinity.matches(name, snapshot.nodes[name].labels))


def find_selections(snapshot: Snapshot, names: Iterable[str]) -> dict[str, str]:
    """Return the selection that chooses each of the nodes, by its hash, for policy Continuous.

    A node that the DaemonSet does not choose is left out. While the DaemonSet does not have the
    newest selection, it is another one that chooses.
    """
    daemon_set, job = snapshot.owned_daemon_set, snapshot.job
    if not job.spec.is_continuous or daemon_set is None:
        return {}
    is_placed = _has_newest_selection(snapshot, daemon_set)
    selection = job.selection_hash if is_placed else ANOTHER_SELECTION
    return dict.fromkeys(matching_nodes(snapshot, names), selection)


def _has_newest_selection(snapshot: Snapshot, daemon_set: DaemonSet) -> bool:
    is_applied = daemon_set.nodes_hash == snapshot.job.nodes_hash
    return is_applied and has_desired_placement(snapshot, daemon_set)


def has_changed_selection(snapshot: Snapshot) -> bool:
    """Return whether the DaemonSet has, or has had, another selection than that of the start.

    It is for policy Continuous. Once that selection is back, nothing else shows it of a node whose
    record is yet to be written. Of a DaemonSet that was deleted, it is not known. It may be so if
    the spec was ever changed.
    """
    ours, job, first = snapshot.owned_daemon_set, snapshot.job, snapshot.first_report
    if not job.spec.is_continuous or first is None:
        return False
    if first.selection_hash not in {"", job.selection_hash}:
        return True
    if ours is None:
        return job.reported_desired is not None and job.generation > 1
    return ours.selection_changed


def count_desired(daemon_set: DaemonSet | None, unwanted: frozenset[str]) -> int:
    """Return how many nodes are desired.

    `unwanted` are the nodes whose pod is being deleted because they no longer match. They count as
    misscheduled until the pod is gone.
    """
    if daemon_set is None:
        return 0
    return daemon_set.desired + max(daemon_set.misscheduled - len(unwanted), 0)


def add_absent(
    counted: int, snapshot: Snapshot, absence: Absence, present: AbstractSet[str]
) -> int:
    """Return how many nodes are desired, the absent ones included.

    `counted` is the DaemonSet's count, `present` are the nodes with a pod, also with one that is
    being deleted if they match. A DaemonSet's count that is out of date may include an absent node.
    It may also be newer than the caches, and no longer include a node with a pod. Or it is older,
    and does not have a pod that is in the cache.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        return counted
    without_pod = 0
    if absence.kept_off or absence.uncounted:
        scheduled = max(daemon_set.scheduled, len(present))
        without_pod = max(daemon_set.desired - scheduled, len(absence.uncounted))
    return max(counted, len(present | absence.kept_off.keys()) + without_pod)


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Pods on nodes that should have none, which the DaemonSet controller counts as misscheduled.

    `leaving` are the nodes that do not match and whose only pod is being deleted. `gone` is how
    many of these pods its count has, and the cache has not: it may be older than the cache.
    """

    leaving: frozenset[str] = frozenset()
    gone: int = 0


def find_misplaced(
    snapshot: Snapshot,
    with_pod: AbstractSet[str],
    matching: AbstractSet[str],
    leaving: frozenset[str],
) -> Misplaced:
    """Return the pods on nodes that should have none.

    `with_pod` are all nodes with a pod that has not ended, `matching` those of them that match. No
    pod is gone while both have as many pods: a taint may be newer than the cache of nodes.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None or not daemon_set.misscheduled:
        return Misplaced(leaving)
    uncached = daemon_set.scheduled + daemon_set.misscheduled - len(with_pod)
    if uncached <= 0:
        return Misplaced(leaving)
    tolerations = snapshot.tolerations
    cached = sum(
        name not in matching or bool(tolerations.untolerated(snapshot.nodes[name].taints))
        for name in with_pod
    )
    return Misplaced(leaving, max(min(daemon_set.misscheduled - cached, uncached), 0))


@dataclass(frozen=True, slots=True)
class CompletedOthers:
    """Completed nodes that are not among those that the DaemonSet's number is known to include.

    `unselected`: the DaemonSet chooses them no more, and its number does not include them.
    `unsettled`: it may or may not include them, because a watch is behind or a pod is about to be
    deleted.
    """

    unselected: frozenset[str] = frozenset()
    unsettled: frozenset[str] = frozenset()


def find_completed_others(
    snapshot: Snapshot,
    ledger: Mapping[str, Evidence],
    records: Mapping[str, NodeRecord],
    known: AbstractSet[str],
    misplaced: Misplaced,
) -> CompletedOthers:
    """Return the completed nodes that stay counted although nothing else counts them.

    `known` are the nodes that are counted already. A task may label its own node, or lift a taint,
    so that the Job chooses it no more; what is done stays counted. A node that the user took out of
    the selection does not count. So none does if the selection is not that of the start of the run.
    With policy Continuous each record has the selection that last chose its node; one that only a
    taint keeps off counts in any case.
    """
    daemon_set, first = snapshot.owned_daemon_set, snapshot.first_report
    others = sorted(ledger.keys() - known)
    if not others or daemon_set is None or first is None:
        return CompletedOthers()
    is_continuous = snapshot.job.spec.is_continuous
    # While the DaemonSet has another selection, it does not say who left the newest one.
    is_placed = is_continuous and _has_newest_selection(snapshot, daemon_set)
    selection = snapshot.job.selection_hash if is_placed else ""
    is_first = selection == first.selection_hash and not daemon_set.selection_changed
    if not is_continuous and first.selection_hash != snapshot.job.selection_hash:
        return CompletedOthers()
    affinity = snapshot.affinity
    with_pod = {pod.node_name for pod in snapshot.pods if not pod.is_terminal}
    # Until the pod is gone, the DaemonSet controller counts its node as misscheduled. A count that
    # is older than the change of the node still has it among the desired nodes. One that is newer
    # than the cache of pods does not have it at all.
    room, gone = daemon_set.misscheduled, misplaced.gone
    unselected: set[str] = set()
    unsettled: set[str] = set()
    for name in others:
        node = snapshot.nodes.get(name)
        if node is None or not ledger[name].completes(node.uid):
            continue
        is_match = affinity.matches(name, node.labels)
        if is_continuous and not (
            is_match or _left_by_itself(records.get(name), selection, is_first=is_first)
        ):
            continue
        if name in misplaced.leaving and room > 0:
            room -= 1
            unselected.add(name)
        elif name in with_pod or (is_match and not snapshot.tolerations.untolerated(node.taints)):
            unsettled.add(name)
        elif gone > 0:
            gone -= 1
            unsettled.add(name)
        else:
            unselected.add(name)
    return CompletedOthers(frozenset(unselected), frozenset(unsettled))


def _left_by_itself(record: NodeRecord | None, selection: str, *, is_first: bool) -> bool:
    """Return whether the node left the selection, and not the selection the node.

    A node that left before its first record has none in it, or has no record: it was chosen by the
    first one. That is so only while the DaemonSet has had no other one. Had another one chosen it
    while the controller was away, the record would have ANOTHER_SELECTION.
    """
    if record is None:
        return is_first
    chosen_by = selection_of(record)
    is_same = chosen_by == selection or (is_first and not chosen_by)
    return has_left(record) or (bool(selection) and is_same)


def find_completed_without_pod(
    snapshot: Snapshot, ledger: Mapping[str, Evidence], known: AbstractSet[str], room: int
) -> frozenset[str]:
    """Return the completed nodes without a pod, at most `room` of them.

    `known` are the nodes that are counted already. It is not known which of the others are desired.
    Of those that the DaemonSet selects, a completed one counts as long as the number of desired
    nodes leaves room. Any other would hide a node that lacks its pod. A node that an administrator
    tainted counts until its pod has ended: the DaemonSet controller counts it as misscheduled.
    """
    daemon_set = snapshot.owned_daemon_set
    if room <= 0 or daemon_set is None:
        return frozenset()
    affinity = snapshot.affinity
    ending = {pod.node_name for pod in snapshot.pods if pod.is_terminating}
    found = {
        name
        for name, evidence in ledger.items()
        if name not in known
        and (node := snapshot.nodes.get(name)) is not None
        and evidence.completes(node.uid)
        and (name in ending or not snapshot.tolerations.untolerated(node.taints))
        and affinity.matches(name, node.labels)
    }
    # A pod that is being deleted on a node that has not completed takes up room: another pod
    # follows it, unless the node no longer matches.
    room -= sum(
        (node := snapshot.nodes.get(name)) is not None and affinity.matches(name, node.labels)
        for name in ending - known - found
    )
    return frozenset(sorted(found)[: max(room, 0)])
