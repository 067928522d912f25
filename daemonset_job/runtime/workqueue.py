"""The work queue: which keys need attention, each of them once, none by two workers at a time.

Semantics of client-go's util/workqueue (queue.go, delaying_queue.go, rate_limiting_queue.go), in
one class for one event loop.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from daemonset_job.runtime.backoff import exponential_seconds

K = TypeVar("K", bound=Hashable)

# The minimum delay. asyncio may fire a timer up to one clock tick early. A caller that then adds
# the remaining microseconds again would spin, so shorter delays are rounded up to this.
MIN_DELAY_SECONDS = 0.001
# Events wake a key within seconds. What is due later than this was asked for by a reconcile.
FAR_SECONDS = 60.0


class QueueClosed(Exception):  # noqa: N818 - an end, not an error
    """The queue was closed; nothing will be handed out any more."""


def namespace_of(key: tuple[str, str]) -> str:
    """Return the group of a key that is a namespace and a name."""
    return key[0]


def _one_group(_key: Hashable) -> Hashable:
    return None


class WorkQueue(Generic[K]):
    """A set of keys waiting in line.

    A key added while it waits is one key. A key added while it is being processed is handed out
    again after ``done``, so that no change is lost and no two workers hold the same key.
    Keys of different groups (namespaces) are handed out in turn, however many wait in each; in one
    group it is first come, first served. No more than `group_limit` keys of one group are being
    processed at a time. With one worker more than that, a group whose keys take long leaves a
    worker to the others; a slow webhook can be the reason.
    Not thread-safe; `add_after` needs a running event loop.
    """

    def __init__(
        self,
        *,
        base_seconds: float = 0.005,
        max_seconds: float = 30.0,
        group_of: Callable[[K], Hashable] = _one_group,
        group_limit: int | None = None,
    ) -> None:
        """Make an empty queue; the two times bound the backoff of `add_rate_limited`."""
        self._base_seconds = base_seconds
        self._max_seconds = max_seconds
        self._group_of = group_of
        self._group_limit = group_limit
        # The keys in line by group, none of them empty. The group that comes next is first.
        self._ready: OrderedDict[Hashable, deque[K]] = OrderedDict()
        # Those of groups of which as many as may be are being processed.
        self._held_up: dict[Hashable, deque[K]] = {}
        self._processing_of: Counter[Hashable] = Counter()
        self._waiting: set[K] = set()  # in line, or to be once done() is called
        self._processing: dict[K, Hashable] = {}  # with the group that each was in
        self._timers: dict[K, tuple[float, asyncio.Handle]] = {}  # when, and what then
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """Return how many keys are due and wait for a worker."""
        return len(self._waiting) - len(self._waiting & self._processing.keys())

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

        A timer is not cancelled by an earlier `add`: its deadline may still have to be looked at.
        One superfluous look costs nothing.
        """
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, MIN_DELAY_SECONDS)
        timer = self._timers.get(key)
        if timer is not None:
            if timer[0] <= when:
                return
            timer[1].cancel()
        # The time is kept beside: uvloop hands out a plain Handle, without `when`, for what is due
        # within half a millisecond.
        self._timers[key] = (when, loop.call_at(when, self._expire, key))

    def drop_timer(self, key: K) -> None:
        """Cancel the timer of a key of which nothing is left, if it is due in a minute or later.

        What wakes the key in the meantime, since it exists again, has a timer that is due sooner.
        """
        timer = self._timers.get(key)
        if timer is None or timer[0] - asyncio.get_running_loop().time() < FAR_SECONDS:
            return
        timer[1].cancel()
        del self._timers[key]

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

        QueueClosed after close(), even if keys are left: closing ends the work.
        """
        while not self._closed and not self._ready:
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    # Woken and cancelled at once: another worker must be woken for the key.
                    self._wake()
                raise
            finally:
                if getter in self._getters:
                    self._getters.remove(getter)
        if self._closed:
            raise QueueClosed
        group, line = self._ready.popitem(last=False)
        key = line.popleft()
        self._waiting.discard(key)
        self._processing[key] = group
        self._processing_of[group] += 1
        if line:
            (self._held_up if self._is_full(group) else self._ready)[group] = line
        return key

    def done(self, key: K) -> None:
        """Give `key` back; it is due again if it was added in the meantime.

        ValueError if no worker had it, since then two workers may have it next.
        """
        if key not in self._processing:
            raise ValueError(f"{key!r} is not being processed")
        group = self._processing.pop(key)
        self._processing_of[group] -= 1
        if not self._processing_of[group]:
            del self._processing_of[group]
        if (line := self._held_up.pop(group, None)) is not None:
            self._ready[group] = line
            self._wake()
        if key in self._waiting:
            self._push(key)

    def close(self) -> None:
        """End the queue: timers are cancelled, all waiting callers get QueueClosed. Idempotent."""
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
        group = self._group_of(key)
        lines = self._held_up if self._is_full(group) else self._ready
        lines.setdefault(group, deque()).append(key)
        if lines is self._ready:
            self._wake()

    def _is_full(self, group: Hashable) -> bool:
        limit = self._group_limit
        return limit is not None and self._processing_of[group] >= limit

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
