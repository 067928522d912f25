"""Raw manifests: what `core.desired` reads of pod templates, affinities and selectors.

Everything else in the core works on parsed objects. A pod template stays raw: it has about 1,000
fields, of any version of Kubernetes, and only the API server validates them. To these functions, a
value of another type than the expected one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def child(manifest: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at a path, empty where there is none."""
    found = _find(manifest, path)
    return found if isinstance(found, Mapping) else {}


def children(manifest: Any, *path: str) -> list[Any]:
    """Return the list at a path, empty where there is none."""
    found = _find(manifest, path)
    return found if isinstance(found, list) else []


def objects(manifest: Any, *path: str) -> list[Mapping[str, Any]]:
    """Return the items of the list at a path that are objects."""
    return [item for item in children(manifest, *path) if isinstance(item, Mapping)]


def _find(manifest: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        manifest = manifest.get(key) if isinstance(manifest, Mapping) else None
    return manifest
