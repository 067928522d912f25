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
from daemonset_job.api.report import JobReport

# A shard that has more than this gets no further failures of nodes, and one that has more than the
# second gets no list of nodes. Bytes of JSON. The rest is for the manifest (64 KiB without its
# escapes), the arguments (16 KiB), and messages that become longer.
FAILURES_LIMIT_BYTES: Final = 1312 * 1024
LIST_LIMIT_BYTES: Final = 1408 * 1024
# What these leave for manifest and arguments. A larger manifest, with the names of many nodes or
# many escapes, takes the rest from the failures and from the list.
_SPEC_BYTES: Final = 80 * 1024
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


def room_for_failures(report: JobReport) -> int:
    """Return how many bytes of failures fit into a shard beside what it has."""
    size = count_shard_bytes(report.evidence, report.records)
    return FAILURES_LIMIT_BYTES - size - _excess_bytes(report)


def has_room_for_list(
    report: JobReport, records: Mapping[str, NodeRecord], rows: Sequence[NodeRow]
) -> bool:
    """Return whether the list of nodes fits into a shard that gets these records."""
    excess = _excess_bytes(report)
    if len(rows) <= SMALL_NODES and not excess:
        return True
    size = sum(json_value_bytes(row.to_raw()) + 1 for row in rows)
    return count_shard_bytes(report.evidence, records) + size <= LIST_LIMIT_BYTES - excess


def _excess_bytes(report: JobReport) -> int:
    return max(report.spec_bytes - _SPEC_BYTES, 0)
