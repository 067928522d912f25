"""Which pods of a run are deleted so that its rollback can begin.

Tasks at work finish first. Two kinds of pods would be waited for in vain. One is a later pod of a
completed node: its work is done already, and nothing records its end. The other is a pod whose task
has never started and cannot start. Their successors wait at the gate.
"""

from __future__ import annotations

from typing import Final

from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import ConditionType, NodeState
from job_controller.core.state.causes import has_started
from job_controller.core.state.node_counts import DesiredNode, NodeCounts
from job_controller.core.state.snapshot import Snapshot

# None of them heals by waiting alone, see `state/causes`.
_CANNOT_START: Final = frozenset(
    {
        NodeReason.IMAGE_PULL_FAILED,
        NodeReason.CONTAINER_START_FAILED,
        NodeReason.TASK_NOT_STARTED,
        NodeReason.NOT_SCHEDULED,
        NodeReason.UNSCHEDULABLE,
        NodeReason.FOREIGN_SCHEDULING_GATE,
    }
)


def find_stopped_pods(snapshot: Snapshot, counts: NodeCounts) -> list[tuple[Pod, str]]:
    """Return the pods that the rollback does not wait for, each with why it is deleted.

    There are none before the status says that the run is rolled back, nor after the rollback.
    """
    job = snapshot.job
    if job.status.rollback is None or job.is_true(ConditionType.ROLLED_BACK):
        return []
    if not counts.new_pods_are_gated:
        return []
    found = ((node.pod, _why_stopped(node)) for _, node in sorted(counts.nodes.items()))
    return [(pod, why) for pod, why in found if why]


def _why_stopped(node: DesiredNode) -> str:
    """Return why the pod of a node is deleted, "" if it stays."""
    pod = node.pod
    if pod.is_gated or pod.is_terminal:
        return ""
    if node.state == NodeState.COMPLETED and node.record.pod_uid != pod.uid:
        return "its node is completed, and the run is rolled back"
    if node.record.reason in _CANNOT_START and not has_started(pod):
        return "its task cannot start, and the run is rolled back"
    return ""
