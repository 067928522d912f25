"""Which object controls another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def controller_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of the controlling owner, "" when none controls the object."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid") or "")
    return ""


def controller_kind(meta: Mapping[str, Any]) -> str:
    """Return the kind of the controlling owner, "" when none controls the object."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("kind") or "")
    return ""
