"""The lines of one node that fit into its report, cleaned.

Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.line_limits import LAST_LINE_BYTES, LAST_LINES_BYTES, SHORT_LINE_BYTES
from terminator.logs.matcher import printable

LAST_LINES_LIMIT = 50  # the CRD's
LAST_LINE_CHARACTERS = 160
# Bytes kept of a line until then: enough for LAST_LINE_CHARACTERS of any kind, without escapes.
LINE_HEAD_BYTES = 4 * LAST_LINE_CHARACTERS


def readable_lines(lines: Iterable[bytes], count: int) -> tuple[str, ...]:
    """Return the last `count` lines that are not blank, cleaned and bounded."""
    kept: list[str] = []
    room = LAST_LINES_BYTES
    for line in reversed(list(lines)):
        text = printable(line)
        if len(kept) >= count:
            break
        if not text:
            continue
        if len(text) > LAST_LINE_CHARACTERS:
            text = text[: LAST_LINE_CHARACTERS - 1] + "…"
        room -= json_bytes(text)
        if room < 0:
            break
        kept.append(text)
    return tuple(reversed(kept))


def last_line_alone(lines: Sequence[str], limit: int = LAST_LINE_BYTES) -> tuple[str, ...]:
    """Return the last of readable `lines`, cut to `limit` bytes; () without lines."""
    if not lines:
        return ()
    line = lines[-1]
    if json_bytes(line) <= limit:
        return (line,)
    room = limit - json_bytes("…")
    sizes = accumulate(json_bytes(character) for character in line)
    return (line[: sum(size <= room for size in sizes)] + "…",)


def is_cut_from(kept: Sequence[str], lines: Sequence[str]) -> bool:
    """Return whether `kept` is what a report without room for all keeps of these lines."""
    if not kept:
        return not lines
    # Most lines differ in their first characters.
    if not lines or not lines[-1].startswith(kept[-1][:1]):
        return False
    limits = (LAST_LINE_BYTES, SHORT_LINE_BYTES)
    return any(tuple(kept) == last_line_alone(lines, limit) for limit in limits)
