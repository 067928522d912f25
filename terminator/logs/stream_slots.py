"""Divides the slots of follow streams evenly among namespaces.

Pure. Every namespace that has or waits for slots has an equal share of them. A namespace may hold
more than its share while no other one waits. It loses a slot when a namespace with fewer waits.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class StreamSlots(Generic[T]):
    """The items that hold a slot and those that wait for one, by namespace."""

    def __init__(self) -> None:
        """Start without holders and waiters."""
        # No namespace is empty. The oldest holder and the oldest waiter come first.
        self._held: dict[str, dict[T, None]] = {}
        self._waiting: OrderedDict[str, dict[T, None]] = OrderedDict()
        self._reserved: Counter[str] = Counter()  # slots reclaimed for a namespace, not free yet

    def __bool__(self) -> bool:
        """Return whether an item waits."""
        return bool(self._waiting)

    def add_waiting(self, namespace: str, item: T) -> None:
        """Add an item at the end of its namespace's queue."""
        self._waiting.setdefault(namespace, {})[item] = None

    def remove_waiting(self, namespace: str, item: T) -> None:
        """Remove an item from its namespace's queue, if it is there."""
        _discard(self._waiting, namespace, item)
        if namespace not in self._waiting:
            self._reserved.pop(namespace, None)

    def assign_next(self) -> T:
        """Give a free slot to the next waiting item and return it; ValueError if none waits.

        The namespace with the fewest slots gets it; namespaces with equally few are served in
        rotation.
        """
        namespace = min(self._waiting, key=self._count)
        line = self._waiting.pop(namespace)
        item = next(iter(line))
        del line[item]
        if line:
            self._waiting[namespace] = line
        if not line or self._reserved[namespace] == 1:
            self._reserved.pop(namespace, None)
        elif namespace in self._reserved:
            self._reserved[namespace] -= 1
        self._held.setdefault(namespace, {})[item] = None
        return item

    def release(self, namespace: str, item: T) -> None:
        """Record that an item has released its slot."""
        _discard(self._held, namespace, item)

    def reclaim(self, namespace: str, limit: int) -> T | None:
        """Return the item that has to give one of `limit` slots to a waiter of `namespace`.

        Returns None if no namespace is above its share. The item no longer counts as a holder.
        """
        promised = self._reserved[namespace]
        if promised >= len(self._waiting.get(namespace, ())):
            return None
        count = self._count(namespace) + promised
        share = max(limit // len(self._held.keys() | self._waiting.keys()), 1)
        if count >= share:
            return None
        largest_holder = max(self._held, key=self._count, default=namespace)
        if self._count(largest_holder) <= max(share, count + 1):
            return None
        item = next(iter(self._held[largest_holder]))
        self.release(largest_holder, item)
        self._reserved[namespace] += 1
        return item

    def _count(self, namespace: str) -> int:
        return len(self._held.get(namespace, ()))


def _discard(items: dict[str, dict[T, None]], namespace: str, item: T) -> None:
    """Remove an item, if it is there; a namespace without any is removed too."""
    own = items.get(namespace, {})
    own.pop(item, None)
    if not own:
        items.pop(namespace, None)
