"""A cache of small typed objects with indexes; a reflector fills it, the program reads it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from daemonset_job.kube.client.unreadable import Unreadable

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""


class CachedObject(Protocol):
    """What every cached object has to say about itself, besides what its user wants."""

    @property
    def namespace(self) -> str:
        """Return the namespace, empty for cluster-scoped objects."""
        ...

    @property
    def name(self) -> str:
        """Return the name."""
        ...

    @property
    def uid(self) -> str:
        """Return the UID: two objects of one name, one after the other, differ in it."""
        ...

    @property
    def resource_version(self) -> str:
        """Return the version this projection was made from."""
        ...


T = TypeVar("T", bound=CachedObject)
Indexer = Callable[[T], Iterable[str]]


class Store(Generic[T]):
    """The objects of one resource type by key, and by whatever the indexers say.

    Reading is not copying: the objects must be immutable.
    """

    def __init__(self, indexers: Mapping[str, Indexer[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        # Objects that exist and that cannot be read; what was read of them before may be above.
        self.unreadable: dict[Key, Unreadable] = {}
        self._indexers = dict(indexers or {})
        # dict as an ordered set: the order of a result must not depend on hashing.
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in self._indexers}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, key: Key) -> T | None:
        """Return the object of that key, or None."""
        return self._objects.get(key)

    def keys(self) -> list[Key]:
        """Return all keys, as a snapshot."""
        return list(self._objects)

    def values(self) -> list[T]:
        """Return all objects, as a snapshot that later changes do not touch."""
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[T]:
        """Return the objects for which the indexer yields `value`; KeyError for no such index."""
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def count(self, index: str, value: str) -> int:
        """Return the number of objects for which the indexer yields `value`."""
        return len(self._indexes[index].get(value, ()))

    def put(self, item: T) -> T | None:
        """Add or replace an object, which is readable then, and return the one it replaced."""
        key = (item.namespace, item.name)
        old = self.remove(key)
        self._objects[key] = item
        for name, indexer in self._indexers.items():
            for value in indexer(item):
                self._indexes[name].setdefault(value, {})[key] = None
        return old

    def remove(self, key: Key) -> T | None:
        """Remove an object and return it, or None if it was not there."""
        self.unreadable.pop(key, None)
        old = self._objects.pop(key, None)
        if old is None:
            return None
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for value in indexer(old):
                members = index.get(value, {})
                members.pop(key, None)
                if not members:
                    index.pop(value, None)
        return old
