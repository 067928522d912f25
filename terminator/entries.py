"""What to write into the ledger: which report gets which node, and the patch that says it.

Pure. A node keeps the report (shard) that it stands in; otherwise it goes to the lowest one with
room. An entry is written whole, with null for every field that stood there and no longer does: a
merge patch would keep those of a former node of the same name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from job_controller.api.report import Evidence, JobReport

# Nodes per report: 5,000 nodes with results stay well below etcd's 1.5 MiB per object.
SHARD_NODES = 1000

Entries = dict[str, Evidence]


def stands(entry: Evidence | None, wanted: Evidence) -> bool:
    """Return whether `entry` already says what `wanted` does, so that nothing is to be written.

    The first completion of a node stays: that a later read found another time for it (a token
    printed twice, the log of a successor) is not news.
    """
    if entry is None or entry.node_uid != wanted.node_uid:
        return False
    return entry.is_completed or entry == wanted


def assign(
    pending: Mapping[str, Evidence], shards: Iterable[JobReport], limit: int = SHARD_NODES
) -> dict[str, Entries]:
    """Return what is new of `pending`, by name of the report that it goes to.

    What finds no report with room is left out: it stays pending until the controller makes one.
    """
    ordered = sorted(shards, key=lambda report: report.shard)
    home = {node: report for report in reversed(ordered) for node in report.evidence}
    room = {report.name: limit - len(report.evidence) for report in ordered}
    result: dict[str, Entries] = {}
    for node in sorted(pending):
        entry, report = pending[node], home.get(node)
        if report is not None:
            if stands(report.evidence[node], entry):
                continue
        else:
            report = next((r for r in ordered if room[r.name] > 0), None)
            if report is None:
                continue
            room[report.name] -= 1
        result.setdefault(report.name, {})[node] = entry
    return result


def patch_body(report: JobReport, entries: Mapping[str, Evidence]) -> dict[str, Any]:
    """Return the merge patch that enters `entries`; the report's UID is its precondition."""
    return {
        "metadata": {"uid": report.uid},
        "evidence": {
            node: _raw_entry(report.evidence.get(node), entry) for node, entry in entries.items()
        },
    }


def _raw_entry(old: Evidence | None, new: Evidence) -> dict[str, Any]:
    stale = dict.fromkeys(old.to_raw()) if old is not None else {}
    return {**stale, **new.to_raw()}
