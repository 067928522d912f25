"""Whether the report of a run has room for the evidence of every node.

The terminator can record a token only in a shard. While the API server refuses a shard that is
needed, a log without evidence proves nothing.
"""

from __future__ import annotations

from daemonset_job.api.report import NODES_PER_SHARD
from job_controller.core.state.snapshot import Snapshot


def has_ledger_room(snapshot: Snapshot) -> bool:
    """Return whether the shards that exist can hold each node that has a record or a pod."""
    room = len(snapshot.reports) * NODES_PER_SHARD
    entries = sum(len(report.records) + len(report.evidence) for report in snapshot.reports)
    if entries + len(snapshot.pods) <= room:
        return True
    names = {pod.node_name for pod in snapshot.pods}
    for report in snapshot.reports:
        names.update(report.records, report.evidence)
    return len(names) <= room
