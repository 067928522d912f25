"""What to do with the pods of a Job: which are deleted, and which may be scheduled."""

from __future__ import annotations

from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from job_controller.core.plan import Action, DeletePods, RemoveSchedulingGates
from job_controller.core.rollout.rollout_state import RolloutState
from job_controller.core.state.node_counts import DesiredNode, NodeCounts


def pod_actions(
    counts: NodeCounts,
    rollout: RolloutState,
    ready: tuple[Pod, ...],
    stopped: list[tuple[Pod, str]],
) -> list[Action]:
    """Return the deletions of pods, and the removal of the gates of those that are ready.

    `stopped` are pods that a rollback does not wait for, each with why it is deleted.
    """
    actions: list[Action] = []
    over = [(pod, "its node does not have to run it") for pod in counts.surplus_pods]
    over += [
        (node.pod, why)
        for _, node in sorted(counts.nodes.items())
        if (why := _why_deleted(node, counts))
    ]
    over += [(pod, "its node is unreachable and set aside") for pod in rollout.dead_pods]
    known = {pod.uid for pod, _ in over}
    over += [(pod, why) for pod, why in stopped if pod.uid not in known]
    if over:
        pods = tuple(pod for pod, _ in over)
        actions.append(DeletePods(pods, {pod.uid: why for pod, why in over}))
    if ready:
        uids = {pod.node_name: counts.nodes[pod.node_name].uid for pod in ready}
        actions.append(RemoveSchedulingGates(ready, uids))
    return actions


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
