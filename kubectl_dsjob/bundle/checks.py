"""Checks the scripts of a folder as run-once will find them. Pure: nothing is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from kubectl_dsjob.bundle.folder import BundleFile, Folder
from kubectl_dsjob.bundle.problems import Problem

# The programs of the task image that may begin a script (images/task: Debian slim).
INTERPRETERS: Final = frozenset(
    {"sh", "dash", "bash", "rbash", "busybox", "perl", "awk", "mawk", "sed", "env"}
)
_FOLDERS: Final = frozenset({"/bin", "/usr/bin"})
_ELF: Final = b"\x7fELF"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def check_folder(folder: Folder, *, is_base_ours: bool) -> list[Problem]:
    """Return what keeps the folder from being a task, and what may be a mistake.

    On another base image than the project's, the interpreters are not known.
    """
    problems = list(folder.problems)
    if not folder.scripts and not problems:
        fix = "put a file into it whose first line is #!/bin/sh"
        problems.append(Problem("the folder", "there is no script in it", fix))
    for file in folder.scripts:
        problems += _check(file, is_base_ours=is_base_ours)
    return problems


def interpreter(content: bytes) -> list[str]:
    """Return the words of the first line after `#!`, [] if there is none."""
    if not content.startswith(b"#!"):
        return []
    first = content[2:].split(b"\n", 1)[0][:256].decode("utf-8", "replace").strip()
    return first.split(None, 1)


def shell_of(content: bytes) -> str:
    """Return the name of the shell that runs a script, "" if it is another program."""
    words = " ".join(interpreter(content)).split()
    name = PurePosixPath(words[0]).name if words else ""
    if name == "env":
        rest = [word for word in words[1:] if not word.startswith("-")]
        name = PurePosixPath(rest[0]).name if rest else ""
    return name if name in {"sh", "dash", "bash"} else ""


def _check(file: BundleFile, *, is_base_ours: bool) -> Iterator[Problem]:
    quoted = shlex.quote(file.path)
    if not file.content:
        yield Problem(file.path, "the file is empty", f"write it, or remove it: rm {quoted}")
        return
    if not file.is_executable:
        yield Problem(
            file.path,
            "the file is not executable; in the image it is",
            f"chmod +x {quoted}",
            is_warning=True,
        )
    if file.content.startswith(_ELF):
        return
    if file.content.startswith(_BYTE_ORDER_MARK):
        fix = f"remove it: sed -i '1s/^\\xef\\xbb\\xbf//' {quoted}"
        yield Problem(file.path, "a byte order mark is before its first character", fix, 1)
        return
    words = interpreter(file.content)
    if not words or not words[0].startswith("/"):
        yield _no_interpreter(file, words)
    elif _is_env_misled(words):
        fix = f"make #!{words[0]} -S {words[1]} its first line"
        yield Problem(file.path, f"env looks for a program named {words[1]!r}", fix, 1)
    elif is_base_ours:
        yield from _unknown(file, words)
    if (line := _line_with_cr(file.content)) and b"\0" not in file.content:
        fix = f"save it with LF: sed -i 's/\\r$//' {quoted}"
        yield Problem(file.path, "the line ends with CR LF", fix, line)


def _no_interpreter(file: BundleFile, words: Iterable[str]) -> Problem:
    message = "the first line does not name an interpreter"
    if list(words):
        message += " by its full path"
    fix = "make #!/bin/sh its first line; a file that is no script goes into a subfolder"
    return Problem(file.path, message, fix, 1)


def _is_env_misled(words: list[str]) -> bool:
    """Return whether `env` gets a program and its options as one word, as the kernel gives it."""
    is_env = PurePosixPath(words[0]).name == "env"
    rest = "".join(words[1:])
    return is_env and not rest.startswith("-") and len(rest.split()) > 1


def _unknown(file: BundleFile, words: list[str]) -> Iterator[Problem]:
    program = PurePosixPath(words[0].rstrip("\r"))
    named = str(program)
    is_known = str(program.parent) in _FOLDERS and program.name in INTERPRETERS
    if is_known and program.name == "env":
        rest = [word for word in " ".join(words[1:]).split() if not word.startswith("-")]
        named = rest[0] if rest else ""
        is_known = named in INTERPRETERS - {"env"}
    if not is_known:
        message = f"the task image has no {named or 'program of that name'}"
        fix = "write it for sh, bash or perl, or add it to the task image, and use --base"
        yield Problem(file.path, message, fix, 1)


def _line_with_cr(content: bytes) -> int:
    before, found, _ = content.partition(b"\r\n")
    return before.count(b"\n") + 1 if found else 0
