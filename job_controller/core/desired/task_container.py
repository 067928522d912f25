"""Where the task's container is in the pod: under `containers`, or in mode Exit `initContainers`.

A user who changes it in `spec.template` names it, and does not have to know the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode
from job_controller.core.desired.manifest import child, children, objects
from job_controller.core.desired.strategic_merge import strategic_merge


def place_task_container(template: Mapping[str, Any], mode: CompletionMode) -> Mapping[str, Any]:
    """Return `spec.template` with its changes of the task's container in the list of that mode.

    If both lists change it, those of the mode's own list win, field by field. Nothing else moves.
    """
    right, wrong = "containers", "initContainers"
    if mode == CompletionMode.EXIT:
        right, wrong = wrong, right
    spec = child(template, "spec")
    moved = [item for item in children(spec, wrong) if _is_task(item)]
    if not moved:
        return template
    task: dict[str, Any] = {}
    for changes in (*moved, *(item for item in children(spec, right) if _is_task(item))):
        task = strategic_merge(task, changes)
    placed = {
        **spec,
        right: [task, *(item for item in children(spec, right) if not _is_task(item))],
        wrong: [item for item in children(spec, wrong) if not _is_task(item)],
    }
    return {**template, "spec": {key: value for key, value in placed.items() if value != []}}


def order_init_containers(
    pod_spec: Mapping[str, Any], template: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the pod's spec with its init containers in the order of `spec.template`.

    An init container that the template adds prepares the task, so the task of mode Exit is the last
    one. A template that lists the task among them says the order itself.
    """
    found = children(pod_spec, "initContainers")
    if not any(map(_is_task, found)):
        return dict(pod_spec)
    listed = map(_name, objects(template, "spec", "initContainers"))
    places = {name: place for place, name in enumerate(listed)}
    ordered = sorted(found, key=lambda item: places.get(_name(item), len(places)))
    return {**pod_spec, "initContainers": ordered}


def _is_task(item: Any) -> bool:
    return _name(item) == names.CONTAINER_NAME


def _name(item: Any) -> str:
    """Return the name of a container, "" for one that the API server will refuse."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else ""
