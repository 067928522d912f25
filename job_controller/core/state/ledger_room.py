"""Whether the report of a run has room for the evidence of every node.

The terminator can record a token only in a shard. While the API server refuses a shard that is
needed, a log without evidence proves nothing.
"""

from __future__ import annotations

from daemonset_job.api.shard_room import EvidenceSizes, count_missing, nodes_per_shard
from job_controller.core.state.snapshot import Snapshot


def has_ledger_room(snapshot: Snapshot) -> bool:
    """Return whether the shards that exist can hold each node that has a record or a pod."""
    limit = nodes_per_shard(snapshot.job.spec)
    sizes = EvidenceSizes.of(snapshot.job.spec, limit)
    if not sizes.reserve_bytes:
        entries = sum(len(report.records) + len(report.evidence) for report in snapshot.reports)
        if entries + len(snapshot.pods) <= len(snapshot.reports) * limit:
            return True
    names = {pod.node_name for pod in snapshot.pods}
    for report in snapshot.reports:
        names.update(report.records, report.evidence)
    ledgers = [report.evidence for report in snapshot.reports]
    return count_missing(ledgers, len(names), sizes, limit) == 0
