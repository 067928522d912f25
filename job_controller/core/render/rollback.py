"""What status, report, history and events say of the rollback of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import RolledBackReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.rollback import can_roll_back
from daemonset_job.api.states import ConditionType, NodeState
from daemonset_job.api.times import whole_seconds
from job_controller.core.owned_jobs.rollback import RollbackState
from job_controller.core.plan import Event
from job_controller.core.render.job_status import set_conditions
from job_controller.core.render.late_records import change_records
from job_controller.core.render.report_status import reported_conditions
from job_controller.core.render.run_history import append_history, rollback_entries
from job_controller.core.render.timeline import build_timeline
from job_controller.core.state.causes import has_started
from job_controller.core.state.snapshot import Snapshot, merge_records

_WARNINGS: Final = frozenset(
    {
        RolledBackReason.ROLLBACK_FAILED,
        RolledBackReason.ROLLBACK_CANCELLED,
        RolledBackReason.ROLLBACK_NAME_TAKEN,
        RolledBackReason.ROLLBACK_REFUSED,
        RolledBackReason.ROLLBACK_NOT_POSSIBLE,
        RolledBackReason.ROLLED_BACK_PARTLY,
    }
)


def with_rollback(job: Job, status: JobStatus, rollback: RollbackState, now: datetime) -> JobStatus:
    """Return the Job's status with what is known of its rollback."""
    if rollback.condition is None:
        # A request that was not possible is withdrawn.
        others = (each for each in status.conditions if each.type != ConditionType.ROLLED_BACK)
        return replace(status, rollback=rollback.status, conditions=tuple(others))
    conditions = set_conditions(replace(job, status=status), [rollback.condition], now)
    return replace(status, rollback=rollback.status, conditions=conditions)


def copy_rollback(status: JobStatus, source: JobStatus) -> JobStatus:
    """Return a status with the rollback of another one."""
    conditions = [each for each in status.conditions if each.type != ConditionType.ROLLED_BACK]
    found = source.condition(ConditionType.ROLLED_BACK)
    return replace(
        status,
        rollback=source.rollback,
        conditions=(*conditions, *([found] if found is not None else [])),
    )


def record_rollback(
    snapshot: Snapshot,
    statuses: Sequence[tuple[JobReport, ReportStatus]],
    status: JobStatus,
    now: datetime,
) -> list[tuple[JobReport, ReportStatus]]:
    """Return the reports to write, with the rollback in the first one; the rest of it stays.

    It is for a run that has ended and whose pods are no longer counted. `statuses` are reports that
    are written anyway, `status` is the next one of the Job.
    """
    first = snapshot.first_report
    if first is None or status.rollback is None:
        return list(statuses)
    known = next((body for report, body in statuses if report.uid == first.uid), first.status)
    if first.status.rollback == status.rollback:
        return list(statuses)
    summary = replace(
        known,
        rollback=status.rollback,
        conditions=reported_conditions(status, known.conditions),
    )
    entries = list(rollback_entries(first.status, snapshot.job, status, whole_seconds(now)))
    summary = append_history(summary, first.status, entries)
    records = merge_records(snapshot)
    lines = build_timeline(summary, records, status.conditions, first.status)
    summary = replace(summary, timeline=tuple(lines))
    others = [(report, body) for report, body in statuses if report.uid != first.uid]
    return [*others, (first, summary)]


def record_late_starts(
    snapshot: Snapshot, statuses: Sequence[tuple[JobReport, ReportStatus]]
) -> list[tuple[JobReport, ReportStatus]]:
    """Return the reports to write, with the nodes whose task began after the end was recorded.

    Its pod is deleted together with the DaemonSet, which may take a while. After that nothing else
    shows that the node is one of the rollback, which a person may ask for later. Only the pod on
    record counts: its UID cannot be forged. `statuses` are reports that are written anyway.
    """
    began = {
        pod.node_name: pod
        for pod in snapshot.all_pods
        if can_roll_back(snapshot.job) and has_started(pod)
    }

    def find_late(records: Mapping[str, NodeRecord]) -> dict[str, NodeRecord]:
        return {
            name: replace(record, attempts=1)
            for name, pod in began.items()
            if (record := records.get(name)) is not None
            and record.pod_uid == pod.uid
            and record.state != NodeState.COMPLETED
            and not record.attempts
        }

    return change_records(snapshot.reports, statuses, find_late)


def rollback_events(job: Job, status: JobStatus) -> Iterator[Event]:
    """Return the event of a written change of the condition RolledBack; none of its numbers."""
    before = job.condition(ConditionType.ROLLED_BACK)
    after = status.condition(ConditionType.ROLLED_BACK)
    if after is None or (before is not None and before.reason == after.reason):
        return
    kind: Literal["Normal", "Warning"] = "Warning" if after.reason in _WARNINGS else "Normal"
    yield Event(kind, after.reason, after.message)
