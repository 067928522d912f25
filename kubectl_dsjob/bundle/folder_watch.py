"""Waits for changes of a folder, by the events of the file system and by a slow poll."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

# An editor's save is several events, and so is a checkout.
DEBOUNCE_SECONDS: Final = 0.5
# A folder that changes all the time is read after this time nevertheless.
DEBOUNCE_LIMIT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 5.0
_JOIN_SECONDS: Final = 2.0


class FolderWatch(FileSystemEventHandler):
    """Watches a folder while it is entered; without inotify only the poll remains."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = asyncio.Event()
        self._observer = Observer()
        self._is_watching = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._observer.schedule(self, str(self._folder), recursive=True)
        with suppress(OSError):
            self._observer.start()
            self._is_watching = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_watching:
            self._observer.stop()
            await asyncio.to_thread(self._observer.join, _JOIN_SECONDS)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Note a change, from a thread of watchdog. Reading a file is an event too, and is none."""
        if event.event_type in {"opened", "closed_no_write"}:
            return
        with suppress(RuntimeError):  # the loop was closed this very moment
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self) -> bool:
        """Return after a burst of events (True), or after the poll's interval (False)."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return False
        deadline = self._loop.time() + DEBOUNCE_LIMIT_SECONDS
        while self._changed.is_set() and self._loop.time() < deadline:
            self._changed.clear()
            await asyncio.sleep(DEBOUNCE_SECONDS)
        self._changed.clear()
        return True
