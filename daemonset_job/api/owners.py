"""Which object controls another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api import names


def controller_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of the controlling owner, "" when none controls the object."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid") or "")
    return ""


def has_controller(meta: Mapping[str, Any]) -> bool:
    """Return whether any object controls this one."""
    return any(owner.get("controller") for owner in meta.get("ownerReferences") or ())


def controller_kind(meta: Mapping[str, Any]) -> str:
    """Return the kind of the controlling owner, "" when none controls the object."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("kind") or "")
    return ""


def controlling_daemon_set(meta: Mapping[str, Any]) -> str:
    """Return the name of the DaemonSet that controls the object, "" if none does."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion") or "").partition("/")[0]
            is_daemon_set = group == "apps" and owner.get("kind") == "DaemonSet"
            return str(owner.get("name") or "") if is_daemon_set else ""
    return ""


def controlling_job_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of the Job of this project that controls the object, "" if none does."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion") or "").partition("/")[0]
            is_job = group == names.GROUP and owner.get("kind") == names.JOB_KIND
            return str(owner.get("uid") or "") if is_job else ""
    return ""


def controlling_schedule(meta: Mapping[str, Any]) -> str:
    """Return the name of the ScheduledJob that controls a Job, "" if none does.

    A run of it has that name, a dash and the minute of its start.
    """
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion") or "").partition("/")[0]
            is_schedule = group == names.GROUP and owner.get("kind") == names.SCHEDULED_KIND
            name, _, minute = str(meta.get("name") or "").rpartition("-")
            is_run = minute.isdigit() and name == owner.get("name")
            return name if is_schedule and is_run else ""
    return ""


def owner_reference(kind: str, name: str, uid: str) -> dict[str, Any]:
    """Return the reference to an object of this project that controls another one."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
