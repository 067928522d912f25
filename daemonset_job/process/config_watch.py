"""Watches the mounted configuration file, and passes its text on when it has changed.

A ConfigMap's files are symbolic links into a directory ``..data``, itself a link that the
kubelet swaps: the file never changes, its directory does. So watchdog watches the directory,
and the text is compared with the former one. A slow poll finds changes that the file system does
not report.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from loguru import logger
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

# One swap is several events, and an editor's save is a few more.
DEBOUNCE_SECONDS = 0.2
POLL_SECONDS = 60.0
# No configuration of ours is longer; a file of this size is a mistake.
SIZE_LIMIT = 256 * 1024


def read_text(path: Path) -> str | None:
    """Return the file's text, None if there is no such file; OSError or ValueError otherwise."""
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(raw) > SIZE_LIMIT:
        raise ValueError(f"{path} is longer than {SIZE_LIMIT} bytes: it is no configuration")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        why = f"{error.reason}, byte {error.start}"
        raise ValueError(f"{path} is not text in UTF-8: {why}") from error


class _Waker(FileSystemEventHandler):
    def __init__(self, loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
        self._loop = loop
        self._changed = changed
        self._is_closed = False

    def close(self) -> None:
        """Ignore all further events."""
        self._is_closed = True

    def on_any_event(self, event: FileSystemEvent) -> None:
        # Reading the file is an event too, and must not cause another read.
        if self._is_closed or event.event_type in {"opened", "closed_no_write"}:
            return
        with suppress(RuntimeError):  # the loop was closed this very moment
            self._loop.call_soon_threadsafe(self._changed.set)


async def follow_file(
    path: Path,
    known: str | None,
    on_text: Callable[[str | None], None],
    on_error: Callable[[Exception], None],
) -> None:
    """Call `on_text` with the file's text whenever it has changed, until cancelled.

    `known` is the text that the caller has already, None for no file. If the file cannot be read,
    `on_error` is called once per change.
    """
    changed = asyncio.Event()
    observer = Observer()
    waker = _Waker(asyncio.get_running_loop(), changed)
    observer.schedule(waker, str(path.parent), recursive=False)
    try:
        observer.start()
        is_watching = True
    except OSError as error:
        # No such directory, or no inotify watches left: only the slow poll remains.
        is_watching = False
        logger.bind(path=str(path.parent), error=str(error)).info(
            "cannot watch the configuration's directory, reading the file every minute"
        )
    problem = ""
    try:
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await changed.wait()
                await asyncio.sleep(DEBOUNCE_SECONDS)
            except TimeoutError:
                pass
            changed.clear()
            try:
                text = read_text(path)
            except (OSError, ValueError) as error:
                # The slow poll reads the same file again and again.
                if str(error) != problem:
                    problem = str(error)
                    on_error(error)
                continue
            problem = ""
            if text != known:
                known = text
                on_text(text)
    finally:
        waker.close()
        if is_watching:
            # Takes up to a second, which a stopping process must not wait for. The threads end with
            # the process anyway.
            threading.Thread(target=observer.stop, name="watchdog-stop", daemon=True).start()
