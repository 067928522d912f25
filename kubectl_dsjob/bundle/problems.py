"""What is wrong with a folder of scripts: file, line, problem and fix. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# A folder can have as many problems as it has lines. The first ones are enough to start with.
SHOWN_LIMIT: Final = 20
_TEXT_LIMIT: Final = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding; `line` is 0 if it is about the file as a whole.

    A warning does not keep the image from being built.
    """

    file: str
    message: str
    fix: str
    line: int = 0
    is_warning: bool = False


def format_problems(problems: Iterable[Problem]) -> str:
    """Return the problems as lines, errors first, the first 20 of them."""
    listed = sorted(problems, key=lambda each: (each.is_warning, each.file, each.line))
    lines = [_line(each) for each in listed[:SHOWN_LIMIT]]
    if left := len(listed) - len(lines):
        lines.append(f"and {left} more")
    return "\n".join(lines)


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that are no warnings."""
    return [each for each in problems if not each.is_warning]


def clean(text: str, limit: int = _TEXT_LIMIT) -> str:
    """Return a text from outside for a terminal: without control characters, and bounded."""
    shown = "".join(each if each.isprintable() else "?" for each in text[:limit])
    return shown + ("…" if len(text) > limit else "")


def _line(problem: Problem) -> str:
    where = f"{clean(problem.file)}:{problem.line}" if problem.line else clean(problem.file)
    word = "warning: " if problem.is_warning else ""
    fix = f" Fix: {problem.fix}" if problem.fix else ""
    return f"{where}: {word}{clean(problem.message)}.{fix}"
