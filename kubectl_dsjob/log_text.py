"""Logs as text for a terminal: bytes become clean lines, and equal outputs are printed once. Pure.

A log is untrusted. No byte of it controls the terminal, and no line of it fills the memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from daemonset_job.api.fold_names import fold

# A longer line is printed in pieces of this size.
LINE_LIMIT_BYTES: Final = 64 * 1024
# What --group keeps of different outputs, all nodes together.
GROUP_LIMIT_CHARACTERS: Final = 64 * 1024 * 1024
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_TAB_COLUMNS: Final = 8
# Sequences of a terminal (ECMA-48): CSI, then strings such as a title of the window, then others.
# A string without its end is no match, so its text is shown; the search ends at the next one.
_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
_TIME: Final = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:\d\d)$")
_GROUP_RULE: Final = "-" * 16


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log; `time` is that of the kubelet, "" if it was not asked for."""

    text: str
    time: str = ""


class LogParser:
    """Cuts the bytes of one log into clean lines; holds one unfinished line at most."""

    def __init__(self, *, has_times: bool) -> None:
        """Make a parser of a log, whose lines begin with a time if `has_times`."""
        self._has_times = has_times
        self._rest = b""
        self._is_inside = False
        self._time = ""

    def feed(self, chunk: bytes) -> list[LogLine]:
        """Return the lines that `chunk` completes."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        lines = [piece for line in complete for piece in self._pieces(line, is_end=True)]
        if len(self._rest) >= LINE_LIMIT_BYTES:
            lines += self._pieces(self._rest, is_end=False)
            self._rest = b""
        return lines

    def end(self) -> list[LogLine]:
        """Return the last line, if it has no newline."""
        rest, self._rest = self._rest, b""
        return self._pieces(rest, is_end=True) if rest else []

    def _pieces(self, line: bytes, *, is_end: bool) -> list[LogLine]:
        if self._has_times and not self._is_inside:
            time, _, line = line.partition(b" ")
            self._time = clean_line(time.decode("ascii", "replace"))
        self._is_inside = not is_end
        starts = range(0, max(len(line), 1), LINE_LIMIT_BYTES)
        parts = (line[start : start + LINE_LIMIT_BYTES] for start in starts)
        return [LogLine(clean_line(part.decode("utf-8", "replace")), self._time) for part in parts]


def clean_line(text: str) -> str:
    """Return a line without what controls a terminal; blanks and tabs stay blanks."""
    text = text.rstrip("\r")
    if text.isprintable():
        return text
    text = _ESCAPES.sub("", text).expandtabs(_TAB_COLUMNS)
    return "".join(c if c.isprintable() else _stand_in(c) for c in text)


def format_lines(node: str, lines: Sequence[LogLine], *, has_prefix: bool, has_times: bool) -> str:
    """Return lines of one node as they are printed, each with its newline."""
    prefix = f"{node}: " if has_prefix else ""
    return "".join(f"{prefix}{line.time + ' ' if has_times else ''}{line.text}\n" for line in lines)


def _stand_in(character: str) -> str:
    return (
        " " if character.isspace() and character not in "\r\v\f\x1c\x1d\x1e\x1f" else _REPLACEMENT
    )


def time_key(time: str) -> str:
    """Return a time of a kubelet so that later ones are greater; "" if it is none."""
    found = _TIME.match(time)
    return f"{found[1]}.{(found[2] or '').ljust(9, '0')}" if found else ""


class NewLines:
    """Leaves out the lines that were seen before a log was opened again."""

    def __init__(self) -> None:
        self.last = ""
        self._at_last = 0
        self._to_skip = 0

    def opened_again(self) -> None:
        """Note that lines from the last time on come once more."""
        self._to_skip = self._at_last

    def is_new(self, line: LogLine) -> bool:
        """Return whether the line was not seen yet, and note it."""
        key = time_key(line.time)
        if not key:
            return True
        if key < self.last:
            return False
        if key == self.last:
            if self._to_skip:
                self._to_skip -= 1
                return False
            self._at_last += 1
            return True
        self.last, self._at_last, self._to_skip = key, 1, 0
        return True


class Groups:
    """The outputs of nodes, equal ones once."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[str]] = {}
        self._size = 0

    def add(self, node: str, lines: Sequence[str]) -> bool:
        """Add the output of a node. False if there is no room for so many different ones."""
        text = "\n".join(lines)
        if text not in self._nodes:
            self._size += len(text)
            if self._size > GROUP_LIMIT_CHARACTERS:
                return False
        self._nodes.setdefault(text, []).append(node)
        return True

    def text(self) -> str:
        """Return each output under its nodes; the one of most nodes first, the odd ones last."""
        ordered = sorted(self._nodes.items(), key=lambda item: (-len(item[1]), min(item[1])))
        parts = []
        for text, nodes in ordered:
            count = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
            parts += [_GROUP_RULE, f"{fold(nodes)}{count}", _GROUP_RULE, text]
        return "\n".join(parts)
