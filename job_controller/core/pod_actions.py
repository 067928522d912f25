"""What to do with the pods of a Job: which are deleted, and which may be scheduled."""

from __future__ import annotations

from typing import Final

from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from job_controller.core.owned_jobs.stopped_pods import find_stopped_pods
from job_controller.core.plan import Action, DeletePods, RefusedWrite, RemoveSchedulingGates
from job_controller.core.rollout.kept_nodes import find_unreturned
from job_controller.core.rollout.rollout_state import RolloutState
from job_controller.core.state.node_counts import DesiredNode, NodeCounts
from job_controller.core.state.snapshot import Snapshot

_SURPLUS: Final = "its node does not have to run it"


def pod_actions(
    snapshot: Snapshot, counts: NodeCounts, rollout: RolloutState, ready: tuple[Pod, ...]
) -> list[Action]:
    """Return the deletions of pods, and the removal of the gates of those that are ready.

    Some pods are deleted later, see `last_deletions`.
    """
    unreturned = find_unreturned(snapshot, counts)
    actions: list[Action] = []
    over = [(pod, _SURPLUS) for pod in counts.surplus_pods if pod.uid not in unreturned]
    over += [
        (node.pod, why)
        for _, node in sorted(counts.nodes.items())
        if (why := _why_deleted(node, counts))
    ]
    over += [(pod, "its node is unreachable and set aside") for pod in rollout.dead_pods]
    known = {pod.uid for pod, _ in over}
    # Those that a rollback does not wait for.
    stopped = find_stopped_pods(snapshot, counts)
    over += [(pod, why) for pod, why in stopped if pod.uid not in known]
    if over:
        pods = tuple(pod for pod, _ in over)
        actions.append(DeletePods(pods, {pod.uid: why for pod, why in over}))
    if ready:
        uids = {pod.node_name: counts.nodes[pod.node_name].uid for pod in ready}
        actions.append(RemoveSchedulingGates(ready, uids))
    return actions


def last_deletions(snapshot: Snapshot, counts: NodeCounts) -> list[Action]:
    """Return the deletions of pods that come after the reports.

    Only such a pod shows that its node has not taken its turn, until that is on record. So it stays
    while the API server refuses the report.
    """
    if RefusedWrite.REPORT in snapshot.refusals:
        return []
    unreturned = find_unreturned(snapshot, counts)
    pods = tuple(pod for pod in counts.surplus_pods if pod.uid in unreturned)
    return [DeletePods(pods, {pod.uid: _SURPLUS for pod in pods})] if pods else []


def _why_deleted(node: DesiredNode, counts: NodeCounts) -> str:
    """Return why the pod of a node is deleted, "" if it stays."""
    if node.replace_pod:
        return "its node is tried again"
    if not counts.new_pods_are_gated:
        # The next pod of the node would do its work again.
        return ""
    if node.repeats_task:
        return "its node is completed, and the kubelet starts the task again"
    if node.delete_pod and node.state == NodeState.COMPLETED:
        return "its node is completed, and completion.release is true"
    if node.delete_pod:
        return "its node has failed, and failurePolicy.pods is not Keep"
    return ""
