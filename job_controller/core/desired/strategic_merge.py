"""Strategic merge of a partial pod template over a generated one.

The rules are Kubernetes' own (the `patchMergeKey` tags of core/v1 types). Maps merge, and null
removes a key. Lists with a merge key merge by it; all other lists are replaced. One difference is
on purpose: tolerations are added to the generated ones, and do not replace them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

# Field -> key its items are known by (k8s.io/api/core/v1/types.go, patchMergeKey). `ports` has a
# composite key there; by containerPort alone, as the tag says, is what kubectl does too.
MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
_APPENDED: Final = frozenset({"tolerations"})
# A volume has exactly one source: a volume of the same name is replaced, not mixed with ours.
_REPLACED_ITEMS: Final = frozenset({"volumes"})


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `patch` laid over it; neither argument is changed."""
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(key, merged.get(key), value)
    return merged


def _merge_value(key: str, old: Any, new: Any) -> Any:
    if isinstance(new, Mapping):
        return strategic_merge(old if isinstance(old, Mapping) else {}, new)
    if isinstance(new, list) and isinstance(old, list):
        if key in _APPENDED:
            return [*old, *(item for item in new if item not in old)]
        if key in MERGE_KEYS:
            return _merge_named(old, new, MERGE_KEYS[key], replace=key in _REPLACED_ITEMS)
    return new


def _merge_named(old: Sequence[Any], new: Sequence[Any], name: str, *, replace: bool) -> list[Any]:
    merged = list(old)
    places = {key: i for i, item in enumerate(merged) if (key := _key(item, name)) is not None}
    for item in new:
        key = _key(item, name)
        place = places.get(key) if key is not None else None
        if place is None:
            merged.append(item)
        else:
            merged[place] = item if replace else strategic_merge(merged[place], item)
    return merged


def _key(item: Any, name: str) -> str | int | None:
    """Return what an item of a list is known by, None for one that the API server will refuse."""
    key = item.get(name) if isinstance(item, Mapping) else None
    return key if isinstance(key, str | int) else None


def diff_merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RFC 7386 patch that turns `old` into `new`; empty when they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := diff_merge_patch(before, value):
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch
