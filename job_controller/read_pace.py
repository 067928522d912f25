"""How often the events of one namespace are read: a share of the time, whatever they are read for.

So a namespace full of events, or of Jobs, delays its own Jobs and does not load the API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The reads of one namespace take a fifth of the time.
NAMESPACE_SHARE: Final = 5.0
# How long a read is assumed to take where none was made, and at least. So there are at most five
# reads per second and namespace, and as many times that refused pods are created again.
USUAL_SECONDS: Final = 0.04


@dataclass(slots=True)
class ReadPace:
    """How long the last read of a namespace took, and when the next one may be made.

    Times are those of the clock, in seconds. `slot` is when the next slot is free. `free` is when
    the namespace has waited long enough after its last read. `since` is when the read under way
    began, None without one: there is one at a time.
    """

    slot: float = 0.0
    free: float = 0.0
    since: float | None = None
    took: float = USUAL_SECONDS

    def is_free(self, now: float) -> bool:
        """Return whether a read may be made now."""
        return self.since is None and now >= self.free

    def next_slot(self, now: float) -> float:
        """Keep a slot and return when it begins."""
        running = now - self.since if self.since is not None else 0.0
        took = max(self.took, running)
        soonest = now + took if self.since is not None else now
        begins = max(soonest, self.slot, self.free)
        self.slot = begins + NAMESPACE_SHARE * took
        return begins

    def start(self, now: float) -> None:
        """Record that a read begins."""
        self.since = now

    def end(self, now: float) -> None:
        """Record that the read under way has ended."""
        began, self.since = self.since, None
        self.took = max(now - began if began is not None else 0.0, USUAL_SECONDS)
        self.free = now + (NAMESPACE_SHARE - 1.0) * self.took

    def is_over(self, now: float) -> bool:
        """Return whether nothing of it matters any more."""
        return self.is_free(now) and now >= self.slot


class ReadPaces:
    """The pace of each namespace whose events are read."""

    def __init__(self) -> None:
        """Begin without any."""
        self._paces: dict[str, ReadPace] = {}

    def __len__(self) -> int:
        """Return the number of namespaces."""
        return len(self._paces)

    def of(self, namespace: str, now: float) -> ReadPace:
        """Return the pace of a namespace. A new one drops those that do not matter any more."""
        if namespace not in self._paces:
            over = [name for name, pace in self._paces.items() if pace.is_over(now)]
            for name in over:
                del self._paces[name]
            self._paces[namespace] = ReadPace()
        return self._paces[namespace]
