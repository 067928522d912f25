"""Builds deploy/ without kustomize: the few of its features that deploy/ uses, and no others.

tests/integration compares the result with that of `kubectl kustomize`. A feature that is missing
here is an error, so that no manifest is silently another one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

# C, where it is there: a CRD has thousands of lines.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS: Final = frozenset(
    {"apiVersion", "kind", "labels", "sortOptions", "resources", "images", "patches"}
)
# Lists of Kubernetes that a strategic merge patch merges by a key.
_MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}


class UnsupportedError(ValueError):
    """A kustomization uses what is not implemented here."""


def build(base: Path, components: Sequence[Path] = ()) -> list[Manifest]:
    """Return the objects of a kustomization, with components as an overlay would list them."""
    found = _accumulate(base, [])
    for component in components:
        found = _accumulate(component, found)
    return found


def own_objects(component: Path) -> list[Manifest]:
    """Return the objects that a component adds, without what it changes."""
    return [each for name in _read(component)["resources"] for each in _load(component / name)]


def _accumulate(folder: Path, before: list[Manifest]) -> list[Manifest]:
    """Return `before` and the folder's objects, with its patches, labels and images applied.

    A component changes what the ones before it have collected, a kustomization only its own.
    """
    kustomization = _read(folder)
    found = list(before)
    for name in kustomization["resources"]:
        path = folder / name
        found += _accumulate(path, []) if path.is_dir() else _load(path)
    for patch in kustomization["patches"]:
        found = _patched(found, patch)
    for entry in kustomization["labels"]:
        if set(entry) != {"pairs"}:
            raise UnsupportedError(f"{folder}: labels with {sorted(entry)}")
        for each in found:
            each["metadata"].setdefault("labels", {}).update(entry["pairs"])
    for image in kustomization["images"]:
        if set(image) != {"name", "newTag"}:
            raise UnsupportedError(f"{folder}: images with {sorted(image)}")
        for container in (each for manifest in found for each in containers(manifest)):
            name, _, _ = container["image"].rpartition(":")
            if name == image["name"]:
                container["image"] = f"{name}:{image['newTag']}"
    return found


def containers(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yield the containers of a workload."""
    template = (manifest.get("spec") or {}).get("template") or {}
    if isinstance(template, dict) and manifest["kind"] == "Deployment":
        yield from template["spec"].get("initContainers") or ()
        yield from template["spec"]["containers"]


def _read(folder: Path) -> dict[str, Any]:
    (found,) = _load(folder / "kustomization.yaml")
    if unknown := set(found) - _KEYS:
        raise UnsupportedError(f"{folder}: {sorted(unknown)}")
    if found.get("sortOptions", {"order": "fifo"}) != {"order": "fifo"}:
        raise UnsupportedError(f"{folder}: sortOptions")
    return {"resources": [], "patches": [], "labels": [], "images": [], **found}


def _load(path: Path) -> list[Manifest]:
    """Return the objects of a file, for the caller to change."""
    return copy.deepcopy(_parse(path.read_text("utf-8")))


@cache
def _parse(text: str) -> list[Manifest]:
    """Return the objects of a text. Cached: a CRD takes longer than all requests of a verb."""
    found = yaml.load_all(text, Loader=_LOADER)
    return [each for each in found if each]


def _patched(manifests: list[Manifest], patch: Mapping[str, Any]) -> list[Manifest]:
    content = yaml.safe_load(patch["patch"])
    if isinstance(content, list):
        return [_json_patched(m, content) if _matches(m, patch["target"]) else m for m in manifests]
    if "target" in patch:
        raise UnsupportedError("a merge patch with a target")
    return [_merged(m, content) if _identity(m) == _identity(content) else m for m in manifests]


def _matches(manifest: Manifest, target: Mapping[str, str]) -> bool:
    if unknown := set(target) - {"kind", "name"}:
        raise UnsupportedError(f"a target with {sorted(unknown)}")
    is_kind = re.fullmatch(target["kind"], manifest["kind"]) is not None
    return is_kind and re.fullmatch(target["name"], manifest["metadata"]["name"]) is not None


def _json_patched(manifest: Manifest, operations: Sequence[Mapping[str, Any]]) -> Manifest:
    result = copy.deepcopy(manifest)
    for operation in operations:
        *path, last = operation["path"].strip("/").split("/")
        here: Any = result
        for key in path:
            here = here[_key(here, key)]
        at = _key(here, last)
        match operation["op"]:
            case "replace":
                # It must be there, as RFC 6902 has it.
                assert here[at] is not None
                here[at] = operation["value"]
            case "remove":
                del here[at]
            case "add" if isinstance(here, dict):
                here[at] = operation["value"]
            case other:
                raise UnsupportedError(f"the operation {other!r} on {operation['path']}")
    return result


def _key(parent: Any, text: str) -> str | int:
    key = text.replace("~1", "/").replace("~0", "~")
    return int(key) if isinstance(parent, list) else key


def _identity(manifest: Manifest) -> tuple[str, str, str, str]:
    metadata = manifest["metadata"]
    where = metadata.get("namespace", "")
    return manifest["apiVersion"], manifest["kind"], where, metadata["name"]


def _merged(old: Any, new: Any, field: str = "") -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        result = dict(old)
        for key, value in new.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = _merged(old[key], value, key) if key in old else value
        return result
    if isinstance(old, list) and field in _MERGE_KEYS:
        return _merged_list(old, new, _MERGE_KEYS[field])
    return new


def _merged_list(old: list[Any], new: list[Any], key: str) -> list[Any]:
    """Return the merged list. What a patch adds comes first, as with kustomize."""
    changes = {each[key]: each for each in new}
    known = {each[key] for each in old}
    result = [each for each in new if each[key] not in known]
    if any("$patch" in each for each in result):
        raise UnsupportedError("a merge patch that deletes what is not there")
    for each in old:
        change = changes.get(each[key], {})
        if change.get("$patch") == "delete":
            continue
        if "$patch" in change:
            raise UnsupportedError(f"$patch: {change['$patch']}")
        result.append(_merged(each, change))
    return result
