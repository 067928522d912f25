"""The times at which pods are due for their next read."""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from itertools import count

from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.workqueue import MIN_DELAY_SECONDS
from terminator.logs.targets import ScannedPod


class PodTimers:
    """Calls `on_due(scanned)` at the time that a pod was last given."""

    def __init__(self, clock: Clock, on_due: Callable[[ScannedPod], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._timers: list[tuple[float, int, ScannedPod]] = []
        self._sequence: Iterator[int] = count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Return how many timers are set; those that a later one has replaced count too."""
        return len(self._timers)

    def set(self, scanned: ScannedPod, due: float) -> None:
        """Replace the pod's timer: `due` is a time of the monotonic clock, infinite for never."""
        scanned.due = due
        if due < float("inf"):
            heapq.heappush(self._timers, (due, next(self._sequence), scanned))
            if self._timers[0][2] is scanned:
                self._changed.set()

    async def run(self) -> None:
        """Watch the timers until cancelled."""
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                due, _, scanned = heapq.heappop(self._timers)
                if scanned.due == due:  # else it was scheduled again meanwhile
                    self._on_due(scanned)
            wait = max(self._timers[0][0] - now, MIN_DELAY_SECONDS) if self._timers else None
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass
