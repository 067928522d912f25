"""Node names, folded: `node-[001-003,007]` in place of four names.

The notation is the one of pdsh and its kin: names alike but for one number are written once,
with the numbers as ranges. Padding is kept: `9` and `09` are different names, so numbers fold
together only when they are of one width, or unpadded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

_DIGITS = re.compile(r"\d+")
# Numbers longer than this are identifiers, not positions in a row.
_MAX_DIGITS = 9


def fold(node_names: Iterable[str], *, limit: int = 1024) -> str:
    """Return the names folded and sorted, cut at `limit` characters with the number left out.

    The names are folded over their last number that varies: `a1-x2`, `a1-x3` give `a1-x[2-3]`.
    """
    parts = _fold_all(sorted(set(node_names)))
    text, shown = "", 0
    for part, count in parts:
        candidate = f"{text},{part}" if text else part
        if len(candidate) > limit:
            rest = sum(n for _, n in parts) - shown
            return f"{text} and {rest} more" if text else f"{rest} nodes"
        text, shown = candidate, shown + count
    return text


def _fold_all(unique: Sequence[str]) -> list[tuple[str, int]]:
    """Return (text, number of names) for each group, ordered by its first name."""
    by_shape: dict[tuple[str, str], list[str]] = defaultdict(list)
    alone: list[str] = []
    for name in unique:
        last = next(reversed(list(_DIGITS.finditer(name))), None)
        if last is None or len(last.group()) > _MAX_DIGITS:
            alone.append(name)
        else:
            by_shape[name[: last.start()], name[last.end() :]].append(last.group())
    folded = [(name, name, 1) for name in alone]
    for (head, tail), numbers in by_shape.items():
        ranges = _ranges(numbers)
        first = f"{head}{ranges[0][0]}{tail}"
        if len(numbers) == 1:
            folded.append((first, first, 1))
        else:
            inner = ",".join(low if low == high else f"{low}-{high}" for low, high in ranges)
            folded.append((first, f"{head}[{inner}]{tail}", len(numbers)))
    return [(text, count) for _, text, count in sorted(folded)]


def _ranges(numbers: Iterable[str]) -> list[tuple[str, str]]:
    """Return runs of consecutive numbers of one spelling: same width, or neither padded."""
    ranges: list[tuple[str, str]] = []
    for number in sorted(numbers, key=lambda n: (int(n), len(n))):
        if ranges and _follows(ranges[-1][1], number):
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _follows(last: str, number: str) -> bool:
    if int(number) != int(last) + 1:
        return False
    # 9 -> 10 is one row, 09 -> 10 as well; 09 -> 010 and 099 -> 1000 of unlike padding are not.
    return len(number) == len(last) or not (last.startswith("0") or number.startswith("0"))
