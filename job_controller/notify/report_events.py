"""Events about notifications, on the Job of a report, which may be deleted."""

from __future__ import annotations

from daemonset_job.api import names
from daemonset_job.api.reasons import EventReason
from daemonset_job.api.report import JobReport
from daemonset_job.kube.recorder import EventRecorder, ObjectReference


def emit_not_sent(events: EventRecorder, report: JobReport, receiver: str, message: str) -> None:
    """Say that a receiver was not notified, and why."""
    job = ObjectReference(
        api_version=names.API_VERSION,
        kind=names.JOB_KIND,
        namespace=report.namespace,
        name=report.job_name,
        uid=report.job_uid,
    )
    words = f"receiver {receiver} was not notified: {message}"
    events.emit(job, "Warning", EventReason.NOTIFICATION_NOT_SENT, words)
