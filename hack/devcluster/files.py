"""Files that are whole or absent: temporary names, renames, locks, and safe removal."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hack.devcluster import shell
from hack.devcluster.progress import say

UNFINISHED = ".unfinished-"


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock of that name; say so when another run has to be waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another devcluster run which holds {file.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def unfinished(final: Path) -> Iterator[Path]:
    """Give a name to build under; it becomes `final` only when the block ends well.

    What an interrupted run left behind is removed first: call it under the lock of `final`.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    for left in final.parent.glob(f"{UNFINISHED}{final.name}-*"):
        remove(left)
    work = final.parent / f"{UNFINISHED}{final.name}-{os.getpid()}"
    try:
        yield work
        if final.is_dir() and not final.is_symlink():
            remove(final)
        work.rename(final)
    finally:
        remove(work)


@contextmanager
def scratch(folder: Path, name: str) -> Iterator[Path]:
    """Give an empty folder that is gone afterwards, on the cache's disk; call it under a lock."""
    for left in folder.glob(f"{UNFINISHED}{name}-*"):
        remove(left)
    work = folder / f"{UNFINISHED}{name}-{os.getpid()}"
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        remove(work)


def remove(path: Path) -> None:
    """Remove a file or a tree, after unmounting what is mounted below: never a mount's content."""
    for mount in mounts_below(Path("/proc/self/mounts"), path):
        shell.output(["umount", "-l", mount])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def mounts_below(table: Path, folder: Path) -> list[str]:
    """Return the mount points at or below a folder, deepest first."""
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return []
    points = [line.split()[1].encode().decode("unicode_escape") for line in lines if line]
    inside = [p for p in points if p == str(folder) or p.startswith(f"{folder}/")]
    return sorted(inside, key=len, reverse=True)


def digest(parts: Iterable[str | Path], *, length: int = 12) -> str:
    """Return a hash over strings, file contents and the files in folders, names included."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            total.update(f"text {len(part)}\n{part}".encode())
            continue
        for file in sorted(tree(part)):
            data = str(file.readlink()).encode() if file.is_symlink() else file.read_bytes()
            mode = "x" if os.access(file, os.X_OK) else "-"
            total.update(f"file {file.relative_to(part)} {mode} {len(data)}\n".encode())
            total.update(data)
    return total.hexdigest()[:length]


def tree(path: Path) -> Iterator[Path]:
    """Yield every file at or below a path, leaving out what Python caches."""
    if not path.is_dir():
        if path.exists():
            yield path
        return
    for child in path.iterdir():
        if child.name == "__pycache__" or child.name.endswith(".egg-info"):
            continue
        if child.is_symlink() or child.is_file():
            yield child
        elif child.is_dir():
            yield from tree(child)


def read_pid(file: Path) -> int | None:
    """Return the pid in a file, if it is one."""
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None


def is_running(pid: int | None, mark: str) -> bool:
    """Say whether a process lives and has `mark` in its command line: pids are used again."""
    if pid is None:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return mark in command.replace(b"\0", b" ").decode(errors="replace")
