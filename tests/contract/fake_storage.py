"""What the fake API server keeps: objects, versions, history, and the owners of applied fields.

The rules for changing them are those of tests/fakekube. A stored object never changes: a write
stores a new one, which shares the parts that stay.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from daemonset_job.kube.client.resource import Resource
from daemonset_job.runtime.clock import Clock
from tests.fakekube import objects as rules
from tests.fakekube.apply import (
    Apply,
    Manager,
    Owners,
    applied,
    body_of_new,
    first_owners,
    owners_after_update,
)
from tests.fakekube.deletion import deleted, is_gone
from tests.fakekube.kinds import Kind as StoredKind
from tests.fakekube.kinds import kind_of
from tests.fakekube.patches import json_patch, merge_patch
from tests.fakekube.refusals import Refused

Raw = dict[str, Any]
Kind = tuple[str, str]  # group, plural
Key = tuple[str, str]  # namespace, name

_PATCHES = {
    "application/merge-patch+json": merge_patch,
    "application/json-patch+json": json_patch,
}


@dataclass
class Event:
    version: int
    kind: Kind
    type: str
    new: Raw
    old: Raw | None


@dataclass(frozen=True, slots=True)
class Write:
    """Who changes an object by which path: the name of the manager, and the subresource or ""."""

    manager: str = "cluster"
    subresource: str = ""
    is_dry_run: bool = False

    @property
    def owner(self) -> Manager:
        return Manager(self.manager, "Update", self.subresource)


HAND = Write()


@dataclass
class Storage:
    clock: Clock
    version: int = 1000
    oldest: int = 0
    objects: dict[Kind, dict[Key, Raw]] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    # Who owns which fields of an object, by its UID.
    owners: dict[str, Owners] = field(default_factory=dict)

    # --- reading -----------------------------------------------------------------------

    def all(self, kind: Kind) -> dict[Key, Raw]:
        return self.objects.setdefault(kind, {})

    def find(self, kind: Kind, key: Key) -> Raw:
        found = self.all(kind).get(key)
        if found is None:
            raise Refused(404, "NotFound", f'{kind[1]} "{key[1]}" not found', name=key[1])
        return found

    # --- changing ----------------------------------------------------------------------

    def tick(self) -> str:
        self.version += 1
        return str(self.version)

    def commit(self, kind: Kind, type_: str, raw: rules.Raw, old: Raw | None) -> Raw:
        """Store a new version of an object, or take the object away, and call the listeners."""
        new: Raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": self.tick()}}
        key = (new["metadata"].get("namespace", ""), new["metadata"]["name"])
        if type_ == "DELETED":
            self.all(kind).pop(key, None)
            self.owners.pop(new["metadata"]["uid"], None)
        else:
            self.all(kind)[key] = new
        event = Event(self.version, kind, type_, new, old)
        self.history.append(event)
        for listener in list(self.listeners):
            listener(event)
        return new

    def create(
        self, resource: Resource, body: Raw, namespace: str, owner: Manager = HAND.owner
    ) -> Raw:
        """Store a new object; the UID that a test gives it stays."""
        kind: Kind = (resource.group, resource.plural)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        new = rules.created(
            rules_of(resource),
            body,
            namespace=namespace if resource.namespaced else "",
            uid=(body.get("metadata") or {}).get("uid") or str(uuid.uuid4()),
            stamp=self.stamp(),
        )
        meta = new["metadata"]
        if (meta.get("namespace", ""), meta["name"]) in self.all(kind):
            message = f'{resource.plural} "{meta["name"]}" already exists'
            raise Refused(409, "AlreadyExists", message)
        if not _drops_owners(body):
            self.owners[meta["uid"]] = first_owners(rules_of(resource), body, owner)
        return self.commit(kind, "ADDED", new, None)

    def replace(self, resource: Resource, key: Key, body: Raw, how: Write) -> Raw:
        """Carry a PUT out."""
        old = self.find((resource.group, resource.plural), key)
        return self._store(
            resource, old, rules.replaced(rules_of(resource), old, body, how.subresource), how
        )

    def patch(
        self, resource: Resource, key: Key, patch: object, content_type: str, how: Write
    ) -> Raw:
        """Carry a PATCH out, of a type that is no apply; a dry run stores nothing."""
        if content_type not in _PATCHES:
            raise Refused(415, "UnsupportedMediaType", content_type)
        old = self.find((resource.group, resource.plural), key)
        requested = _PATCHES[content_type](old, patch)
        new = rules.patched(rules_of(resource), old, requested, how.subresource)
        return dict(new) if how.is_dry_run else self._store(resource, old, new, how)

    def update(self, resource: Resource, key: Key, new: Raw) -> Raw:
        """Have the cluster's hand change all of an object but its status."""
        old = self.find((resource.group, resource.plural), key)
        return self._store(resource, old, rules.updated(rules_of(resource), old, new), HAND)

    def apply(
        self, resource: Resource, key: Key, body: Raw, how: Apply, *, is_dry_run: bool = False
    ) -> Raw:
        """Carry a server-side apply out; a dry run stores nothing."""
        kind: Kind = (resource.group, resource.plural)
        old = self.all(kind).get(key)
        if old is None:
            if how.subresource:
                raise Refused(404, "NotFound", f'{resource.plural} "{key[1]}" not found')
            body = dict(body_of_new(body, key[1]))
            return body if is_dry_run else self.create(resource, body, key[0], how.owner)
        uid = old["metadata"]["uid"]
        before = self.owners.get(uid, {})
        new, owners = applied(rules_of(resource), old, before, body, how)
        if is_dry_run:
            return dict(new)
        self.owners[uid] = owners
        return old if new is old and owners == before else self._commit_update(kind, old, new)

    def delete(self, resource: Resource, key: Key, options: Raw) -> Raw:
        kind: Kind = (resource.group, resource.plural)
        old = self.find(kind, key)
        new = deleted(rules_of(resource), old, options, self.stamp())
        if new is old:
            return old
        return self.commit(kind, "DELETED" if new is None else "MODIFIED", new or old, old)

    def stamp(self) -> str:
        return self.clock.now().replace(microsecond=0).isoformat().replace("+00:00", "Z")

    def _store(self, resource: Resource, old: Raw, new: rules.Raw, how: Write) -> Raw:
        if new is old:
            return old
        uid = old["metadata"]["uid"]
        before = {} if _drops_owners(new) else self.owners.get(uid, {})
        self.owners[uid] = owners_after_update(before, old, new, how.owner)
        return self._commit_update((resource.group, resource.plural), old, new)

    def _commit_update(self, kind: Kind, old: Raw, new: rules.Raw) -> Raw:
        return self.commit(kind, "DELETED" if is_gone(new) else "MODIFIED", new, old)


def rules_of(resource: Resource) -> StoredKind:
    """Return what of the rules is of this resource."""
    return kind_of(resource.group, resource.plural)


def _drops_owners(body: rules.Raw) -> bool:
    """Return whether a client asks to have no owners kept."""
    return bool((body.get("metadata") or {}).get("managedFields") == [{}])
