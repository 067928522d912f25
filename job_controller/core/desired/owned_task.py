"""The spec of a Job that runs something else on nodes of its owner, in the same surroundings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.owned_task import OwnedTask
from daemonset_job.api.script_source import ScriptSource
from job_controller.core.desired.manifest import child, children
from job_controller.core.desired.owned_job import without_selection
from job_controller.core.desired.template_conflict import VARIABLES
from job_controller.core.settings import Settings

# What `spec.template` says of the Job's task, and not of what surrounds it. Probes and hooks are
# refused in an init container, which the task of mode Exit is.
_OF_THE_TASK: Final = frozenset(
    {"args", "command", "image", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}
)
# Such a field is left out. 0 seconds, and 0 lines of a log, are values.
_NOTHING: Final[Sequence[Any]] = (None, "", [], {})


def task_spec(
    spec: JobSpec, task: OwnedTask, nodes: Sequence[str], settings: Settings
) -> dict[str, Any]:
    """Return the spec of a Job that runs `task` on these nodes as `spec` runs its own.

    An exit with 0 completes a node. Mounts, the template and `hostExec` are those of `spec`.
    """
    image = task.image or ("" if task.has_script else spec.image or settings.task_image)
    found: dict[str, Any] = {
        "image": image,
        "script": task.script,
        "scriptFrom": _script_source(task.script_from),
        "command": list(task.command),
        "args": list(task.args),
        "hostExec": spec.host_exec or None,
        "mountPath": spec.mount_path,
        "mounts": [
            {"hostPath": each.host_path, "mountPath": each.mount_path, "readOnly": each.read_only}
            for each in spec.mounts
        ],
        "template": without_selection(surroundings(spec.template)),
        "nodes": {"include": list(nodes)},
        "completion": {"mode": CompletionMode.EXIT.value},
        "failureLogLines": spec.failure_log_lines,
        "nodeUnreachableSeconds": spec.node_unreachable_seconds,
    }
    return {key: value for key, value in found.items() if value not in _NOTHING}


def surroundings(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `spec.template` without what it says of the task itself: image, command, probes."""
    spec = child(template, "spec")
    changed = {
        field: [_without_task(each) for each in children(spec, field)]
        for field in ("containers", "initContainers")
        if children(spec, field)
    }
    return {**template, "spec": {**spec, **changed}} if changed else template


def _without_task(container: Any) -> Any:
    if not isinstance(container, Mapping) or container.get("name") != names.CONTAINER_NAME:
        return container
    kept = {key: value for key, value in container.items() if key not in _OF_THE_TASK}
    if env := children(kept, "env"):
        kept["env"] = [each for each in env if child(each).get("name") not in VARIABLES]
    return kept


def _script_source(source: ScriptSource | None) -> dict[str, Any] | None:
    if source is None:
        return None
    field = "secretKeyRef" if source.is_secret else "configMapKeyRef"
    return {field: {"name": source.name, "key": source.key}}
