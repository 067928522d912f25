"""Commands on a terminal that is narrower than they are: they can be copied as a whole. Pure."""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len

# A word as a shell takes it: what `shlex.quote` has put into quotes stays in one line.
_WORD: Final = re.compile(r"(?:'[^']*'|\S)+")
_CONTINUED: Final = " \\"
_INDENT: Final = "  "


def wrap_command(text: str, width: int) -> list[str]:
    """Return a line that has a command as lines of `width` columns; a quoted word may be wider.

    A line that ends within the command ends with a backslash. A shell would run the first line
    alone without it: in another namespace, or another cluster.
    """
    if cell_len(text) <= width:
        return [text]
    start = text[: len(text) - len(text.lstrip())]
    words = _WORD.findall(text)
    lines: list[str] = []
    line, is_inside = start + words[0], _is_inside(words[0], is_inside=False)
    for i, word in enumerate(words[1:], 2):
        was_inside, is_inside = is_inside, _is_inside(word, is_inside=is_inside)
        longer = f"{line} {word}"
        more = _CONTINUED if is_inside and i < len(words) else ""
        if cell_len(longer + more) <= width:
            line = longer
            continue
        lines.append(line + (_CONTINUED if was_inside else ""))
        line = start + (_INDENT if was_inside else "") + word
        while is_inside and "'" not in word and len(line + more) > width:
            lines.append(line[: width - 1] + "\\")
            line = line[width - 1 :]
    return [*lines, line]


def _is_inside(word: str, *, is_inside: bool) -> bool:
    """Return whether the next word is one of the same command; a backquote ends a command."""
    begun = word.lstrip("`(")
    return (is_inside or begun.startswith("kubectl")) and "`" not in begun
