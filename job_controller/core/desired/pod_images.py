"""Which images a pod of a Job has: those that its nodes have to pull."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api.job import Job
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.desired.manifest import child, objects
from job_controller.core.settings import Settings

# Images that are pulled first: each is an init container of one pod.
IMAGES_LIMIT: Final = 16
# The strictest policy of an image counts, as the kubelet knows them: v1.PullPolicy.
_POLICIES: Final = ("Never", "IfNotPresent", "Always")


@dataclass(frozen=True, slots=True)
class PodImage:
    """An image of a pod, and how the kubelet gets it; "" for its default."""

    name: str
    pull_policy: str = ""


def find_images(pod: Mapping[str, Any]) -> tuple[PodImage, ...]:
    """Return the images of a pod's spec, each once, in the order in which they start."""
    found: dict[str, str] = {}
    for container in (*objects(pod, "initContainers"), *objects(pod, "containers")):
        name, policy = _text(container, "image"), _text(container, "imagePullPolicy")
        if name:
            found[name] = max(found.get(name, ""), policy, key=_strictness)
    return tuple(PodImage(name, policy) for name, policy in found.items())


def find_image_problem(job: Job, settings: Settings) -> str:
    """Return why the images of a Job cannot be pulled first, "" if they can."""
    if job.spec.rollout is None or not job.spec.rollout.pull_images_first:
        return ""
    template = build_pod_template(job, gated=False, settings=settings)
    count = len(find_images(child(template, "spec")))
    if count <= IMAGES_LIMIT:
        return ""
    return (
        f"spec.rollout.pullImagesFirst: the pods have {count} images, and at most {IMAGES_LIMIT} "
        f"can be pulled first; remove it, or use fewer images in spec.template"
    )


def _strictness(policy: str) -> int:
    return _POLICIES.index(policy) if policy in _POLICIES else -1


def _text(container: Mapping[str, Any], field: str) -> str:
    value = container.get(field)
    return value if isinstance(value, str) else ""
