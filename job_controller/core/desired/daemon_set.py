"""The DaemonSet that a Job asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.affinity import REQUIRED
from daemonset_job.api.choices import CompletionMode, RuleAction
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.json_text import json_hash
from job_controller.core.desired.defaults import drop_conflicting_defaults
from job_controller.core.desired.manifest import child, children
from job_controller.core.desired.mounts import host_mounts, host_volumes
from job_controller.core.desired.node_affinity import intersect_terms, needs_linux, node_terms
from job_controller.core.desired.script import (
    script_annotations,
    script_command,
    script_mounts,
    script_volumes,
)
from job_controller.core.desired.strategic_merge import strategic_merge
from job_controller.core.desired.task_container import order_init_containers, place_task_container
from job_controller.core.settings import Settings

# A task that has printed its token only waits, so it can be ended fast. `spec.template` can set
# another time.
TERMINATION_GRACE_SECONDS: Final = 10

# The pause image's own user (kubernetes build/pause/Dockerfile), which every node can run.
_NOBODY: Final = 65535


def build_daemon_set(
    job: Job, *, gated: bool, settings: Settings, selection_changed: bool = False
) -> dict[str, Any]:
    """Return the DaemonSet of a Job as applied; deterministic.

    `gated`: new pods wait at the scheduling gate. `settings.token` is the default completion
    token; the task receives it as COMPLETION_TOKEN. `updateStrategy: OnDelete` leaves running pods
    alone whenever the template changes. `selection_changed`: see `DaemonSet`.
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
                **_revision_annotations(job),
                **({names.ANNOTATION_SELECTION_CHANGED: "true"} if selection_changed else {}),
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


def is_of_earlier_spec(found: DaemonSet, job: Job, settings: Settings) -> bool:
    """Return whether a DaemonSet was applied for an earlier spec of its Job, as far as is known."""
    desired = build_daemon_set(job, gated=found.is_gated, settings=settings)
    of_job = desired["metadata"]["annotations"][names.ANNOTATION_SPEC_HASH]
    return bool(found.annotations.get(names.ANNOTATION_SPEC_HASH, of_job) != of_job)


def child_labels(job: Job) -> dict[str, str]:
    """Return the labels of the DaemonSet and its pods."""
    return {
        names.LABEL_DAEMON_SET: job.daemon_set_name,
        names.LABEL_JOB: names.job_label(job.name),
        names.LABEL_MANAGED: names.LABEL_MANAGED_VALUE,
        names.LABEL_JOB_UID: job.uid,
    }


def desired_pod_spec(job: Job, settings: Settings) -> Mapping[str, Any]:
    """Return the spec of the pods as the Job asks for it, whatever its DaemonSet has."""
    return child(build_pod_template(job, gated=True, settings=settings), "spec")


def build_pod_template(job: Job, *, gated: bool, settings: Settings) -> dict[str, Any]:
    """Return the pod template: the generated one, `spec.template` merged over it.

    Generated fields that the template contradicts are left out (`core.desired.defaults`). Changes
    of the task's container may be in either list (`core.desired.task_container`). The
    labels, the script, the placement of `spec.nodes` and the gate are applied last. So the template
    cannot remove them.
    """
    spec = job.spec
    changes = place_task_container(spec.template, spec.completion.mode)
    generated_spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **_pod_isolation(spec),
        "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
        **_containers(job, settings),
        "volumes": [
            {"name": names.STATE_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}},
            *host_volumes(spec),
            *script_volumes(spec),
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
    metadata = child(template, "metadata")
    template["metadata"] = {
        **metadata,
        "labels": {**child(metadata, "labels"), **child_labels(job), **_exclusive_label(job)},
        "annotations": {
            **_foreign_annotations(metadata),
            **script_annotations(spec),
            **_revision_annotations(job),
        },
    }
    merged = child(template, "spec") or generated["spec"]  # null is none
    pod_spec = order_init_containers(merged, spec.template)
    _set_node_affinity(pod_spec, node_terms(spec.nodes, avoids_windows=needs_linux(spec)))
    if gated:
        ours = {"name": names.START_GATE}
        others = [gate for gate in children(pod_spec, "schedulingGates") if gate != ours]
        pod_spec["schedulingGates"] = [ours, *others]
    template["spec"] = pod_spec
    return template


def _exclusive_label(job: Job) -> dict[str, str]:
    """Return the label by which pods of Jobs with the same key are found."""
    return {names.LABEL_EXCLUSIVE: job.spec.exclusive} if job.spec.exclusive else {}


def _foreign_annotations(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of the template, of a Job stored before a rule without the system's.

    By a revision of its own, a pod would count as one that is about to be replaced.
    """
    found = child(metadata, "annotations")
    return {key: text for key, text in found.items() if not key.startswith(f"{names.GROUP}/")}


def _revision_annotations(job: Job) -> dict[str, str]:
    """Return the annotation of the revision that runs, none for policy Once."""
    return {names.ANNOTATION_REVISION: job.revision} if job.revision else {}


def _pod_isolation(spec: JobSpec) -> dict[str, Any]:
    """Return the fields of the pod that isolate it from its node, or with `hostExec` do not."""
    if spec.host_exec:
        return {"hostPID": True}
    return {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}


def _containers(job: Job, settings: Settings) -> dict[str, Any]:
    """Return `containers`, and `initContainers` for a task whose exit completes its node.

    Pods of a DaemonSet always restart their containers, whatever the exit code. An init container
    is restarted only after a failure, and the container behind it keeps the pod running.
    """
    task = _task_container(job, settings)
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


def _verbatim(value: str) -> str:
    """Return what Kubernetes makes this value of: in variables it replaces `$(NAME)` and `$$`."""
    return value.replace("$", "$$") if "$(" in value or "$$" in value else value


def _task_container(job: Job, settings: Settings) -> dict[str, Any]:
    spec = job.spec
    env: list[dict[str, Any]] = [
        {
            "name": names.ENV_NODE_NAME,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}},
        },
        {"name": names.ENV_STATE, "value": names.STATE_MOUNT_PATH},
        {"name": names.ENV_TOKEN, "value": _verbatim(job.completion_token or settings.token)},
    ]
    if all(rule.action != RuleAction.IGNORE for rule in spec.failure_policy.rules):
        env.append({"name": names.ENV_ATTEMPTS_LIMIT, "value": str(spec.backoff_limit + 1)})
    if spec.completion.mode == CompletionMode.EXIT:
        env.append({"name": names.ENV_MODE, "value": spec.completion.mode})
    if spec.host_exec:
        env.append({"name": names.ENV_HOST_EXEC, "value": "true"})
    mounts: list[dict[str, Any]] = script_mounts(spec)
    mounts.append({"name": names.STATE_VOLUME, "mountPath": names.STATE_MOUNT_PATH})
    mounts += host_mounts(spec)
    container: dict[str, Any] = {
        "name": names.CONTAINER_NAME,
        "image": spec.image or (settings.task_image if spec.has_script else ""),
        "env": env,
        "volumeMounts": mounts,
        # The API server refuses privileged containers whose privileges may not escalate.
        "securityContext": {"privileged": True}
        if spec.host_exec
        else {"allowPrivilegeEscalation": False},
    }
    if command := list(spec.command) or script_command(spec):
        container["command"] = command
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
