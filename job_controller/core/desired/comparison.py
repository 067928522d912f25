"""Whether a live DaemonSet is the one that its Job asks for."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from daemonset_job.api.daemon_set import DaemonSet, pod_spec_of
from job_controller.core.desired.manifest import objects

# The fields of a pod spec that, beside nodeSelector, decide on which nodes pods of a DaemonSet run.
_PLACEMENT: Final = ("affinity", "nodeName", "tolerations")
# Fields whose values, or whose maps' values, are of type resource.Quantity.
_QUANTITIES: Final = frozenset({"resources", "overhead", "sizeLimit", "divisor"})
# Suffixes of resource.Quantity (k8s.io/apimachinery/pkg/api/resource/suffix.go).
_QUANTITY_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def is_up_to_date(live: DaemonSet, desired: Mapping[str, Any]) -> bool:
    """Return whether the live DaemonSet is exactly what `desired` says.

    The hash shows whether this spec was the last one applied, so that removed fields count too.
    Changes by other clients show in the spec itself. Placement and gates have to be equal. All
    other fields only have to be contained, because the server adds defaults. Fields that other
    clients added show in managedFields (`live.alteration`).
    """
    annotations = desired["metadata"]["annotations"]
    return (
        not live.alteration
        and all(live.annotations.get(key) == value for key, value in annotations.items())
        and _gates(live.spec) == _gates(desired["spec"])
        and has_same_placement(live, desired)
        and _contains(live.labels, desired["metadata"]["labels"])
        and _contains(live.spec, desired["spec"])
    )


def has_same_placement(live: DaemonSet, desired: Mapping[str, Any]) -> bool:
    """Return whether the live DaemonSet puts pods on exactly the nodes that `desired` does."""
    a, b = live.pod_spec, pod_spec_of(desired["spec"])
    # An empty value counts: labels of roles have it.
    if (a.get("nodeSelector") or {}) != (b.get("nodeSelector") or {}):
        return False
    return all(_pruned(a.get(key)) == _pruned(b.get(key)) for key in _PLACEMENT)


def _pruned(value: Any) -> Any:
    """Return a value without null, "", empty maps and lists, which the server leaves out."""
    if isinstance(value, dict):
        found = {key: _pruned(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner is not None} or None
    if isinstance(value, list):
        return [_pruned(inner) for inner in value] or None
    return None if value == "" else value


def _gates(spec: Mapping[str, Any]) -> set[str]:
    return {str(gate.get("name") or "") for gate in objects(pod_spec_of(spec), "schedulingGates")}


def _contains(live: Any, desired: Any, *, in_quantities: bool = False) -> bool:
    """Return whether a value has all that is desired; both are JSON, whose objects are dicts."""
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            # The server leaves empty objects and lists out.
            return live is None and not desired
        return all(
            _contains(live.get(key), value, in_quantities=in_quantities or key in _QUANTITIES)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        if not isinstance(live, list):
            return live is None and not desired
        return len(live) == len(desired) and all(
            _contains(a, b, in_quantities=in_quantities) for a, b in zip(live, desired, strict=True)
        )
    if live is None:
        # "", 0 and false are left out of the stored object as well.
        return not desired
    return bool(live == desired) or (in_quantities and _same_quantity(live, desired))


def _same_quantity(live: Any, desired: Any) -> bool:
    """Return whether two spellings ("1000m", 1) are one resource.Quantity."""
    a, b = _quantity(live), _quantity(desired)
    return a is not None and a == b


def _quantity(value: Any) -> Decimal | None:
    text = str(value)
    digits = text.rstrip("numkKMGTPEi")
    factor = _QUANTITY_SUFFIXES.get(text[len(digits) :]) if digits != text else Decimal(1)
    try:
        return Decimal(digits) * factor if factor is not None else None
    except InvalidOperation:
        return None
