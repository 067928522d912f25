"""The list of nodes in a report's status, for `kubectl` and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_row import NodeRow
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState

# The results of a shard are in its `evidence` already. Copies of more than this are left out: an
# object of the API server has 1.5 MiB at most.
RESULTS_LIMIT_BYTES: Final = 256 * 1024


def build_node_list(
    records: Mapping[str, NodeRecord], ledger: Mapping[str, Evidence], *, has_failed: bool = False
) -> tuple[NodeRow, ...] | None:
    """Return the nodes of one shard in order of their names, None while one is unfinished.

    The list is written as a whole, so it is made once, and not for each node that ends.
    `has_failed`: the run has, so a node whose pod waits at the gate does not start.
    """
    if any(_is_unfinished(record, has_failed=has_failed) for record in records.values()):
        return None
    results = {
        name: dict(sorted(entry.results.items()))
        for name, record in records.items()
        if (entry := ledger.get(name)) is not None and entry.node_uid == record.uid
    }
    if _count_bytes(results) > RESULTS_LIMIT_BYTES:
        results = {}
    return tuple(
        NodeRow(
            name=name,
            state=record.state,
            reason=record.reason,
            attempts=record.attempts,
            exit_code=record.exit_code,
            finished_at=record.finished_at,
            results=results.get(name, {}),
        )
        for name, record in sorted(records.items())
    )


def _is_unfinished(record: NodeRecord, *, has_failed: bool) -> bool:
    if record.state == NodeState.WAITING:
        return not (has_failed and record.reason == NodeReason.SCHEDULING_GATED)
    return record.state == NodeState.ACTIVE


def _count_bytes(results: Mapping[str, Mapping[str, str]]) -> int:
    return sum(
        json_bytes(key) + json_bytes(value)
        for found in results.values()
        for key, value in found.items()
    )
