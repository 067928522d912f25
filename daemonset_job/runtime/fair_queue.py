"""A line in which groups have their turns one after the other, however many wait in each."""

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

Path = tuple[Hashable, ...]
"""The groups that an item is in, from the outermost: (namespace, Job), for example."""


class FairQueue(Generic[T]):
    """Items that wait, each under the path of its groups.

    The groups of one level have their turns one after the other; in the innermost group it is
    first come, first served. All paths of a line have the same length. Neither `push` nor `pop`
    takes longer when more items or groups wait.
    """

    def __init__(self) -> None:
        """Make an empty line."""
        self._items: deque[T] = deque()
        # The group that comes next is first; none of them is empty.
        self._groups: OrderedDict[Hashable, FairQueue[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._count

    def push(self, path: Path, item: T) -> None:
        """Add an item at the end of the line of its innermost group."""
        self._count += 1
        if not path:
            self._items.append(item)
            return
        if (line := self._groups.get(path[0])) is None:
            line = self._groups[path[0]] = FairQueue()
        line.push(path[1:], item)

    def pop(self) -> T:
        """Remove the next item and return it; IndexError if none waits."""
        if not self._groups:
            item = self._items.popleft()
            self._count -= 1
            return item
        self._count -= 1
        group, line = self._groups.popitem(last=False)
        item = line.pop()
        if line:
            self._groups[group] = line
        return item
