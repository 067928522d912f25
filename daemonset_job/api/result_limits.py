"""How large the results of one node may be, and what they take in a report.

Pure. The terminator drops what is beyond these limits. Both programs find out by them how many
nodes fit into one shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from daemonset_job.api.json_text import json_bytes

# Bytes of UTF-8: of one value, and of all values of a node.
RESULT_BYTES: Final = 1024
RESULTS_BYTES: Final = 4096
RESULTS_LIMIT: Final = 16  # the CRD's
NAME_BYTES: Final = 63  # the CRD's
# The quotes of a name and of its value, the colon and the comma.
_ENTRY_BYTES: Final = 6
# etcd stores two bytes for a quote or a backslash, and six for `<`, `>` and `&`. So a value, and
# all values of a node, may take twice their limit there: enough for any JSON.
_ESCAPED: Final = 2


def stored_bytes(results: Mapping[str, str], omitted: Iterable[str] = ()) -> int:
    """Return how many bytes of a report results take, with the names of those left out."""
    return sum(
        json_bytes(name) + json_bytes(value) + _ENTRY_BYTES for name, value in results.items()
    ) + sum(json_bytes(name) + _ENTRY_BYTES for name in omitted)


def is_too_long(value: str) -> bool:
    """Return whether one value is beyond the limits."""
    return len(value.encode("utf-8", "replace")) > RESULT_BYTES or (
        json_bytes(value) > _ESCAPED * RESULT_BYTES
    )


def bounded_results(results: Mapping[str, str | None]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the results that fit into one node's entry, and the names of the others.

    They are taken in order of their names. A value that is None was too long.
    """
    kept: dict[str, str] = {}
    omitted: list[str] = []
    room, stored_room = RESULTS_BYTES, _ESCAPED * RESULTS_BYTES
    for name in sorted(results):
        value = results[name]
        if value is None or is_too_long(value) or len(kept) >= RESULTS_LIMIT:
            omitted.append(name)
            continue
        size, stored = len(value.encode("utf-8", "replace")), json_bytes(value)
        if size > room or stored > stored_room:
            omitted.append(name)
            continue
        kept[name] = value
        room, stored_room = room - size, stored_room - stored
    return kept, tuple(omitted[:RESULTS_LIMIT])


def most_stored_bytes(count: int) -> int:
    """Return how many bytes `count` declared results of a node take at most."""
    values = _ESCAPED * min(RESULTS_BYTES, count * RESULT_BYTES)
    return values + count * (NAME_BYTES + _ENTRY_BYTES)
