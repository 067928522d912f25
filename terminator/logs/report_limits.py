"""The lines and results of one node that fit into its report, cleaned.

Pure.
"""

from collections.abc import Iterable, Mapping

from daemonset_job.api.json_text import json_bytes
from terminator.logs.matcher import printable

# Limits for one node in a report, in bytes of JSON as etcd stores it (see json_bytes). With 1,000
# nodes to a report, both together and the controller's part stay below etcd's 1.5 MiB per object.
RESULTS_BYTES = 400
RESULTS_LIMIT = 16  # the CRD's
LAST_LINES_BYTES = 400
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


def bounded_results(results: Mapping[str, str]) -> dict[str, str]:
    """Return the results that fit into RESULTS_BYTES, in order of their names."""
    kept: dict[str, str] = {}
    room = RESULTS_BYTES
    for name in sorted(results):
        size = json_bytes(name) + json_bytes(results[name])
        if size <= room and len(kept) < RESULTS_LIMIT:
            kept[name] = results[name]
            room -= size
    return kept
