"""The last status of a pod: rejected, ended because of its node, deleted, or without a node."""

from typing import Any

from tests.fakekube.conditions import condition, with_condition
from tests.fakekube.containers import KILLED_EXIT_CODE, is_success, terminated
from tests.fakekube.daemon_sets import Raw, is_terminal
from tests.fakekube.pod_status import phase_of

# Reasons of pods that their kubelet ends: pkg/kubelet/eviction/helpers.go, and
# pkg/kubelet/nodeshutdown/nodeshutdown_manager.go.
EVICTED = "Evicted"
SHUT_DOWN = "Terminated"
# TerminatePod in pkg/kubelet/status/status_manager.go.
_LOST = terminated(
    KILLED_EXIT_CODE,
    reason="ContainerStatusUnknown",
    message="The container could not be located when the pod was terminated",
)
# convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go, of a pod that goes on.
UNKNOWN_END = terminated(
    KILLED_EXIT_CODE,
    reason="ContainerStatusUnknown",
    message="The container could not be located when the pod was deleted.  The container used to "
    "be Running",
)


def rejected(reason: str, message: str, at: str) -> Raw:
    """Return the status of a pod that its kubelet does not take: nothing of it was started.

    rejectPod in pkg/kubelet/kubelet.go.
    """
    return {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": at,
    }


def forgotten(status: Raw) -> dict[str, Any]:
    """Return the status of a running pod that a restarted kubelet does not admit.

    Its phase stays until all containers have ended. Seen on Kubernetes 1.34.4 with a smaller
    `maxPods`: no container, no condition.
    """
    return {"phase": status.get("phase", "Pending")}


def without_sandbox(status: Raw) -> dict[str, Any]:
    """Return the status of a pod whose containers and sandbox have ended.

    GeneratePodReadyToStartContainersCondition in pkg/kubelet/status/generate.go.
    """
    ended = condition("PodReadyToStartContainers", "False")
    return {**status, "conditions": with_condition(status.get("conditions"), ended)}


def ended_by_kubelet(status: Raw, reason: str) -> dict[str, Any]:
    """Return the status of a pod that its kubelet ends: evicted, or before its machine shuts down.

    `status` is that of the pod, with its containers as they are. evictPod in
    pkg/kubelet/eviction/eviction_manager.go, killPods in nodeshutdown_manager.go.
    """
    ends = disrupted(status, "TerminationByKubelet")
    return {**ends, "phase": "Failed", "reason": reason}


def disrupted(status: Raw, reason: str) -> dict[str, Any]:
    """Return a pod's status with the condition DisruptionTarget, as before each disruption.

    k8s.io/api core/v1 has the reasons: EvictionByEvictionAPI, PreemptionByScheduler,
    DeletionByTaintManager, DeletionByPodGC, TerminationByKubelet.
    """
    target = condition("DisruptionTarget", "True", reason)
    return {**status, "conditions": with_condition(status.get("conditions"), target)}


def collected(pod: Raw) -> Raw:
    """Return the status that a raw pod without a node gets before its object is removed.

    markFailedAndDeletePodWithCondition in pkg/controller/podgc/gc_controller.go.
    """
    status = pod.get("status") or {}
    if is_terminal(pod):
        return status
    return {**disrupted(status, "DeletionByPodGC"), "phase": "Failed"}


def final_status(pod: Raw, status: Raw) -> dict[str, Any]:
    """Return the status of a deleted pod whose containers have ended; its phase is a final one.

    Since Kubernetes 1.27 (KEP-3329). `status` has its containers as their kubelet last knew them. A
    container that it has not seen end counts as failed, and so does one that never started behind
    init containers that have all succeeded. TerminatePod in pkg/kubelet/status/status_manager.go.
    """
    phase = phase_of(pod, status, is_terminal=True)
    inits, mains = status.get("initContainerStatuses"), status.get("containerStatuses") or []
    ended = dict(status)
    if _is_initialized(pod, inits or [], mains):
        ended["containerStatuses"] = [_ended(row) for row in mains]
    if inits:
        begun = max((at for at, row in enumerate(inits) if _has_begun(row)), default=0)
        ended["initContainerStatuses"] = [
            _ended(row) if at <= begun else row for at, row in enumerate(inits)
        ]
    ended["phase"] = phase if phase in {"Succeeded", "Failed"} else "Failed"
    return ended


def _ended(row: Raw) -> Raw:
    if "terminated" in row["state"]:
        return row
    return {**row, "state": _LOST, "ready": False}


def _has_begun(row: Raw) -> bool:
    return "waiting" not in row["state"] or "terminated" in (row.get("lastState") or {})


def _is_initialized(pod: Raw, inits: list[Raw], mains: list[Raw]) -> bool:
    """Return whether the main containers were to start (hasPodInitialized)."""
    if not pod["spec"].get("initContainers") or any(_has_begun(row) for row in mains):
        return True
    last = inits[-1] if inits else {}
    return any(is_success(last.get(key) or {}) for key in ("state", "lastState"))
