"""The objects of the fake API server, and what others than its clients do to them."""

from daemonset_job.kube.client.resource import Resource
from daemonset_job.runtime.clock import Clock
from tests.contract.fake_copies import copy_object
from tests.contract.fake_storage import Raw, Storage, rules_of
from tests.fakekube.garbage_collector import is_orphan
from tests.fakekube.patches import merge_patch
from tests.fakekube.selectors import parse_selector


class StoredObjects:
    """All objects; each change reaches the open watches."""

    def __init__(self, clock: Clock) -> None:
        self.storage = Storage(clock)

    def put(self, resource: Resource, body: Raw) -> Raw:
        """Create or replace an object, status included, as the whole cluster's hand."""
        body = copy_object(body)
        metadata = body["metadata"]
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        key = (metadata.get("namespace", ""), metadata["name"])
        kind = (resource.group, resource.plural)
        status = body.pop("status", None)
        metadata.pop("resourceVersion", None)
        if key in self.storage.all(kind):
            stored = self.storage.update(resource, key, body)
        else:
            stored = self.storage.create(resource, body, key[0])
        if status is not None:
            changed = {**stored, "status": status}
            if changed != stored:
                stored = self.storage.commit(kind, "MODIFIED", changed, stored)
        return copy_object(stored)

    def patch(self, resource: Resource, name: str, body: Raw, namespace: str = "default") -> Raw:
        """Merge-patch an object, status included."""
        current = self.get(resource, name, namespace)
        return self.put(resource, merge_patch(current, body))

    def remove(self, resource: Resource, name: str, namespace: str = "default") -> None:
        """Delete an object at once, finalizers or not."""
        key = self._key(resource, namespace, name)
        kind = (resource.group, resource.plural)
        old = self.storage.find(kind, key)
        self.storage.commit(kind, "DELETED", old, old)

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Raw:
        """Return a copy of an object; Refused 404 if it is not there."""
        key = self._key(resource, namespace, name)
        return copy_object(self.storage.find((resource.group, resource.plural), key))

    def exists(self, resource: Resource, name: str, namespace: str = "default") -> bool:
        """Return whether an object exists."""
        return self._key(resource, namespace, name) in self.storage.all(
            (resource.group, resource.plural)
        )

    def list(self, resource: Resource, label_selector: str | None = None) -> list[Raw]:
        """Return copies of all objects of a type, sorted by key."""
        items = sorted(self.storage.all((resource.group, resource.plural)).items())
        selector = parse_selector(rules_of(resource), label_selector, None)
        return [copy_object(raw) for _, raw in items if selector.selects(raw)]

    def collect_garbage(self) -> int:
        """Delete what has owners of which none exists any more; returns how many objects went."""
        removed = 0
        while True:
            uids = {
                raw["metadata"]["uid"]
                for each in self.storage.objects.values()
                for raw in each.values()
            }
            orphans = [
                (kind, raw)
                for kind, each in self.storage.objects.items()
                for raw in each.values()
                if is_orphan(raw, uids.__contains__)
            ]
            if not orphans:
                return removed
            for kind, raw in orphans:
                self.storage.commit(kind, "DELETED", raw, raw)
                removed += 1

    @staticmethod
    def _key(resource: Resource, namespace: str, name: str) -> tuple[str, str]:
        return (namespace if resource.namespaced else "", name)
