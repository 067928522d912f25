"""The script of a Job as a file in the task's container.

It is mounted where `run-once`, the entrypoint of the task image, looks for its work. Any other
image runs the file itself. The kubelet makes the file of an annotation of the pod (downward API),
or of a ConfigMap or Secret. So a script in the Job needs no object beside it.
"""

from __future__ import annotations

from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.job_spec import JobSpec

# Readable and executable for all: the task may have any user.
_FILE_MODE: Final = 0o555
_INTERPRETER: Final = "#!/bin/sh\n"


def script_annotations(spec: JobSpec) -> dict[str, str]:
    """Return the annotations of the pod that hold the script, {} if it is not in the Job.

    A script without `#!` line gets one. The kernel runs no other file, unless a shell asks it to.
    """
    if spec.script is None:
        return {}
    text = spec.script if spec.script.startswith("#!") else _INTERPRETER + spec.script
    return {names.ANNOTATION_SCRIPT: text}


def script_volumes(spec: JobSpec) -> list[dict[str, Any]]:
    """Return the volume with the script, in a list; [] for a Job without one."""
    if not spec.has_script:
        return []
    return [{"name": names.SCRIPT_VOLUME, **_source(spec)}]


def script_mounts(spec: JobSpec) -> list[dict[str, Any]]:
    """Return the mount of the script in the task's container, in a list; [] without a script."""
    if not spec.has_script:
        return []
    mount = {"name": names.SCRIPT_VOLUME, "mountPath": names.SCRIPT_MOUNT_PATH, "readOnly": True}
    return [mount]


def script_command(spec: JobSpec) -> list[str]:
    """Return the command that runs the script in an image of the user's, [] in the task image."""
    if not spec.has_script or not spec.image:
        return []
    return [f"{names.SCRIPT_MOUNT_PATH}/{names.SCRIPT_FILE}"]


def _source(spec: JobSpec) -> dict[str, Any]:
    source = spec.script_from
    if source is None:
        field = f"metadata.annotations['{names.ANNOTATION_SCRIPT}']"
        item = {"path": names.SCRIPT_FILE, "fieldRef": {"apiVersion": "v1", "fieldPath": field}}
        return {"downwardAPI": {"defaultMode": _FILE_MODE, "items": [item]}}
    items = [{"key": source.key, "path": names.SCRIPT_FILE}]
    if source.is_secret:
        return {"secret": {"secretName": source.name, "defaultMode": _FILE_MODE, "items": items}}
    return {"configMap": {"name": source.name, "defaultMode": _FILE_MODE, "items": items}}
