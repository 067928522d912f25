"""How long pods are kept for the last lines of their tasks: until these are on record, or 10 s."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.evidence import lacks_lines
from daemonset_job.api.states import ConditionType, NodeState
from daemonset_job.api.times import add_seconds
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_evidence

# The time for the terminator to record the last lines of a failed task. A pod that is not kept is
# deleted after that.
LAST_LINES_GRACE: Final = timedelta(seconds=10)


def pods_stay_until(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> datetime | None:
    """Return until when the tasks that a failed run ends are kept, None if they may end now.

    A task that hangs has printed what it waits for. Its lines are read while it runs: they are gone
    with its pod.
    """
    job = snapshot.job
    failed = job.condition(ConditionType.FAILED)
    if failed is None or not job.ends_all_tasks or not job.spec.failure_log_lines:
        return None
    if failed.last_transition_time is None:
        return None
    until = add_seconds(failed.last_transition_time, LAST_LINES_GRACE.total_seconds())
    if now >= until:
        return None
    ledger = merge_evidence(snapshot)
    at_work = (node for node in counts.nodes.values() if node.state == NodeState.ACTIVE)
    has_unread = any(lacks_lines(node.pod, ledger.get(node.name)) for node in at_work)
    return until if has_unread else None
