"""Which results the list of nodes in the report of an ended run has.

Pure. The controller writes the list. The terminator keeps a Job until the list is up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport

# The results of a shard are in its `evidence` already. Copies of more than this are left out: an
# object of the API server has 1.5 MiB at most.
RESULTS_LIMIT_BYTES: Final = 256 * 1024


def listed_results(
    records: Mapping[str, NodeRecord], ledger: Mapping[str, Evidence]
) -> dict[str, dict[str, str]]:
    """Return the results that the list of a shard has, by node; none if they take too much."""
    results = {
        name: dict(sorted(entry.results.items()))
        for name, record in records.items()
        if (entry := ledger.get(name)) is not None
        and entry.node_uid == record.uid
        and entry.results
    }
    return {} if _count_bytes(results) > RESULTS_LIMIT_BYTES else results


def lists_lack_results(reports: Iterable[JobReport], ledger: Mapping[str, Evidence]) -> bool:
    """Return whether a list of nodes that is written lacks results that the ledger has."""
    for report in reports:
        rows = report.status.node_list
        wanted = listed_results(report.records, ledger) if rows else {}
        if any(row.results != wanted.get(row.name, {}) for row in rows):
            return True
    return False


def _count_bytes(results: Mapping[str, Mapping[str, str]]) -> int:
    return sum(
        json_bytes(key) + json_bytes(value)
        for found in results.values()
        for key, value in found.items()
    )
