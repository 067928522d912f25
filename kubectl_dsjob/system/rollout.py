"""Whether a Deployment is rolled out, and if not, why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def waiting_reason(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return the first reason why a container waits, or a pod is not scheduled; else ""."""
    for pod in pods:
        status = pod.get("status") or {}
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                reason, message = waiting.get("reason"), waiting.get("message") or ""
                return f"container {container.get('name')}: {reason} {message}".rstrip()
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"a pod is not scheduled: {condition.get('message')}"
    return ""
