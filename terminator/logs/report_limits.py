"""The lines of one node that fit into its report, cleaned.

Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from daemonset_job.api.json_text import json_bytes
from terminator.logs.matcher import printable

# Limits for one node in a report, in bytes of JSON as etcd stores it (see json_bytes). With 1,000
# nodes to a report, all of them and the controller's part stay below etcd's 1.5 MiB per object. So
# only the first failing nodes of a report have LAST_LINES_BYTES. Any other one has its last line,
# of LAST_LINE_BYTES.
LAST_LINES_LIMIT = 50  # the CRD's
LAST_LINES_BYTES = 4096
LAST_LINES_NODES = 20
LAST_LINE_BYTES = 300
# How many nodes of a report have both a last line and the progress of the next attempt.
PROGRESS_NODES = 200
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


def last_line_alone(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last of readable `lines`, cut to LAST_LINE_BYTES; () without lines."""
    if not lines:
        return ()
    line = lines[-1]
    if json_bytes(line) <= LAST_LINE_BYTES:
        return (line,)
    room = LAST_LINE_BYTES - json_bytes("…")
    sizes = accumulate(json_bytes(character) for character in line)
    return (line[: sum(size <= room for size in sizes)] + "…",)
