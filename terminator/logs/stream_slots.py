"""Which namespace gets a place where there are few, and which one gives one up for it.

Pure. Every namespace that has or wants places has an equal share of them. While nobody else asks,
one may hold more than its share: it gives way when a namespace that has less asks.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class StreamSlots(Generic[T]):
    """The items that hold a place and those that wait for one, by namespace."""

    def __init__(self) -> None:
        """Begin with nobody."""
        # No namespace is empty. The oldest holder, and who has waited longest, come first.
        self._held: dict[str, dict[T, None]] = {}
        self._waiting: OrderedDict[str, dict[T, None]] = OrderedDict()
        self._reserved: Counter[str] = Counter()  # places given up for a namespace, not free yet

    def __bool__(self) -> bool:
        """Return whether anybody waits."""
        return bool(self._waiting)

    def add_waiting(self, namespace: str, item: T) -> None:
        """Add an item at the end of its namespace's line."""
        self._waiting.setdefault(namespace, {})[item] = None

    def remove_waiting(self, namespace: str, item: T) -> None:
        """Remove an item from its namespace's line, if it is there."""
        line = self._waiting.get(namespace)
        if line is not None and item in line:
            del line[item]
            if not line:
                del self._waiting[namespace]
                self._reserved.pop(namespace, None)

    def assign_next(self) -> T:
        """Give a free place to the next item that waits and return it; ValueError if none does.

        It goes to the namespace that holds fewest, and to each in turn of those that hold as few.
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
        """Note that an item does not hold its place any more."""
        held = self._held.get(namespace)
        if held is not None and item in held:
            del held[item]
            if not held:
                del self._held[namespace]

    def reclaim(self, namespace: str, limit: int) -> T | None:
        """Return who shall give up one of `limit` places for an item of `namespace` that waits.

        None where nobody has to. Whoever is returned does not count as a holder any more.
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
