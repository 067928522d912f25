"""What the DaemonSet controller writes: the pods of a DaemonSet, and its status."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tests.fakekube.daemon_sets import (
    REQUIRED,
    Raw,
    is_deleting,
    is_terminal,
    node_of,
    placement,
    sync,
)
from tests.fakekube.selectors import carries

AnyRaw = TypeVar("AnyRaw", bound=Raw)

_READY = {"type": "Ready", "status": "True"}


def owned_pods(daemon_set: Raw, pods: Iterable[AnyRaw]) -> list[AnyRaw]:
    """Return the raw pods that a raw DaemonSet controls, by UID."""
    own = daemon_set["metadata"]["uid"]
    return [pod for pod in pods if controller_uid(pod) == own]


def may_adopt(daemon_set: Raw, pod: Raw) -> bool:
    """Return whether a raw DaemonSet takes a raw pod for its own that no object controls.

    ClaimPods in pkg/controller/controller_ref_manager.go.
    """
    meta, selector = pod["metadata"], daemon_set["spec"]["selector"]["matchLabels"]
    is_free = not controller_uid(pod) and meta["namespace"] == daemon_set["metadata"]["namespace"]
    is_ending = is_deleting(pod) or is_deleting(daemon_set)
    return is_free and not is_ending and carries(pod, selector)


def owner_of_pods(daemon_set: Raw) -> dict[str, Any]:
    """Return the owner reference of the pods of a raw DaemonSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": daemon_set["metadata"]["name"],
        "uid": daemon_set["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_uid(raw: Raw) -> str:
    """Return the UID of the controlling owner, "" when none controls the object."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def build_pod(daemon_set: Raw, node_name: str) -> dict[str, Any]:
    """Return the raw pod that the DaemonSet controller creates for a node.

    `CreatePodTemplate` and `ReplaceDaemonSetPodNodeNameNodeAffinity` in daemonset_util.go: required
    node affinity names the node, whatever the template asked for. The tolerations that the
    controller adds are left out: nothing here reads them from the pod.
    """
    meta, template = daemon_set["metadata"], daemon_set["spec"]["template"]
    rule = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    node_affinity = {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [rule]}]}}
    affinity = {**(template["spec"].get("affinity") or {}), "nodeAffinity": node_affinity}
    template_meta = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{meta['name']}-",
            "labels": dict(template_meta.get("labels") or {}),
            "annotations": dict(template_meta.get("annotations") or {}),
            "ownerReferences": [owner_of_pods(daemon_set)],
        },
        "spec": {**template["spec"], "affinity": affinity},
    }


def build_status(daemon_set: Raw, nodes: Sequence[Raw], pods: Sequence[Raw]) -> dict[str, int]:
    """Return the counters that the controller writes after a sync that began with these pods.

    `updateDaemonSetStatus`: pods that the sync itself creates are counted by the next one.
    """
    return {
        "observedGeneration": daemon_set["metadata"]["generation"],
        **sync(daemon_set, nodes, pods).counts,
        "numberReady": _count_ready(daemon_set["spec"]["template"], nodes, pods),
    }


def has_status(daemon_set: Raw, status: Mapping[str, int]) -> bool:
    """Return whether the raw DaemonSet has this status."""
    current = daemon_set.get("status") or {}
    return all(current.get(key, 0) == value for key, value in status.items())


def _count_ready(template: Raw, nodes: Sequence[Raw], pods: Sequence[Raw]) -> int:
    """Return how many nodes that should run a pod have a Ready one; the oldest pod counts."""
    oldest: dict[str, Raw] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        if not (is_terminal(pod) and is_deleting(pod)):
            oldest.setdefault(node_of(pod), pod)
    return sum(
        placement(template, node).should_run and _is_ready(oldest.get(node["metadata"]["name"]))
        for node in nodes
    )


def _is_ready(pod: Raw | None) -> bool:
    conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
    return any(_READY.items() <= condition.items() for condition in conditions)
