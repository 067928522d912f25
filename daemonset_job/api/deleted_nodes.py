"""How many deleted nodes the report of a Job of policy Continuous keeps.

Such a Job has no end, and clusters that scale have other nodes every day.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

# The nodes that finished last are kept. Many are dropped at a time, so that few writes do it.
_KEPT: Final = 100
_MOST: Final = 200
_UNKNOWN: Final = datetime.min.replace(tzinfo=UTC)


def find_dropped_nodes(deleted: Mapping[str, datetime | None]) -> frozenset[str]:
    """Return which deleted nodes to drop, by when each finished; None for an unknown time."""
    if len(deleted) <= _MOST:
        return frozenset()
    newest_last = sorted(deleted, key=lambda name: (deleted[name] or _UNKNOWN, name))
    return frozenset(newest_last[:-_KEPT])
