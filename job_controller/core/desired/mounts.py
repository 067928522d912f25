"""The files and directories of the node that the task's container has."""

from __future__ import annotations

from typing import Any

from daemonset_job.api import names
from daemonset_job.api.job_spec import JobSpec


def host_volumes(spec: JobSpec) -> list[dict[str, Any]]:
    """Return the volumes of `spec.mountPath` and `spec.mounts`."""
    paths = [(names.TARGET_VOLUME, spec.mount_path)] if spec.mount_path else []
    paths += [(_volume(number), mount.host_path) for number, mount in enumerate(spec.mounts)]
    return [{"name": name, "hostPath": {"path": path}} for name, path in paths]


def host_mounts(spec: JobSpec) -> list[dict[str, Any]]:
    """Return where the task's container has these volumes."""
    mounts: list[dict[str, Any]] = []
    if spec.mount_path:
        mounts.append({"name": names.TARGET_VOLUME, "mountPath": names.TARGET_MOUNT_PATH})
    for number, mount in enumerate(spec.mounts):
        found: dict[str, Any] = {"name": _volume(number), "mountPath": mount.mount_path}
        mounts.append(found | {"readOnly": True} if mount.read_only else found)
    return mounts


def _volume(number: int) -> str:
    return f"{names.MOUNT_VOLUME_PREFIX}{number}"
