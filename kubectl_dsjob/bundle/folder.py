"""Reads a folder of scripts: a bounded number of regular files, none from outside of it.

Files directly in the folder are run; those in its subfolders are data for them.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from kubectl_dsjob.bundle.problems import Problem, clean
from kubectl_dsjob.errors import CliError

FILES_LIMIT: Final = 1000
SCRIPTS_LIMIT: Final = 100
SIZE_LIMIT_BYTES: Final = 32 * 1024 * 1024
DEPTH_LIMIT: Final = 8

# No character of these names has a meaning for a shell, a Dockerfile or a terminal.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]{0,127}")
# Beside scripts there are often files about them. Those without a `#!` line are left out.
_NO_SCRIPTS: Final = (
    *("*.md", "*.txt", "*.rst", "*.yaml", "*.yml", "*.json", "*.toml", "*.bak", "*.orig", "*~"),
    *("README*", "LICENSE*", "Dockerfile*", "Containerfile*", "Makefile"),
)


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A regular file: its path in the folder with `/`, its content, and whether it may be run."""

    path: str
    content: bytes
    is_executable: bool

    @property
    def is_script(self) -> bool:
        """Whether run-once runs it: it is directly in the folder."""
        return "/" not in self.path


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder holds: files by the order of their names, what is left out, and problems."""

    files: tuple[BundleFile, ...]
    left_out: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def scripts(self) -> tuple[BundleFile, ...]:
        """The files that are run, in the order in which run-once runs them."""
        return tuple(each for each in self.files if each.is_script)


@dataclass(slots=True)
class _Reading:
    """What has been read up to now; `seen` counts every entry of the folder."""

    root: Path
    found: list[tuple[Path, str]] = field(default_factory=list)
    files: list[BundleFile] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seen: int = 0
    size_bytes: int = 0


def read_folder(path: Path) -> Folder:
    """Return the files of a folder. CliError if it is no folder, or too large for one of scripts.

    What is wrong with a single file is among the problems.
    """
    try:
        root = path.resolve(strict=True)
        if not root.is_dir():
            raise CliError(f"{clean(str(path))} is no folder", "Name the folder of the scripts.")
        reading = _Reading(root)
        _look(reading, root, "")
        # Nothing is read before the folder is known to have few files.
        for file, name in reading.found:
            _add(reading, file, name)
    except OSError as error:
        message = f"cannot read {clean(str(error.filename or path))}: {error.strerror}"
        raise CliError(message, "Name a folder that you can read.") from error
    # By the bytes of the names, as the glob of run-once does with LC_ALL=C.
    files = sorted(reading.files, key=lambda each: each.path.encode())
    if sum(each.is_script for each in files) > SCRIPTS_LIMIT:
        raise _too_large(f"more than {SCRIPTS_LIMIT} scripts", path)
    return Folder(tuple(files), tuple(sorted(reading.left_out)), tuple(reading.problems))


def _look(reading: _Reading, folder: Path, prefix: str) -> None:
    for entry in _entries(reading, folder):
        name = prefix + entry.name
        if entry.name.startswith("."):
            reading.left_out.append(name)
        elif not _NAME.fullmatch(entry.name):
            fix = "rename it: letters, digits and . _ + @ = - only, 128 at most"
            reading.problems.append(Problem(name, "the name has other characters", fix))
        elif entry.is_dir(follow_symlinks=False):
            if name.count("/") >= DEPTH_LIMIT:
                raise _too_large(f"folders more than {DEPTH_LIMIT} deep", reading.root)
            _look(reading, Path(entry.path), name + "/")
        else:
            reading.found.append((Path(entry.path), name))


def _entries(reading: _Reading, folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            reading.seen += 1
            if reading.seen > FILES_LIMIT:
                raise _too_large(f"more than {FILES_LIMIT} files", reading.root)
            yield entry


def _add(reading: _Reading, path: Path, name: str) -> None:
    real = path
    if path.is_symlink():
        found = _target(reading, path, name)
        if found is None:
            return
        real = found
    mode = real.lstat().st_mode
    if not stat.S_ISREG(mode):
        reading.problems.append(Problem(name, "is no regular file", "remove it from the folder"))
        return
    content = _content(reading, real)
    if content is None:
        fix = "let your user read it: chmod u+r"
        reading.problems.append(Problem(name, "cannot be read", fix))
        return
    is_script = "/" not in name
    if is_script and not content.startswith(b"#!") and _is_about_scripts(name):
        reading.left_out.append(name)
        return
    reading.files.append(BundleFile(name, content, bool(mode & 0o111)))


def _target(reading: _Reading, path: Path, name: str) -> Path | None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        fix = "remove the link, or put the file there"
        reading.problems.append(Problem(name, "is a link to a file that does not exist", fix))
        return None
    if not target.is_relative_to(reading.root):
        source = shlex.quote(clean(str(target)))
        fix = f"copy the file into the folder: cp --remove-destination {source} {name}"
        reading.problems.append(Problem(name, "is a link out of the folder", fix))
        return None
    return target


def _content(reading: _Reading, path: Path) -> bytes | None:
    left = SIZE_LIMIT_BYTES - reading.size_bytes
    try:
        # No link and no pipe, even if the file was replaced since it was looked at.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(left + 1)
    except OSError:
        return None
    if len(content) > left:
        raise _too_large(f"more than {SIZE_LIMIT_BYTES // 2**20} MiB of files", reading.root)
    reading.size_bytes += len(content)
    return content


def _is_about_scripts(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _NO_SCRIPTS)


def _too_large(what: str, path: Path) -> CliError:
    way = "Make a folder that has only the scripts and what they need, and name that."
    return CliError(f"{clean(str(path))} has {what}", way)
