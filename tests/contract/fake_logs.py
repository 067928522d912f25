"""Container logs of the fake API server, with the kubelet's habits."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from daemonset_job.runtime.clock import Clock


@dataclass
class FakeLog:
    """The log of one container: lines with the time the runtime gave them."""

    clock: Clock
    entries: list[tuple[datetime, bytes]] = field(default_factory=list)
    ended: bool = False
    # Raised whenever a follower should drop its connection without a proper end.
    breaks: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, *lines: str | bytes, at: datetime | None = None) -> None:
        """Append lines; each gets its newline."""
        for line in lines:
            raw = line.encode() if isinstance(line, str) else line
            self.entries.append((at or self.clock.now(), raw + b"\n"))
        self._wake()

    def write_raw(self, raw: bytes, at: datetime | None = None) -> None:
        """Append one entry exactly as given: without newline it is an unfinished line."""
        self.entries.append((at or self.clock.now(), raw))
        self._wake()

    def end(self) -> None:
        """End the container: followers see the end of the stream."""
        self.ended = True
        self._wake()

    def break_followers(self) -> None:
        """Drop the connections of all followers while the container runs on."""
        self.breaks += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()


def format_entry(moment: datetime, line: bytes, *, timestamps: bool) -> bytes:
    """Return the entry as the kubelet sends it: RFC3339Nano, one blank, the line."""
    if not timestamps:
        return line
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
    return stamp.encode() + b" " + line
