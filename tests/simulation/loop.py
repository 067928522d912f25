"""Virtual time: an asyncio loop whose clock jumps to the next timer instead of waiting for it.

The real programs run on it unchanged; the models add plain callbacks. Nothing here reads a clock or
does input or output, so a schedule always runs the same way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVarTuple, cast

from daemonset_job.api.times import format_time

Ts = TypeVarTuple("Ts")
EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class StandstillError(Exception):
    """All tasks wait for each other: no callback is ready and no timer is set."""


class _NumberedTask(asyncio.Task[Any]):
    """A task whose hash is no address: task groups cancel theirs in the order of a set."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        loop: VirtualLoop,
        number: int,
        context: Context | None,
    ) -> None:
        self._hash = number
        super().__init__(cast("Coroutine[Any, Any, Any]", coro), loop=loop, context=context)

    def __hash__(self) -> int:
        return self._hash


if TYPE_CHECKING:
    # For the types only: at run time it has no base, and is small.
    _HandleBase = asyncio.TimerHandle
else:
    _HandleBase = object


class _Handle(_HandleBase):
    """A callback that is to run, unless it is cancelled by then; what asyncio.Handle is, in short.

    asyncio's own asks the loop for its debug mode each time, and compares and hashes by its time.
    """

    __slots__ = ("args", "callback", "context")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = copy_context() if context is None else context

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.callback is None


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop, with the few hot methods of the base made for a clock that jumps.

    Timers that are due at one moment run in the order in which they were set.
    """

    # Attributes of the base that its type stubs do not name.
    _ready: deque[_Handle]
    _scheduled: list[tuple[float, int, _Handle]]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.moment = 0.0
        self._number = count()
        self.set_task_factory(self._make_task)

    def _make_task(
        self,
        _loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        context: Context | None = None,
    ) -> _NumberedTask:
        return _NumberedTask(coro, self, next(self._number), context)

    def time(self) -> float:
        return self.moment

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        heappush(self._scheduled, (self.moment + delay, next(self._number), handle))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        heappush(self._scheduled, (when, next(self._number), handle))
        return handle

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        while not self._stopping:
            if ready:
                pass
            elif timers:
                self.moment = max(self.moment, timers[0][0])
            else:
                raise StandstillError
            # Timers due within a nanosecond are due: sums of floats are not exact.
            due = self.moment + 1e-9
            while timers and timers[0][0] <= due:
                ready.append(heappop(timers)[2])
            for _ in range(len(ready)):
                handle = ready.popleft()
                callback = handle.callback
                if callback is None:
                    continue
                try:
                    handle.context.run(callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio.Handle does
                    words = f"Exception in callback {callback!r}"
                    self.call_exception_handler({"message": words, "exception": error})

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class SimClock:
    """`runtime.clock.Clock` of a virtual loop, and API time as text; remembers the last answer."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._at = -1.0
        self._now = EPOCH
        self._second = -1
        self._stamp = ""

    def monotonic(self) -> float:
        return self._loop.moment

    def now(self) -> datetime:
        if self._at != self._loop.moment:
            self._at = self._loop.moment
            self._now = EPOCH + timedelta(seconds=self._at)
        return self._now

    def stamp(self, skew: float = 0.0) -> str:
        """Return API time in whole seconds, of a clock that is `skew` seconds ahead."""
        if skew:
            return format_time(EPOCH + timedelta(seconds=int(self._loop.moment + skew)))
        if self._second != int(self._loop.moment):
            self._second = int(self._loop.moment)
            self._stamp = format_time(EPOCH + timedelta(seconds=self._second))
        return self._stamp

    def log_stamp(self, skew: float = 0.0) -> str:
        """Return the kubelet's time in a log line: nine digits of fraction."""
        micros = int((self._loop.moment + skew) * 1e6)
        moment = EPOCH + timedelta(microseconds=micros)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}000Z"
