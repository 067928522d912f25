"""How long the last lines of a failed owned Job are waited for: they are gone with the Job.

A node fails by its exit, and the terminator reads its log at the same time. The line that names the
cause may come a moment after the Job has failed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.report import merge_evidence, merge_records
from daemonset_job.api.states import ConditionType, NodeState
from job_controller.core.state.first_seen import owned_failed
from job_controller.core.state.node_state import quotes_last_line
from job_controller.core.state.snapshot import Snapshot

# From when the controller saw that the Job had failed.
FAILURE_LINES_GRACE: Final = timedelta(seconds=5)


def lines_awaited_until(snapshot: Snapshot, failed: Job, now: datetime) -> datetime | None:
    """Return until when the message of a failed owned Job may get lines, None if it has its own.

    The time counts from when this process saw the failure, so it begins again after a restart.
    """
    sighting = snapshot.seen.get(owned_failed(failed.uid))
    until = (sighting.first if sighting is not None else now) + FAILURE_LINES_GRACE
    return until if now < until and _lacks_line(snapshot, failed) else None


def _lacks_line(snapshot: Snapshot, failed: Job) -> bool:
    """Return whether the Job's message lacks a line of its tasks that is yet to come.

    A line is in the ledger first, then in the record of its node, and then in the message. The
    cache of reports may be behind that of Jobs, so that no record shows the failure yet.
    """
    condition = failed.condition(ConditionType.FAILED)
    if condition is None or condition.reason != FailedReason.MAX_FAILED_NODES_EXCEEDED:
        return False
    if not failed.spec.failure_log_lines:
        return False
    reports = [report for report in snapshot.owned_reports if report.job_uid == failed.uid]
    ledger, records = merge_evidence(reports), merge_records(reports)
    nodes = {name: each for name, each in records.items() if each.state == NodeState.FAILED}
    if not nodes or any(_is_line_to_come(each, ledger.get(name)) for name, each in nodes.items()):
        return True
    quoting = [each.message for each in nodes.values() if quotes_last_line(each.message)]
    return bool(quoting) and not any(words in condition.message for words in quoting)


def _is_line_to_come(record: NodeRecord, entry: Evidence | None) -> bool:
    """Return whether the record of a failed node is to get the last line of its task."""
    if not record.finished_in_pod or quotes_last_line(record.message):
        return False
    is_of_pod = entry is not None and entry.pod_uid == record.pod_uid
    if entry is None or not is_of_pod or entry.attempt < record.finished_in_pod:
        return True
    return bool(entry.last_lines)
