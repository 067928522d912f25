"""The DaemonSet a Job asks for, and whether the live one matches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.affinity import REQUIRED
from daemonset_job.api.choices import CompletionMode, RuleAction
from daemonset_job.api.daemon_set import DaemonSet, pod_spec_of
from daemonset_job.api.job import Job
from daemonset_job.api.json_text import json_hash
from job_controller.core.desired.defaults import drop_conflicting_defaults
from job_controller.core.desired.manifest import child, children, objects
from job_controller.core.desired.node_affinity import intersect_terms, needs_linux, node_terms
from job_controller.core.desired.strategic_merge import strategic_merge
from job_controller.core.desired.task_container import order_init_containers, place_task_container
from job_controller.core.settings import Settings

# A task that has printed its token only waits, so it can be ended fast. `spec.template` can set
# another time.
TERMINATION_GRACE_SECONDS: Final = 10

# The pause image's own user (kubernetes build/pause/Dockerfile), which every node can run.
_NOBODY: Final = 65535
# The fields of a pod spec that, beside nodeSelector, decide on which nodes pods of a DaemonSet run.
_PLACEMENT: Final = ("affinity", "nodeName", "tolerations")
# Fields whose values, or whose maps' values, are of type resource.Quantity.
_QUANTITIES: Final = frozenset({"resources", "overhead", "sizeLimit", "divisor"})
# Suffixes of resource.Quantity (k8s.io/apimachinery/pkg/api/resource/suffix.go).
_QUANTITY_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def build_daemon_set(job: Job, *, gated: bool, settings: Settings) -> dict[str, Any]:
    """Return the DaemonSet of a Job as applied; deterministic.

    `gated`: new pods wait at the scheduling gate. `settings.token` is the default completion
    token; the task receives it as COMPLETION_TOKEN. `updateStrategy: OnDelete` leaves running pods
    alone whenever the template changes.
    """
    labels = child_labels(job)
    spec = {
        # With the UID in the selector, no pod of another Job, and none with only the well-known
        # labels, can be adopted.
        "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "OnDelete"},
        "template": build_pod_template(job, gated=gated, settings=settings),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": job.daemon_set_name,
            "namespace": job.namespace,
            "labels": labels,
            "annotations": {
                names.ANNOTATION_SPEC_HASH: json_hash(spec),
                names.ANNOTATION_NODES_HASH: job.nodes_hash,
            },
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.JOB_KIND,
                    "name": job.name,
                    "uid": job.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def child_labels(job: Job) -> dict[str, str]:
    """Return the labels of the DaemonSet and its pods."""
    return {
        names.LABEL_DAEMON_SET: job.daemon_set_name,
        names.LABEL_JOB: names.job_label(job.name),
        names.LABEL_MANAGED: names.LABEL_MANAGED_VALUE,
        names.LABEL_JOB_UID: job.uid,
    }


def build_pod_template(job: Job, *, gated: bool, settings: Settings) -> dict[str, Any]:
    """Return the pod template: the generated one, `spec.template` merged over it.

    Generated fields that the template contradicts are left out (`core.desired.defaults`). Changes
    of the task's container may be in either list (`core.desired.task_container`). The
    labels, the placement of `spec.nodes` and the gate are applied last, so that the template cannot
    remove them.
    """
    spec = job.spec
    changes = place_task_container(spec.template, spec.completion.mode)
    generated_spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
        **_containers(job, settings),
        "volumes": [
            {"name": names.STATE_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}},
            *(
                [{"name": names.TARGET_VOLUME, "hostPath": {"path": spec.mount_path}}]
                if spec.mount_path
                else []
            ),
        ],
    }
    generated = {
        "metadata": {
            "labels": child_labels(job),
            "annotations": {names.ANNOTATION_DEFAULT_CONTAINER: names.CONTAINER_NAME},
        },
        "spec": drop_conflicting_defaults(generated_spec, child(changes, "spec")),
    }
    template = strategic_merge(generated, changes)
    labels = {**child(template, "metadata", "labels"), **child_labels(job)}
    template["metadata"] = {**child(template, "metadata"), "labels": labels}
    merged = child(template, "spec") or generated["spec"]  # null is none
    pod_spec = order_init_containers(merged, spec.template)
    _set_node_affinity(pod_spec, node_terms(spec.nodes, avoids_windows=needs_linux(spec)))
    if gated:
        ours = {"name": names.START_GATE}
        others = [gate for gate in children(pod_spec, "schedulingGates") if gate != ours]
        pod_spec["schedulingGates"] = [ours, *others]
    template["spec"] = pod_spec
    return template


def _containers(job: Job, settings: Settings) -> dict[str, Any]:
    """Return `containers`, and `initContainers` for a task whose exit completes its node.

    Pods of a DaemonSet always restart their containers, whatever the exit code. An init container
    is restarted only after a failure, and the container behind it keeps the pod running.
    """
    task = _task_container(job, settings.token)
    if job.spec.completion.mode != CompletionMode.EXIT:
        return {"containers": [task]}
    pause = {
        "name": names.PAUSE_CONTAINER_NAME,
        "image": settings.pause_image,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "readOnlyRootFilesystem": True,
        },
    }
    return {"initContainers": [task], "containers": [pause]}


def _task_container(job: Job, token: str) -> dict[str, Any]:
    spec = job.spec
    env: list[dict[str, Any]] = [
        {
            "name": names.ENV_NODE_NAME,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}},
        },
        {"name": names.ENV_STATE, "value": names.STATE_MOUNT_PATH},
        {"name": names.ENV_TOKEN, "value": job.completion_token or token},
    ]
    if all(rule.action != RuleAction.IGNORE for rule in spec.failure_policy.rules):
        env.append({"name": names.ENV_ATTEMPTS_LIMIT, "value": str(spec.backoff_limit + 1)})
    mounts = [{"name": names.STATE_VOLUME, "mountPath": names.STATE_MOUNT_PATH}]
    if spec.mount_path:
        mounts.append({"name": names.TARGET_VOLUME, "mountPath": names.TARGET_MOUNT_PATH})
    container: dict[str, Any] = {
        "name": names.CONTAINER_NAME,
        "image": spec.image,
        "env": env,
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if spec.command:
        container["command"] = list(spec.command)
    if spec.args:
        container["args"] = list(spec.args)
    return container


def _set_node_affinity(pod_spec: dict[str, Any], terms: Sequence[Mapping[str, Any]]) -> None:
    if not terms:
        return
    affinity = pod_spec.get("affinity") or {}
    if not isinstance(affinity, Mapping):
        return  # not an affinity at all: the API server refuses the DaemonSet and says why
    node_affinity = affinity.get("nodeAffinity") or {}
    if not isinstance(node_affinity, Mapping):
        return
    required = node_affinity.get(REQUIRED) or {}
    if not isinstance(required, Mapping):
        return
    affinity, node_affinity = dict(affinity), dict(node_affinity)
    node_affinity[REQUIRED] = {
        "nodeSelectorTerms": intersect_terms(terms, required.get("nodeSelectorTerms") or ())
    }
    affinity["nodeAffinity"] = node_affinity
    pod_spec["affinity"] = affinity


def is_up_to_date(live: DaemonSet, desired: Mapping[str, Any]) -> bool:
    """Return whether the live DaemonSet is exactly what `desired` says.

    The hash shows whether this spec was the last one applied, so that removed fields count too.
    Changes by other clients show in the spec itself. Placement and gates have to be equal. All
    other fields only have to be contained, because the server adds defaults. Fields that other
    clients added show in managedFields (`live.alteration`).
    """
    annotations = desired["metadata"]["annotations"]
    return (
        not live.alteration
        and all(live.annotations.get(key) == value for key, value in annotations.items())
        and _gates(live.spec) == _gates(desired["spec"])
        and has_same_placement(live, desired)
        and _contains(live.labels, desired["metadata"]["labels"])
        and _contains(live.spec, desired["spec"])
    )


def has_same_placement(live: DaemonSet, desired: Mapping[str, Any]) -> bool:
    """Return whether the live DaemonSet puts pods on exactly the nodes that `desired` does."""
    a, b = live.pod_spec, pod_spec_of(desired["spec"])
    # An empty value counts: labels of roles have it.
    if (a.get("nodeSelector") or {}) != (b.get("nodeSelector") or {}):
        return False
    return all(_pruned(a.get(key)) == _pruned(b.get(key)) for key in _PLACEMENT)


def _pruned(value: Any) -> Any:
    """Return a value without null, "", empty maps and lists, which the server leaves out."""
    if isinstance(value, dict):
        found = {key: _pruned(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner is not None} or None
    if isinstance(value, list):
        return [_pruned(inner) for inner in value] or None
    return None if value == "" else value


def _gates(spec: Mapping[str, Any]) -> set[str]:
    return {str(gate.get("name") or "") for gate in objects(pod_spec_of(spec), "schedulingGates")}


def _contains(live: Any, desired: Any, *, in_quantities: bool = False) -> bool:
    """Return whether a value has all that is desired; both are JSON, whose objects are dicts."""
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            # The server leaves empty objects and lists out.
            return live is None and not desired
        return all(
            _contains(live.get(key), value, in_quantities=in_quantities or key in _QUANTITIES)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        if not isinstance(live, list):
            return live is None and not desired
        return len(live) == len(desired) and all(
            _contains(a, b, in_quantities=in_quantities) for a, b in zip(live, desired, strict=True)
        )
    if live is None:
        # "", 0 and false are left out of the stored object as well.
        return not desired
    return bool(live == desired) or (in_quantities and _same_quantity(live, desired))


def _same_quantity(live: Any, desired: Any) -> bool:
    """Return whether two spellings ("1000m", 1) are one resource.Quantity."""
    a, b = _quantity(live), _quantity(desired)
    return a is not None and a == b


def _quantity(value: Any) -> Decimal | None:
    text = str(value)
    digits = text.rstrip("numkKMGTPEi")
    factor = _QUANTITY_SUFFIXES.get(text[len(digits) :]) if digits != text else Decimal(1)
    try:
        return Decimal(digits) * factor if factor is not None else None
    except InvalidOperation:
        return None
