"""The condition `Suspended` of a Job that a person or an administrator has suspended."""

from __future__ import annotations

from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.reasons import SuspendedReason
from daemonset_job.api.states import ConditionType
from job_controller.core.text.commands import plugin_command

_SUSPENDED_WORDS: Final = "spec.suspend is true: no further node starts; running tasks continue"
RESUMED: Final = Condition(ConditionType.SUSPENDED, False, SuspendedReason.RESUMED, "run resumed")
TAKEN_BACK: Final = Condition(
    ConditionType.SUSPENDED,
    True,
    SuspendedReason.START_TAKEN_BACK,
    "spec.suspend is true and no task has begun: image, script, template and every other field can "
    "be changed; with spec.suspend false the Job starts again",
)


def suspended(job: Job, begun: str = "") -> Condition:
    """Return who has suspended the run. A stop of all Jobs comes first: it also holds others up.

    `begun` says why the run cannot be corrected, "" if nothing is known about that.
    """
    if job.stop_message:
        reason = SuspendedReason.CLUSTER_STOPPED
        return Condition(ConditionType.SUSPENDED, True, reason, job.stop_message)
    words = f"{_SUSPENDED_WORDS}; {plugin_command('resume', job)} lets it go on"
    if begun:
        words += f"; what it runs can no longer be changed: {begun}"
    return Condition(ConditionType.SUSPENDED, True, SuspendedReason.SUSPENDED, words)


def unstarted_suspended(job: Job) -> Condition:
    """Return who has suspended a Job that has not started, and that its start was taken back."""
    return TAKEN_BACK if is_taken_back(job) and not job.stop_message else suspended(job)


def is_taken_back(job: Job) -> bool:
    """Return whether the status says that the start was taken back, and the Job not resumed."""
    return has_taken_back(job.status)


def has_taken_back(status: JobStatus) -> bool:
    """Return whether a status says that the start was taken back, and the Job not resumed."""
    known = status.condition(ConditionType.SUSPENDED)
    return known is not None and bool(known.status) and known.reason == TAKEN_BACK.reason
