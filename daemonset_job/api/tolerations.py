"""The tolerations of a pod's spec, as values that can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api.shape import NUMBER, STRING, fields

_SHAPE: Final = fields(
    key=STRING, operator=STRING, value=STRING, effect=STRING, tolerationSeconds=NUMBER
)


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration (k8s.io/api core/v1). An absent field and an empty one are the same."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


def parse_tolerations(pod_spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """Return the tolerations of a raw pod spec.

    A Job may have been stored under an older CRD, which did not check its template. An item that is
    no toleration is returned as one that tolerates nothing, and that no DaemonSet has.
    """
    return tuple(map(_parse, pod_spec.get("tolerations") or ()))


def _parse(raw: Any) -> Toleration:
    try:
        _SHAPE(raw)
    except ValueError:
        return Toleration(operator=repr(raw))
    return Toleration(
        key=raw.get("key") or "",
        operator=raw.get("operator") or "",
        value=raw.get("value") or "",
        effect=raw.get("effect") or "",
        seconds=raw.get("tolerationSeconds"),
    )
