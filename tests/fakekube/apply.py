"""Server-side apply, and the owners of fields that it depends on.

The rules are those of Kubernetes 1.34: sigs.k8s.io/structured-merge-diff merge/update.go, and
k8s.io/apiserver pkg/endpoints/handlers/patch.go. The store keeps the owners of each object.

Without schemas: a list is one field, however its items are merged in Kubernetes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.fakekube.kinds import Kind
from tests.fakekube.objects import (
    check_name,
    check_names,
    check_preconditions,
    check_same,
    updated,
)
from tests.fakekube.refusals import conflict

Raw = Mapping[str, Any]
Path = tuple[str, ...]
_MISSING = object()
# What no manager owns: the names of the object, and what the server writes itself.
_UNOWNED = frozenset(
    {
        ("apiVersion",),
        ("kind",),
        *(("metadata", name) for name in ("name", "generateName", "namespace", "uid")),
        *(("metadata", name) for name in ("creationTimestamp", "generation", "resourceVersion")),
        *(("metadata", name) for name in ("deletionTimestamp", "deletionGracePeriodSeconds")),
        ("metadata", "managedFields"),
    }
)


class Manager(NamedTuple):
    """Who writes, as in an entry of managedFields; `subresource` is "" for the main resource."""

    name: str
    operation: str
    subresource: str = ""


Owners = Mapping[Manager, frozenset[Path]]


@dataclass(frozen=True, slots=True)
class Apply:
    """How an object is applied. With `force` the fields of other managers become this one's."""

    manager: str
    force: bool = False
    subresource: str = ""

    @property
    def owner(self) -> Manager:
        """The manager as an owner of fields."""
        return Manager(self.manager, "Apply", self.subresource)


def body_of_new(body: Raw, name: str) -> Raw:
    """Return what is created when there is no object of that name yet.

    A resourceVersion is ignored; a UID means an object that is gone (409).
    """
    meta = body.get("metadata") or {}
    check_name(meta, "name", name)
    if meta.get("uid"):
        raise conflict("uid mismatch: no existing object was found")
    kept = {key: value for key, value in meta.items() if key != "resourceVersion"}
    return {**body, "metadata": {**kept, "name": name}}


def first_owners(kind: Kind, body: Raw, owner: Manager) -> Owners:
    """Return the owners of an object that one manager creates by this body."""
    return {owner: frozenset(dict(_fields(_applicable(kind, body, ""))))}


def applied(kind: Kind, old: Raw, owners: Owners, body: Raw, how: Apply) -> tuple[Raw, Owners]:
    """Return an object and the owners of its fields after an apply; `old` itself for no change.

    What the manager applied before and leaves out now is removed, unless others own it too. New
    owners are a change as well: the store writes a new version then.
    """
    meta = body.get("metadata") or {}
    check_names(old, meta)
    check_preconditions(old, None, meta.get("resourceVersion"))
    check_same(old, meta)
    part = _applicable(kind, body, how.subresource)
    requested = dict(_fields(part))
    others = _without(owners, how, requested, old)
    new = _merged(old, part)
    theirs: frozenset[Path] = frozenset().union(*others.values())
    for path in owners.get(how.owner, frozenset()) - requested.keys() - theirs:
        new = _removed(new, path)
    ours = {how.owner: frozenset(requested)} if requested else {}
    return updated(kind, old, new, how.subresource), {**others, **ours}


def owners_after_update(owners: Owners, old: Raw, new: Raw, writer: Manager) -> Owners:
    """Return the owners after a PUT or a PATCH: who changes a field has it to himself.

    The server keeps none of an object whose owners a client has dropped.
    """
    if not owners:
        return owners
    changed = {path for path in _changes(old, new) if path not in _UNOWNED}
    present = {path for path in changed if _value_at(new, path) is not _MISSING}
    found = {manager: fields - changed for manager, fields in owners.items()}
    found[writer] = found.get(writer, frozenset()) | present
    return {manager: fields for manager, fields in found.items() if fields}


def _applicable(kind: Kind, body: Raw, subresource: str) -> Raw:
    """Return the part of an applied body that this path writes."""
    if subresource:
        return {key: value for key, value in body.items() if key == subresource}
    if kind.has_status:
        return {key: value for key, value in body.items() if key != "status"}
    return body


def _fields(body: Raw, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the fields of an applied body with their values; a null is no field."""
    for key, value in body.items():
        here = (*path, key)
        if value is None or here in _UNOWNED:
            continue
        if isinstance(value, Mapping) and value:
            yield from _fields(value, here)
        else:
            yield here, value


def _without(owners: Owners, how: Apply, requested: Mapping[Path, Any], old: Raw) -> Owners:
    """Return the other managers with what is left to them.

    409 for fields of theirs that would change, if the apply is not forced.
    """
    others: dict[Manager, frozenset[Path]] = {}
    for manager, fields in owners.items():
        if manager == how.owner:
            continue
        taken = frozenset(
            path for path in fields & requested.keys() if _is_new(old, path, requested)
        )
        if taken and not how.force:
            words = ", ".join(sorted("." + ".".join(path) for path in taken))
            raise conflict(f'Apply failed: conflict with "{manager.name}": {words}')
        if fields - taken:
            others[manager] = fields - taken
    return others


def _is_new(old: Raw, path: Path, requested: Mapping[Path, Any]) -> bool:
    value, current = requested[path], _value_at(old, path)
    if isinstance(value, Mapping) and isinstance(current, Mapping):
        return False  # a map without fields takes none away
    return bool(value != current)


def _merged(old: Raw, part: Raw, path: Path = ()) -> dict[str, Any]:
    new = dict(old)
    for key, value in part.items():
        if value is None or (*path, key) in _UNOWNED:
            continue
        before = new.get(key)
        if isinstance(value, Mapping):
            found = _merged(before if isinstance(before, Mapping) else {}, value, (*path, key))
            new[key] = before if found == before else found
        elif value != before:
            new[key] = value
    return new


def _removed(node: Raw, path: Path) -> dict[str, Any]:
    """Return a map without the field, and without maps that have become empty by that."""
    new = dict(node)
    inner = new.get(path[0])
    if len(path) > 1 and isinstance(inner, Mapping):
        left = _removed(inner, path[1:])
        if left:
            new[path[0]] = left
        else:
            del new[path[0]]
    elif len(path) == 1 and not (isinstance(inner, Mapping) and inner):
        new.pop(path[0], None)
    return new


def _changes(old: Any, new: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the fields that differ, with those of a map that was added or removed.

    A map is a field itself when it is added or removed empty, or when another value replaces it.
    """
    if old is new:
        return
    there = [node for node in (old, new) if node is not _MISSING]
    is_map = all(isinstance(node, Mapping) for node in there)
    if old != new and (not is_map or there == [{}]):
        yield path
    before, after = (node if isinstance(node, Mapping) else {} for node in (old, new))
    for key in before.keys() | after.keys():
        yield from _changes(before.get(key, _MISSING), after.get(key, _MISSING), (*path, key))


def _value_at(raw: Raw, path: Path) -> Any:
    node: Any = raw
    for part in path:
        node = node.get(part, _MISSING) if isinstance(node, Mapping) else _MISSING
    return node
