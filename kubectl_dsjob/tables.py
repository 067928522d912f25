"""Tables and lists as text: columns as kubectl prints them, and CSV. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rich.cells import cell_len

_GAP: Final = "   "
# A spreadsheet takes a cell that begins so for a formula, which a task could have printed.
# Some take the wide forms of these characters too, and some skip blanks before them.
_FORMULA_STARTS: Final = tuple("=+-@＝＋－＠")  # noqa: RUF001
# Where commas are decimal, a spreadsheet begins a cell after a semicolon, also inside of quotes.
# Not even a number is one there, since the rest of the row follows it.
_INNER_FORMULA: Final = re.compile(r"([;\t])(?=[\s\"]*[=+@\-＝＋－＠])")  # noqa: RUF001
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows in aligned columns, without blanks at the end of lines."""
    lines = [list(header), *(list(row) for row in rows)]
    # Measured once: a long text takes a while.
    sizes = [list(map(cell_len, line)) for line in lines]
    widths = [max(line[i] for line in sizes) for i in range(len(header))]
    return "\n".join(
        _GAP.join(
            text + " " * (width - size) for text, size, width in zip(line, own, widths, strict=True)
        ).rstrip()
        for line, own in zip(lines, sizes, strict=True)
    )


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as CSV (RFC 4180). No cell is a formula for a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_safe_cell(cell) for cell in header])
    writer.writerows([_safe_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def _safe_cell(text: str) -> str:
    text = _INNER_FORMULA.sub(r"\1'", text)
    bare = text.strip()
    is_formula = bare.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(bare)
    return f"'{text}" if is_formula else text


def age(since: datetime | None, now: datetime) -> str:
    """Return the time since a moment in its two largest units, such as `3m12s`."""
    return "" if since is None else duration((now - since).total_seconds())


def duration(seconds: float) -> str:
    """Return a duration in its two largest units; less than a second, or less than none, is 0s."""
    left = max(int(seconds), 0)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, rest = divmod(left, size)
        if count or (parts and rest):
            parts.append(f"{count}{unit}" if count else "")
        left = rest
        if len(parts) == 2:
            break
    return "".join(parts) or "0s"


def counted(number: int, noun: str) -> str:
    """Return a number of things with their noun, such as `1 node` and `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shorten(text: str, width: int) -> str:
    """Return a text that takes at most `width` columns of a terminal."""
    if cell_len(text) <= width:
        return text
    kept = text[: max(width, 1)]
    while kept and cell_len(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…"
