"""Which object controls another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from daemonset_job.api import names

# The API server bounds neither the UID nor the name in an owner reference. What is longer than this
# is that of no object. It is cut, because caches keep it.
_TEXT_LIMIT: Final = 256


def controller_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of the controlling owner, "" when none controls the object."""
    return str(_controller(meta).get("uid") or "")[:_TEXT_LIMIT]


def has_controller(meta: Mapping[str, Any]) -> bool:
    """Return whether any object controls this one."""
    return bool(_controller(meta))


def controller_kind(meta: Mapping[str, Any]) -> str:
    """Return the kind of the controlling owner, "" when none controls the object."""
    return str(_controller(meta).get("kind") or "")


def controlling_daemon_set(meta: Mapping[str, Any]) -> str:
    """Return the name of the DaemonSet that controls the object, "" if none does."""
    owner = _controller(meta)
    return str(owner.get("name") or "")[:_TEXT_LIMIT] if _is_a(owner, "apps", "DaemonSet") else ""


def controlling_job_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of the Job of this project that controls the object, "" if none does."""
    owner = _controller(meta)
    uid = str(owner.get("uid") or "")[:_TEXT_LIMIT]
    return uid if _is_a(owner, names.GROUP, names.JOB_KIND) else ""


def controlling_schedule(meta: Mapping[str, Any]) -> str:
    """Return the name of the ScheduledJob that controls a Job, "" if none does.

    A run of it has that name, a dash and the minute of its start.
    """
    owner = _controller(meta)
    name, _, minute = str(meta.get("name") or "").rpartition("-")
    is_run = minute.isdigit() and name == owner.get("name")
    return name if is_run and _is_a(owner, names.GROUP, names.SCHEDULED_KIND) else ""


def _controller(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reference to the controlling owner, empty when none controls the object."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            found: Mapping[str, Any] = owner
            return found
    return {}


def _is_a(owner: Mapping[str, Any], group: str, kind: str) -> bool:
    """Return whether a reference is to an object of that API group and kind."""
    found = str(owner.get("apiVersion") or "").partition("/")[0]
    return (found, owner.get("kind")) == (group, kind)


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
