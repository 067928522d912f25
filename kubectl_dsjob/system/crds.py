"""Compares two versions of a CRD, field by field. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_PARTS: Final = re.compile(r"\d+")
# What a schema says of a field beside its fields. Descriptions change nothing.
_IGNORED: Final = frozenset({"description", "properties", "items", "additionalProperties"})
_DEPTH_LIMIT: Final = 60
# Stands for the path of the outermost schema, whose rules are about several fields.
_WHOLE: Final = "the rules of the whole object"


@dataclass(frozen=True, slots=True)
class CrdChanges:
    """What one CRD has that another has not: versions of the API, and fields as dotted paths."""

    versions_added: tuple[str, ...] = ()
    versions_removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return any(
            (self.versions_added, self.versions_removed, self.added, self.removed, self.changed)
        )


def compare_crds(before: Mapping[str, Any], after: Mapping[str, Any]) -> CrdChanges:
    """Return what changes from one CRD to the other."""
    old, new = _versions(before), _versions(after)
    added, removed, changed = [], [], []
    for version in sorted(old.keys() & new.keys()):
        left, right = dict(_fields(old[version])), dict(_fields(new[version]))
        added += [path for path in right if path not in left]
        removed += [path for path in left if path not in right]
        changed += [path for path in right if path in left and left[path] != right[path]]
    return CrdChanges(
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
        tuple(_outermost(added)),
        tuple(_outermost(removed)),
        tuple(sorted(changed)),
    )


def is_downgrade(changes: CrdChanges, there: str, version: str) -> bool:
    """Return whether a CRD of version `there` would become an earlier one.

    The same number and fewer fields is a build that is earlier than the one in the cluster.
    """
    if is_older(version, there):
        return True
    return bool(changes.removed) and not is_older(there, version)


def is_older(version: str, other: str) -> bool:
    """Return whether a version such as v0.1.0 is an earlier one. Unknown texts are none."""
    left, right = _numbers(version), _numbers(other)
    return bool(left and right) and left < right


def _numbers(version: str) -> tuple[int, ...]:
    head = re.match(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})", version)
    return tuple(int(part) for part in _PARTS.findall(head[1])) if head else ()


def _versions(crd: Mapping[str, Any]) -> dict[str, Any]:
    found = (crd.get("spec") or {}).get("versions") or ()
    return {
        str(each["name"]): (each.get("schema") or {}).get("openAPIV3Schema") or {} for each in found
    }


def _fields(schema: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each field's path, and what the schema says of it."""
    if not isinstance(schema, Mapping) or depth > _DEPTH_LIMIT:
        return
    yield path or _WHOLE, {key: value for key, value in schema.items() if key not in _IGNORED}
    for name, field in (schema.get("properties") or {}).items():
        yield from _fields(field, f"{path}.{name}" if path else name, depth + 1)
    for part in ("items", "additionalProperties"):
        yield from _fields(schema.get(part), f"{path}[]", depth + 1)


def _outermost(paths: list[str]) -> list[str]:
    """Return the paths without those of fields within them."""
    known = set(paths)
    return sorted(
        path
        for path in paths
        if not any(path[:end] in known for end in range(1, len(path)) if path[end] in ".[")
    )
