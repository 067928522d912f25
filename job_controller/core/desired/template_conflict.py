"""Fields of `spec.template` by which the script of a Job would not run, or not where it is to run.

The API server takes such a pod: without the generated field it is a good one. Its nodes would never
be completed, or completed by something else than the script.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.job_spec import JobSpec
from job_controller.core.desired.manifest import child, children
from job_controller.core.desired.task_container import place_task_container

# By these `run-once` knows what to do.
VARIABLES: Final = (names.ENV_TOKEN, names.ENV_MODE, names.ENV_HOST_EXEC, names.ENV_STATE)
_DIRECTORIES: Final = (names.SCRIPT_MOUNT_PATH, names.STATE_MOUNT_PATH)


def find_template_conflict(spec: JobSpec) -> str:
    """Return which field of the template is to be removed and why, "" for a Job that can run."""
    return next(_conflicts(spec), "") if spec.has_script else ""


def _conflicts(spec: JobSpec) -> Iterator[str]:
    template = place_task_container(spec.template, spec.completion.mode)
    field = "initContainers" if spec.completion.mode == CompletionMode.EXIT else "containers"
    found = children(child(template, "spec"), field)
    for task in found:
        if not isinstance(task, Mapping) or task.get("name") != names.CONTAINER_NAME:
            continue
        for name, why in _fields(spec, task):
            yield f"spec.template changes {name} of {names.CONTAINER_NAME}, {why}: remove it"


def _fields(spec: JobSpec, task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the fields of the task's container in the template, each with its effect."""
    if task.get("command"):
        yield "the command", "so that it would not run the script"
    for mount in children(task, "volumeMounts"):
        path = mount.get("mountPath") if isinstance(mount, Mapping) else None
        if isinstance(path, str) and _normalized(path) in _DIRECTORIES:
            yield f"what is mounted at {_normalized(path)}", "where its script or its state is"
    if not spec.image:
        for variable in children(task, "env"):
            name = variable.get("name") if isinstance(variable, Mapping) else None
            if name in VARIABLES:
                yield f"the variable {name}", "by which the task image runs the script"
    if spec.host_exec and "securityContext" in task:
        context = task["securityContext"]
        if not isinstance(context, Mapping) or context.get("privileged") is False:
            yield "securityContext.privileged", "which spec.hostExec sets"


def _normalized(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")
