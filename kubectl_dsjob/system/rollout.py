"""Whether a Deployment is rolled out, and if not, why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Return whether all pods of the newest template are available, and no others are left.

    As `kubectl rollout status` does (kubectl pkg/polymorphichelpers, DeploymentStatusViewer).
    """
    status = deployment.get("status") or {}
    replicas = deployment["spec"].get("replicas", 1)
    updated = status.get("updatedReplicas") or 0
    return (
        (status.get("observedGeneration") or 0) >= deployment["metadata"]["generation"]
        and updated >= replicas
        and (status.get("replicas") or 0) <= updated
        and (status.get("availableReplicas") or 0) >= updated
    )


def pod_selector(deployment: Mapping[str, Any]) -> str:
    """Return the label selector of a Deployment's pods."""
    labels = deployment["spec"]["selector"].get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


@dataclass(frozen=True, slots=True)
class Cause:
    """Why pods of a Deployment are missing or not ready.

    `is_refused`: the API server lets none be created. `pod` and `container` are those of a process
    that has ended, whose log says more; "" for another cause.
    """

    text: str
    is_refused: bool = False
    pod: str = ""
    container: str = ""


def find_cause(deployment: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Cause | None:
    """Return the first cause that the Deployment or one of its pods names, None for none.

    A quota, a LimitRange or Pod Security refuses pods. There is no pod to look at then, and only
    the Deployment has the words of the API server.
    """
    for each in (deployment.get("status") or {}).get("conditions") or ():
        if each.get("type") == "ReplicaFailure" and each.get("status") == "True":
            refused = f"its pods are refused: {each.get('message') or each.get('reason')}"
            return Cause(refused, is_refused=True)
    # An evicted pod stays for a time, and its ReplicaSet has made another one in its place.
    pods = [each for each in pods if not _has_ended(each)] or pods
    causes = [found for judge in (_of_start, _of_readiness) for found in map(judge, pods) if found]
    return causes[0] if causes else None


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _of_start(pod: Mapping[str, Any]) -> Cause | None:
    """Return why a container of a pod does not run, or why the pod has no node."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            if found := _of_container(pod, container, is_init=kind != "containerStatuses"):
                return found
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Cause(f"a pod is not scheduled: {condition.get('message')}")
    return None


def _of_container(
    pod: Mapping[str, Any], container: Mapping[str, Any], *, is_init: bool
) -> Cause | None:
    state, name = container.get("state") or {}, str(container.get("name"))
    waiting, ended = state.get("waiting"), state.get("terminated")
    last = ended or (container.get("lastState") or {}).get("terminated")
    if not waiting and (not ended or (is_init and not ended.get("exitCode"))):
        return None
    parts = []
    if waiting:
        parts.append(f"{waiting.get('reason')} {waiting.get('message') or ''}".rstrip())
    if last:
        why = f" ({last['reason']})" if last.get("reason") else ""
        parts.append(f"it ended with exit code {last.get('exitCode')}{why}")
    text = f"container {name}: {'; '.join(parts)}"
    if not last:
        return Cause(text)
    return Cause(text, pod=str((pod.get("metadata") or {}).get("name") or ""), container=name)


def _of_readiness(pod: Mapping[str, Any]) -> Cause | None:
    """Return which container of a pod runs and is not ready."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if "running" in (container.get("state") or {}) and not container.get("ready", True):
            return Cause(f"container {container.get('name')} runs and is not ready: see its log")
    return None
