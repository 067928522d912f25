"""The list of nodes in a report's status, for `kubectl` and its tables."""

from __future__ import annotations

from collections.abc import Mapping

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.listed_results import listed_results
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_row import NodeRow
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState


def build_node_list(
    records: Mapping[str, NodeRecord], ledger: Mapping[str, Evidence], *, has_failed: bool = False
) -> tuple[NodeRow, ...] | None:
    """Return the nodes of one shard in order of their names, None while one is unfinished.

    The list is written as a whole, so it is made once, and not for each node that ends.
    `has_failed`: the run has, so a node whose pod waits at the gate does not start.
    """
    if any(_is_unfinished(record, has_failed=has_failed) for record in records.values()):
        return None
    results = listed_results(records, ledger)
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
