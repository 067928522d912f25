"""The tolerations of a pod's spec, as values that can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration (k8s.io/api core/v1). An absent field and an empty one are the same."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


def parse_tolerations(pod_spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """Return the tolerations of a raw pod spec."""
    return tuple(
        Toleration(
            key=raw.get("key") or "",
            operator=raw.get("operator") or "",
            value=raw.get("value") or "",
            effect=raw.get("effect") or "",
            seconds=raw.get("tolerationSeconds"),
        )
        for raw in pod_spec.get("tolerations") or ()
    )
