"""Why the task of a pod does not run, by the pod's own status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from job_controller.core.text.sanitize import single_line

# Why a task container that should start does not (kubernetes pkg/kubelet/images/types.go,
# pkg/kubelet/container/sync_result.go and pkg/kubelet/kuberuntime/kuberuntime_container.go). Each
# needs a person; none heals by waiting alone.
IMAGE_REASONS: Final = frozenset(
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
START_REASONS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PostStartHookError",
    }
)
# These cannot change while the pod exists, so they fail without a timeout.
PERMANENT_REASONS: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})

CRASH_LOOP: Final = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class Cause:
    """What keeps a task from running, as reason and message of its node's record."""

    reason: NodeReason
    message: str = ""


def has_started(pod: Pod) -> bool:
    """Return whether the task in the pod was started at least once."""
    container = pod.container
    if container is None:
        return False
    return (
        container.state in {"running", "terminated"}
        or container.restart_count > 0
        or container.last_exit_code is not None
    )


def is_start_pending(pod: Pod) -> bool:
    """Return whether the task is to start, for the first time or again, and does not run.

    Not while the kubelet backs off from starting it again.
    """
    container = pod.container
    if container is None or not has_started(pod):
        return True
    return container.state == "waiting" and container.reason != CRASH_LOOP


def is_backing_off(pod: Pod) -> bool:
    """Return whether the kubelet waits before it starts the task again."""
    container = pod.container
    return container is not None and container.state == "waiting" and container.reason == CRASH_LOOP


def waits_to_be_tried_again(pod: Pod) -> bool:
    """Return whether the kubelet only tries again, ever more slowly, and nothing of the task runs.

    It backs off from starting the task or an init container, from pulling an image, or from
    creating a container.
    """
    if pod.is_disrupted or pod.phase == "Failed":
        return False
    return is_backing_off(pod) or (_creation_cause(pod) or _init_cause(pod)) is not None


def find_cause(pod: Pod) -> Cause | None:
    """Return what keeps the task from running, None if the pod does not say."""
    if pod.is_gated:
        return Cause(NodeReason.SCHEDULING_GATED)
    if has_started(pod):
        return None if pod.is_disrupted else _creation_cause(pod) or _init_cause(pod)
    return _creation_cause(pod) or _pod_cause(pod)


def find_disruption(pod: Pod) -> Cause | None:
    """Return that the cluster ends the pod for reasons that are not the task's, None if not."""
    if pod.is_disrupted or (pod.is_rejected and has_started(pod)):
        cause = pod.disruption_reason or pod.reason
        words = f"the pod was disrupted ({cause}); a new pod follows"
        return Cause(NodeReason.DISRUPTED, single_line(words))
    if pod.sandbox_ended:
        return Cause(NodeReason.DISRUPTED, "the sandbox of the pod has ended with the task")
    return None


def _creation_cause(pod: Pod) -> Cause | None:
    """Return what keeps the task's container from being created, or created again."""
    container = pod.container
    if container is None or container.state != "waiting":
        return None
    if container.reason in IMAGE_REASONS:
        return Cause(
            NodeReason.IMAGE_PULL_FAILED, single_line(container.message or container.reason)
        )
    if container.reason in START_REASONS:
        return Cause(
            NodeReason.CONTAINER_START_FAILED, single_line(container.message or container.reason)
        )
    return None


def _pod_cause(pod: Pod) -> Cause | None:
    """Return what keeps the pod as a whole from running."""
    if disruption := find_disruption(pod):
        return disruption
    if pod.phase == "Failed":
        detail = f": {pod.message}" if pod.message else ""
        return Cause(
            NodeReason.POD_REJECTED,
            single_line(f"the kubelet rejected the pod: {pod.reason}{detail}"),
        )
    if blocked := _init_cause(pod):
        return blocked
    if pod.unschedulable_message:
        return Cause(NodeReason.UNSCHEDULABLE, single_line(pod.unschedulable_message))
    if pod.gates:
        gates = single_line(", ".join(sorted(pod.gates)), 200)
        words = f"the pod has a scheduling gate of another system: {gates}"
        return Cause(NodeReason.FOREIGN_SCHEDULING_GATE, words)
    return None


def _init_cause(pod: Pod) -> Cause | None:
    """Return which init container fails, None while another one is at work."""
    if not pod.init_failure or pod.has_init_running or not is_start_pending(pod):
        return None
    return Cause(NodeReason.CONTAINER_START_FAILED, single_line(pod.init_failure))
