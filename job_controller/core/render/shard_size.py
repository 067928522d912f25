"""How much one shard of a report has, against what the API server takes.

etcd takes 1.5 MiB per object. Evidence and records have limits for each node, and come first. What
is added to them has the room that they leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.json_text import json_value_bytes
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_row import NodeRow

# A shard that has more than this gets no further failures of nodes, and one that has more than the
# second gets no list of nodes. Bytes of JSON. The rest is for the manifest (64 KiB without its
# escapes), the arguments (16 KiB), and messages that become longer.
FAILURES_LIMIT_BYTES: Final = 1312 * 1024
LIST_LIMIT_BYTES: Final = 1408 * 1024
# A shard of so few nodes has room, and is not measured. Its evidence is bounded (`shard_room`), and
# the records and rows of so few nodes have about 1 KiB each.
SMALL_NODES: Final = 200


def count_shard_bytes(evidence: Mapping[str, Evidence], records: Mapping[str, NodeRecord]) -> int:
    """Return the size of a shard's evidence and records as the API server keeps them."""
    return sum(
        json_value_bytes(name) + json_value_bytes(entry.to_raw()) + 2
        for entries in (evidence, records)
        for name, entry in entries.items()
    )


def has_room_for_list(
    evidence: Mapping[str, Evidence], records: Mapping[str, NodeRecord], rows: Sequence[NodeRow]
) -> bool:
    """Return whether the list of nodes fits into a shard that has these."""
    if len(rows) <= SMALL_NODES:
        return True
    size = sum(json_value_bytes(row.to_raw()) + 1 for row in rows)
    return count_shard_bytes(evidence, records) + size <= LIST_LIMIT_BYTES
