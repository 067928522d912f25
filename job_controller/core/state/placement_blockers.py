"""Why pods are missing: no node matches, pods are refused, or nodes cannot be reached."""

from __future__ import annotations

from daemonset_job.api.fold_names import fold
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.states import ConditionType
from job_controller.core.desired.selection_text import describe_selection
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.skipped_nodes import describe_skipped, is_kept_off
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line


def find_placement_blocker(snapshot: Snapshot, counts: NodeCounts) -> Blocker | None:
    """Return why desired pods are missing, None when none is, or the reason is a node's own."""
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        return None
    if not daemon_set.is_observed:
        words = "it has not observed the newest spec"
        return _stalled_blocker(daemon_set.name, words) if counts.is_stalled else None
    if counts.desired == 0:
        return find_overlooked_blocker(snapshot, counts) or Blocker(
            ProgressingReason.NO_MATCHING_NODES,
            _no_matching_nodes_words(snapshot, counts),
        )
    if refused := _refused_pods_blocker(snapshot, counts):
        return refused
    stuck_nodes = _nodes_with_stuck_pod(snapshot, counts)
    if stuck_nodes and _lacks_pods(counts, stuck_nodes):
        return Blocker(
            ProgressingReason.NODES_UNREACHABLE,
            f"{len(stuck_nodes)} of {counts.desired} nodes cannot be reached "
            f"({fold(stuck_nodes, limit=200)}): "
            "their pods cannot finish terminating, and new ones are created only after that",
        )
    return None


def find_overlooked_blocker(snapshot: Snapshot, counts: NodeCounts) -> Blocker | None:
    """Return which nodes the DaemonSet controller has not counted for a minute, None for none.

    None also in a step of a rollout: it says itself what it waits for.
    """
    found, job = counts.overlooked, snapshot.job
    progress = job.status.rollout if job.spec.rollout is not None else None
    if not found or (progress is not None and not progress.is_in_rest):
        return None
    match, them = ("matches", "it") if len(found) == 1 else ("match", "them")
    return Blocker(
        ProgressingReason.DAEMON_SET_STALLED,
        f"{fold(found, limit=200)} {match} the Job, and for over a minute the DaemonSet controller "
        f"has neither counted {them} nor created a pod. See whether namespace "
        f"{job.namespace} has a node selector (OpenShift), and whether "
        "kube-controller-manager is running",
    )


def _no_matching_nodes_words(snapshot: Snapshot, counts: NodeCounts) -> str:
    if any(is_kept_off(cause) for cause in counts.skipped.values()):
        return (
            f"every matching node is skipped: {describe_skipped(counts.skipped)}; tolerate the "
            "taint in spec.template, or wait for another matching node"
        )
    selection = describe_selection(snapshot.job.spec)
    return f"no node matches {selection}; the Job waits for a matching node"


def count_unexplained(snapshot: Snapshot, counts: NodeCounts) -> int:
    """Return how many desired pods are missing without a known reason.

    0 while the DaemonSet controller has not observed the newest spec: it may be about to create
    them. A FailedCreate event outlives its cause. So it must not be blamed for pods that are
    missing for another known reason.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None or not daemon_set.is_observed or counts.missing == 0:
        return 0
    stuck_nodes = _nodes_with_stuck_pod(snapshot, counts)
    if not _lacks_pods(counts, stuck_nodes):
        return 0
    return max(
        counts.missing
        - len(set(stuck_nodes) - counts.completed_without_pod - counts.absent.keys()),
        0,
    )


def _lacks_pods(counts: NodeCounts, stuck_nodes: list[str]) -> bool:
    known = len(counts.nodes) + len(counts.absent.keys() - set(stuck_nodes))
    return known < counts.desired - len(counts.completed_unselected)


def _refused_pods_blocker(snapshot: Snapshot, counts: NodeCounts) -> Blocker | None:
    """Return why pods cannot be created; after a restart the recorded reason at first."""
    count = count_unexplained(snapshot, counts)
    if count == 0:
        return None
    if snapshot.failed_create_message:
        words = single_line(snapshot.failed_create_message, REFUSAL_LIMIT)
        return Blocker(
            ProgressingReason.FAILED_CREATE,
            f"{count} of {counts.desired} pods cannot be created: {words}",
        )
    recorded = snapshot.job.condition(ConditionType.PROGRESSING)
    if (
        snapshot.failed_create_message is None
        and recorded is not None
        and recorded.reason == ProgressingReason.FAILED_CREATE
    ):
        return Blocker(ProgressingReason.FAILED_CREATE, recorded.message)
    # Events are listed before this is said: "" says that there is none.
    if counts.is_stalled and snapshot.failed_create_message == "":
        words = f"{count} of {counts.desired} pods are missing"
        return _stalled_blocker(snapshot.job.daemon_set_name, words)
    return None


def _stalled_blocker(name: str, words: str) -> Blocker:
    return Blocker(
        ProgressingReason.DAEMON_SET_STALLED,
        f"the DaemonSet controller has not acted on DaemonSet {name} for over a minute: {words}, "
        "and no event says why; check that kube-controller-manager is running",
    )


def _nodes_with_stuck_pod(snapshot: Snapshot, counts: NodeCounts) -> list[str]:
    """Return the nodes that are not Ready and whose only pod is being deleted.

    Completed ones are included. Desired nodes are known by their pods, so the run waits for the
    successor of such a pod. A pod that has ended keeps no successor off.
    """
    return sorted(
        {
            pod.node_name
            for pod in snapshot.pods
            if pod.is_terminating
            and not pod.is_terminal
            and pod.node_name not in counts.nodes
            and (node := snapshot.nodes.get(pod.node_name)) is not None
            and not node.ready
        }
    )
