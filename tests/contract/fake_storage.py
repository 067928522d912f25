"""What an API server keeps: objects, versions, history, and the rules for changing them.

An approximation for contract tests, knowing what this project relies on: optimistic concurrency,
no version for a change that changes nothing, generation, the status subresource, finalizers,
preconditions, selectors. Lists are atomic in server-side apply; there is no schema.
"""

import copy
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from daemonset_job.kube.client.resource import Resource
from daemonset_job.runtime.clock import Clock

Raw = dict[str, Any]
Kind = tuple[str, str]  # group, plural
Key = tuple[str, str]  # namespace, name

WITHOUT_STATUS = {"events", "leases", "configmaps", "secrets", "namespaces"}
SERVER_METADATA = ("uid", "creationTimestamp", "name", "namespace", "generation")


class ApiError(Exception):
    def __init__(self, status: int, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message or reason


@dataclass
class Event:
    version: int
    kind: Kind
    type: str
    new: Raw
    old: Raw | None


@dataclass
class Storage:
    clock: Clock
    version: int = 1000
    oldest: int = 0
    objects: dict[Kind, dict[Key, Raw]] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    applied: dict[tuple[Kind, Key, str, str], Raw] = field(default_factory=dict)

    # --- reading -----------------------------------------------------------------------

    def all(self, kind: Kind) -> dict[Key, Raw]:
        return self.objects.setdefault(kind, {})

    def find(self, kind: Kind, key: Key) -> Raw:
        found = self.all(kind).get(key)
        if found is None:
            raise ApiError(404, "NotFound", f'{kind[1]} "{key[1]}" not found')
        return found

    # --- changing ----------------------------------------------------------------------

    def tick(self) -> str:
        self.version += 1
        return str(self.version)

    def commit(self, kind: Kind, type_: str, new: Raw, old: Raw | None) -> Raw:
        new["metadata"]["resourceVersion"] = self.tick()
        key = (new["metadata"].get("namespace", ""), new["metadata"]["name"])
        if type_ == "DELETED":
            self.all(kind).pop(key, None)
        else:
            self.all(kind)[key] = new
        event = Event(self.version, kind, type_, copy.deepcopy(new), old)
        self.history.append(event)
        for listener in list(self.listeners):
            listener(event)
        return new

    def create(self, resource: Resource, body: Raw, namespace: str) -> Raw:
        kind: Kind = (resource.group, resource.plural)
        new = copy.deepcopy(body)
        metadata = new.setdefault("metadata", {})
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise ApiError(422, "Invalid", "metadata.name: Required value")
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if resource.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise ApiError(400, "BadRequest", "the namespace does not match the URL")
        if metadata.get("resourceVersion"):
            raise ApiError(400, "BadRequest", "resourceVersion should not be set")
        if (metadata.get("namespace", ""), metadata["name"]) in self.all(kind):
            raise ApiError(
                409, "AlreadyExists", f'{resource.plural} "{metadata["name"]}" already exists'
            )
        new.setdefault("apiVersion", resource.api_version)
        new.setdefault("kind", resource.kind)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.stamp()
        metadata["generation"] = 1
        if resource.plural not in WITHOUT_STATUS:
            new.pop("status", None)
        return self.commit(kind, "ADDED", new, None)

    def update(self, resource: Resource, key: Key, new: Raw, subresource: str | None) -> Raw:
        """Store `new` in place of the object, each half of it as far as this path may write it."""
        kind: Kind = (resource.group, resource.plural)
        old = self.find(kind, key)
        new = copy.deepcopy(new)
        metadata = new.setdefault("metadata", {})
        _check_preconditions(old["metadata"], metadata)
        if subresource == "status":
            new = {**copy.deepcopy(old), "status": new.get("status", {})}
        elif resource.plural not in WITHOUT_STATUS:
            new.pop("status", None)
            if "status" in old:
                new["status"] = copy.deepcopy(old["status"])
        metadata = new["metadata"]
        metadata.pop("deletionTimestamp", None)
        for name in (*SERVER_METADATA, "deletionTimestamp", "resourceVersion"):
            if name in old["metadata"]:
                metadata[name] = old["metadata"][name]
        if new == old:
            return old
        if _spec(new) != _spec(old):
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            return self.commit(kind, "DELETED", new, old)
        return self.commit(kind, "MODIFIED", new, old)

    def apply(
        self,
        resource: Resource,
        key: Key,
        body: Raw,
        manager: str,
        *,
        force: bool,
        subresource: str,
    ) -> Raw:
        kind: Kind = (resource.group, resource.plural)
        owned = (kind, key, manager, subresource)
        body = copy.deepcopy(body)
        current = self.all(kind).get(key)
        if current is None:
            if subresource:
                raise ApiError(404, "NotFound", f'{resource.plural} "{key[1]}" not found')
            for stale in [known for known in self.applied if known[:2] == (kind, key)]:
                del self.applied[stale]
            result = self.create(resource, body, key[0])
        else:
            merged = copy.deepcopy(current)
            _remove_dropped(merged, self.applied.get(owned, {}), body)
            if not force:
                for other, last in self.applied.items():
                    if other[:2] == (kind, key) and other[2] != manager:
                        _refuse_conflict(last, body, other[2])
            merged = _deep_merge(merged, body)
            result = self.update(resource, key, merged, subresource or None)
        self.applied[owned] = body
        return result

    def delete(self, resource: Resource, key: Key, options: Raw) -> Raw:
        kind: Kind = (resource.group, resource.plural)
        old = self.find(kind, key)
        _check_preconditions(old["metadata"], options.get("preconditions") or {})
        new = copy.deepcopy(old)
        if new["metadata"].get("finalizers"):
            if "deletionTimestamp" in new["metadata"]:
                return old
            new["metadata"]["deletionTimestamp"] = self.stamp()
            return self.commit(kind, "MODIFIED", new, old)
        return self.commit(kind, "DELETED", new, old)

    def stamp(self) -> str:
        return self.clock.now().replace(microsecond=0).isoformat().replace("+00:00", "Z")


def _check_preconditions(actual: Raw, wanted: Raw) -> None:
    for name in ("uid", "resourceVersion"):
        if wanted.get(name) and wanted[name] != actual[name]:
            raise ApiError(409, "Conflict", f"the object has been modified: another {name}")


# --- patches -----------------------------------------------------------------------------


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def _json_operation(node: Any, last: str, operation: Raw) -> None:
    value = copy.deepcopy(operation.get("value"))
    index: Any = last
    if isinstance(node, list):
        index = len(node) if last == "-" else int(last)
    match operation["op"]:
        case "test":
            if node[index] != value:
                raise ValueError("test failed")
        case "remove":
            del node[index]
        case "replace":
            node[index]
            node[index] = value
        case "add" if isinstance(node, list):
            node.insert(index, value)
        case "add":
            node[index] = value
        case other:
            raise ValueError(other)


def _deep_merge(target: Any, body: Any) -> Any:
    if not (isinstance(target, dict) and isinstance(body, dict)):
        return copy.deepcopy(body)
    result = dict(target)
    for name, value in body.items():
        result[name] = _deep_merge(result.get(name), value)
    return result


def _remove_dropped(target: Raw, last: Raw, body: Raw) -> None:
    """Remove what the manager applied last time and leaves out now."""
    for name, value in last.items():
        if name not in body:
            if isinstance(value, dict) and isinstance(target.get(name), dict):
                _remove_dropped(target[name], value, {})
                if not target[name]:
                    del target[name]
            else:
                target.pop(name, None)
        elif isinstance(value, dict) and isinstance(body[name], dict):
            _remove_dropped(target.get(name) or {}, value, body[name])


def _refuse_conflict(theirs: Any, ours: Any, manager: str, path: str = "") -> None:
    if path in (".apiVersion", ".kind", ".metadata.name", ".metadata.namespace"):
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() & ours.keys():
            _refuse_conflict(theirs[name], ours[name], manager, f"{path}.{name}")
    elif theirs != ours:
        raise ApiError(409, "Conflict", f'Apply failed: conflict with "{manager}": {path}')


def _spec(raw: Raw) -> Raw:
    return {name: value for name, value in raw.items() if name not in ("metadata", "status")}


# --- selectors ---------------------------------------------------------------------------


def selects(raw: Raw, label_selector: str | None, field_selector: str | None) -> bool:
    labels = raw["metadata"].get("labels") or {}
    return all(_label_matches(labels, part) for part in _requirements(label_selector)) and all(
        _field_matches(raw, part) for part in _requirements(field_selector)
    )


def _requirements(selector: str | None) -> list[str]:
    # Commas inside parentheses belong to "in (…)".
    return [part.strip() for part in re.split(r",(?![^(]*\))", selector or "") if part.strip()]


def _label_matches(labels: dict[str, str], requirement: str) -> bool:
    if match := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", requirement):
        name, operator, values = match.groups()
        within = labels.get(name) in {value.strip() for value in values.split(",")}
        return within if operator == "in" else not within
    if match := re.fullmatch(r"([^=!]+?)\s*(==|=|!=)\s*(.*)", requirement):
        name, operator, value = match.groups()
        return (labels.get(name) == value) == (operator != "!=")
    if requirement.startswith("!"):
        return requirement[1:] not in labels
    return requirement in labels


def _field_matches(raw: Raw, requirement: str) -> bool:
    match = re.fullmatch(r"([\w.]+)\s*(==|=|!=)\s*(.*)", requirement)
    if match is None:
        raise ApiError(400, "BadRequest", f"cannot parse field selector {requirement!r}")
    path, operator, value = match.groups()
    node: Any = raw
    for part in path.split("."):
        node = node.get(part, {}) if isinstance(node, dict) else {}
    return (("" if node == {} else str(node)) == value) == (operator != "!=")
