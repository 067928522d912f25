"""The Job that pulls the images of another Job on all its nodes, and runs nothing of them.

A container of each image runs `true` of a static busybox. That is in the task image, and an init
container puts it into a volume. So it works in an image without any program, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode, FailureAction
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import NodeSelection
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.desired.manifest import child, objects
from job_controller.core.desired.pod_images import IMAGES_LIMIT, PodImage, find_images
from job_controller.core.settings import Settings

# Where images/task/Dockerfile has it: the package busybox-static of Debian.
_BUSYBOX: Final = "/bin/busybox"
_VOLUME: Final = "image-pull"
_FOLDER: Final = "/daemonset-job-image-pull"
_PROGRAM: Final = f"{_FOLDER}/busybox"
# What of the pod decides where it runs, and with which credentials and runtime its images are
# pulled.
_COPIED: Final = (
    "affinity",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "serviceAccountName",
    "tolerations",
)
# A user that every node can run. Nothing here needs another one.
_NOBODY: Final = 65535


def image_pull_spec(job: Job, settings: Settings) -> dict[str, Any]:
    """Return the spec of the Job that pulls the images of `job` on all nodes that it selects."""
    pod = child(build_pod_template(job, gated=False, settings=settings), "spec")
    policy = job.spec.failure_policy
    limits = {
        "maxUnreachableNodes": policy.max_unreachable_nodes,
        "unreachableSeconds": policy.unreachable_seconds,
    }
    return {
        "image": _find_task(pod).get("image") or settings.task_image,
        "command": [_PROGRAM, "true"],
        "completion": {"mode": CompletionMode.EXIT.value},
        "nodes": nodes_spec(job.spec.nodes),
        "failurePolicy": {
            "action": FailureAction.FAIL_FAST.value,
            "maxFailedNodes": policy.max_failed_nodes,
            **{key: value for key, value in limits.items() if value is not None},
        },
        **_unreachable(job),
        "template": {"spec": _pod(job, pod, settings)},
    }


def nodes_spec(nodes: NodeSelection) -> dict[str, Any]:
    """Return a selection of nodes in its raw form."""
    raw: dict[str, Any] = {
        "selector": nodes.selector,
        "include": list(nodes.include),
        "exclude": list(nodes.exclude),
    }
    return {key: value for key, value in raw.items() if value}


def _unreachable(job: Job) -> dict[str, Any]:
    seconds = job.spec.node_unreachable_seconds
    return {} if seconds is None else {"nodeUnreachableSeconds": seconds}


def _pod(job: Job, pod: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the pod that pulls the images of `pod`, which is a pod of the Job.

    The last container is the one whose exit completes the node, so it is that of the task's image.
    """
    theirs, task = child(job.spec.template, "spec"), _find_task(pod)
    resources = child(task, "resources")
    copies = {
        "name": "copy-busybox",
        "image": settings.task_image,
        "command": ["cp", _BUSYBOX, _PROGRAM],
        "volumeMounts": [{"name": _VOLUME, "mountPath": _FOLDER}],
        **_confined(resources),
    }
    images = find_images(pod)[:IMAGES_LIMIT]
    last = next((image for image in images if image.name == task.get("image")), PodImage(""))
    pulls = [
        {
            "name": f"image-{number}",
            "image": image.name,
            "command": [_PROGRAM, "true"],
            **_pull(image, resources),
        }
        for number, image in enumerate((each for each in images if each != last), 1)
    ]
    ends = {"name": names.CONTAINER_NAME, **_pull(last, resources)}
    return {
        **{key: theirs[key] for key in _COPIED if theirs.get(key) is not None},
        "volumes": [{"name": _VOLUME, "emptyDir": {"sizeLimit": "16Mi"}}],
        "initContainers": [copies, *pulls, ends],
    }


def _find_task(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (*objects(pod, "initContainers"), *objects(pod, "containers"))
    return next((each for each in found if each.get("name") == names.CONTAINER_NAME), {})


def _pull(image: PodImage, resources: Mapping[str, Any]) -> dict[str, Any]:
    policy = {"imagePullPolicy": image.pull_policy} if image.pull_policy else {}
    mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
    return {**policy, "volumeMounts": [mount], **_confined(resources)}


def _confined(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every container has: no privilege, and what the task asks for of its node.

    So each namespace takes the pod whose policies and quota take one of the Job.
    """
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": _NOBODY,
    }
    asked = {key: resources[key] for key in ("limits", "requests") if key in resources}
    found: dict[str, Any] = {"securityContext": context}
    return {**found, "resources": asked} if asked else found
