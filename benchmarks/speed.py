"""How fast the machine is while something is measured.

A guest's speed changes with what its host does besides: the same work was seen to take twice the
CPU time a minute later. So a piece of work that is always the same is repeated all the time beside
what is measured. CPU times divided by its mean duration can be compared.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Self

# Work of about 5 ms on a fast machine, every 0.25 s: 2 % of one processor, for all runs alike.
_ROUNDS: Final = 60_000
_PAUSE_SECONDS: Final = 0.25


class SpeedMeter:
    """Measures the CPU time of a fixed piece of work, again and again in a thread of its own."""

    def __init__(self, now: Callable[[], float] = time.thread_time) -> None:
        self._now = now
        self._durations: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start to measure."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, after the piece of work that is going on."""
        self._stopped.set()
        self._thread.join()

    def mark(self) -> int:
        """Return a mark to measure from."""
        return len(self._durations)

    def milliseconds_since(self, mark: int) -> float:
        """Return the mean CPU time of the piece of work since the mark, in milliseconds.

        Right after the mark it is that of the last one before.
        """
        found = self._durations[mark:] or self._durations[-1:]
        return 1000 * sum(found) / len(found) if found else 0.0

    def measure_once(self) -> None:
        """Do the piece of work once."""
        started, total = self._now(), 0
        for number in range(_ROUNDS):
            total += number & 7
        self._durations.append(self._now() - started)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.measure_once()
            self._stopped.wait(_PAUSE_SECONDS)
