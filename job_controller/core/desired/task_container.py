"""Where the task's container is in the pod: under `containers`, or in mode Exit `initContainers`.

A user who changes it in `spec.template` names it, and does not have to know the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode
from job_controller.core.desired.manifest import child, children
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


def _is_task(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("name") == names.CONTAINER_NAME
