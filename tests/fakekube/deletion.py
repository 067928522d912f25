"""When an object is removed: grace periods, finalizers, and what the first delete writes.

The rules are those of Kubernetes 1.34: k8s.io/apiserver pkg/registry/rest/delete.go and
pkg/registry/core/pod/strategy.go. Not modelled: propagation, so the finalizers `orphan` and
`foregroundDeletion` are never set.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.fakekube.kinds import Kind
from tests.fakekube.objects import check_preconditions

Raw = Mapping[str, Any]

# What Kubernetes gives a pod that names none.
GRACE_SECONDS = 30
_TERMINAL = frozenset({"Succeeded", "Failed"})


def deleted(kind: Kind, old: Raw, options: Raw, stamp: str) -> Raw | None:
    """Return the object after a DELETE at `stamp`: None when it is removed at once.

    `options` are `preconditions` and `gracePeriodSeconds`, as in DeleteOptions. A pod that is bound
    lives on until a delete with a grace period of 0, which its kubelet sends. The result is `old`
    itself when the object is being deleted already and nothing changes.
    """
    requested = options.get("preconditions") or {}
    check_preconditions(old, requested.get("uid"), requested.get("resourceVersion"))
    meta, asked = old["metadata"], options.get("gracePeriodSeconds")
    given = meta.get("deletionGracePeriodSeconds") or 0
    if "deletionTimestamp" not in meta:
        grace = _grace_seconds(kind, old, asked)
        new = _marked(old, grace, _moved(stamp, grace))
        if "generation" in meta:
            new["metadata"]["generation"] = meta["generation"] + 1
    elif asked is not None and asked < given:
        grace = asked
        new = _marked(old, grace, _moved(meta["deletionTimestamp"], grace - given))
    else:
        return old if given or meta.get("finalizers") else None
    return new if grace or meta.get("finalizers") else None


def is_gone(new: Raw) -> bool:
    """Return whether an update has removed what kept an object that is being deleted."""
    meta = new["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
    )


def _grace_seconds(kind: Kind, old: Raw, asked: int | None) -> int:
    """CheckGracefulDelete of the pods' strategy; other kinds have no grace period."""
    spec = old.get("spec") or {}
    phase = (old.get("status") or {}).get("phase")
    if not kind.is_graceful or not spec.get("nodeName") or phase in _TERMINAL:
        return 0
    if asked is not None:
        return asked
    own = spec.get("terminationGracePeriodSeconds")
    return GRACE_SECONDS if own is None else int(own)


def _marked(old: Raw, grace: int, stamp: str) -> dict[str, Any]:
    marks = {"deletionTimestamp": stamp, "deletionGracePeriodSeconds": grace}
    return {**old, "metadata": {**old["metadata"], **marks}}


def _moved(stamp: str, seconds: int) -> str:
    """Return a time of the API (whole seconds, UTC) that is `seconds` later."""
    if not seconds:
        return stamp
    return f"{datetime.fromisoformat(stamp) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
