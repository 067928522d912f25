"""The work queue: which keys need attention, each of them once, none by two workers at a time.

Semantics of client-go's util/workqueue (queue.go, delaying_queue.go, rate_limiting_queue.go), in
one class for one event loop.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from job_controller.runtime.backoff import exponential_seconds

K = TypeVar("K", bound=Hashable)

# The least that a delay amounts to. asyncio calls a timer that is due within a clock's resolution
# before its time: whoever then finds a rest of it left, and asks for that, would spin until it is.
TICK_SECONDS = 0.001


class QueueClosed(Exception):  # noqa: N818 - an end, not an error
    """The queue was closed; nothing will be handed out any more."""


class WorkQueue(Generic[K]):
    """A set of keys waiting in line.

    A key added while it waits is one key. A key added while it is being processed is handed out
    again after ``done``, so that no change is lost and no two workers hold the same key.
    Not thread-safe; `add_after` needs a running event loop.
    """

    def __init__(self, *, base_seconds: float = 0.005, max_seconds: float = 30.0) -> None:
        """Make an empty queue; the two bound the backoff of `add_rate_limited`."""
        self._base_seconds = base_seconds
        self._max_seconds = max_seconds
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()  # in _ready, or to be once done() is called
        self._processing: set[K] = set()
        self._timers: dict[K, tuple[float, asyncio.Handle]] = {}  # when, and what then
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """Return how many keys can be handed out now."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._timers)

    @property
    def processing(self) -> int:
        """How many keys are with a worker."""
        return len(self._processing)

    def add(self, key: K) -> None:
        """Make `key` due now; without effect if it is already, or after close()."""
        if self._closed or key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._processing:
            self._push(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Make `key` due in `seconds`, unless it will be due sooner already.

        A timer is not cancelled by an earlier `add`: the deadline it stands for may still have to
        be looked at. One superfluous look costs nothing.
        """
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, TICK_SECONDS)
        timer = self._timers.get(key)
        if timer is not None:
            if timer[0] <= when:
                return
            timer[1].cancel()
        # The time is kept beside: uvloop hands out a plain Handle, without `when`, for what is due
        # within half a millisecond.
        self._timers[key] = (when, loop.call_at(when, self._expire, key))

    def add_rate_limited(self, key: K) -> None:
        """Make `key` due after its backoff, which doubles with each call until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, exponential_seconds(failures, self._base_seconds, self._max_seconds))

    def forget(self, key: K) -> None:
        """Reset the backoff of `key`; what is due stays due."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often `key` was added rate limited since it was forgotten."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Return a key as soon as one is due; the caller must call `done` for it.

        QueueClosed after close(), even if keys are left: whoever closes wants an end.
        """
        while not self._closed and not self._ready:
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    # Woken and cancelled at once: the key this was about is for somebody else.
                    self._wake()
                raise
            finally:
                if getter in self._getters:
                    self._getters.remove(getter)
        if self._closed:
            raise QueueClosed
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """Give `key` back; it is due again if it was added in the meantime.

        ValueError if nobody had it, since then two workers may have it next.
        """
        if key not in self._processing:
            raise ValueError(f"{key!r} is not being processed")
        self._processing.discard(key)
        if key in self._waiting:
            self._push(key)

    def close(self) -> None:
        """End the queue: timers are cancelled, everybody waiting gets QueueClosed. Idempotent."""
        self._closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._getters:
            self._wake()

    def _expire(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _push(self, key: K) -> None:
        self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
