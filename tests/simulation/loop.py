"""Virtual time: an asyncio loop whose clock jumps to the next timer instead of waiting for it.

The real shells run on it unchanged; the rest of the model hangs plain callbacks into it. Nothing
here reads a clock or does input or output, so a schedule runs the same way every time.
"""

import asyncio
from datetime import UTC, datetime, timedelta

from job_controller.api.times import format_time

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class StandstillError(Exception):
    """Everybody waits for somebody else: no callback is ready and no timer is set."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop; it is its own selector, since nothing is ever selected."""

    def __init__(self):
        super().__init__()
        self.moment = 0.0
        self._selector = self
        # Timers due within a nanosecond are due: sums of floats are not exact.
        self._clock_resolution = 1e-9

    def time(self):
        return self.moment

    def select(self, timeout):
        if timeout is None:
            raise StandstillError
        if timeout > 0:
            self.moment = max(self.moment, self._scheduled[0].when())
        return ()

    def _process_events(self, event_list):
        pass

    def _write_to_self(self):
        pass


class SimClock:
    """`runtime.clock.Clock` of a virtual loop, and API time as text; remembers the last answer."""

    def __init__(self, loop):
        self._loop = loop
        self._at = -1.0
        self._now = EPOCH
        self._second = -1
        self._stamp = ""

    def monotonic(self):
        return self._loop.moment

    def now(self):
        if self._at != self._loop.moment:
            self._at = self._loop.moment
            self._now = EPOCH + timedelta(seconds=self._at)
        return self._now

    def stamp(self):
        """Return the API server's time: whole seconds."""
        if self._second != int(self._loop.moment):
            self._second = int(self._loop.moment)
            self._stamp = format_time(EPOCH + timedelta(seconds=self._second))
        return self._stamp

    def log_stamp(self):
        """Return the kubelet's time in a log line: nine digits of fraction."""
        micros = int(self._loop.moment * 1e6)
        moment = EPOCH + timedelta(microseconds=micros)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}000Z"
