"""The status of a Job that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.states import ConditionType, Phase
from job_controller.core.render.job_status import set_conditions
from job_controller.core.text.sanitize import single_line


def unreadable_status(job: Job, error: str, now: datetime) -> JobStatus:
    """Return the status of a Job that cannot be read, of which `job` holds the known parts.

    Its other conditions stay. It is written once for each generation: each write makes another
    version that cannot be read, and the error may be worded differently each time.
    """
    found = job.condition(ConditionType.PROGRESSING)
    is_reported = found is not None and found.reason == ProgressingReason.UNREADABLE
    if is_reported and job.status.observed_generation == job.generation:
        return job.status
    words = (
        f"the controller cannot read this Job and ignores it: {single_line(error)}; "
        "shorten what is nested too deep or too large in it, or delete it and create it again"
    )
    unread = Condition(ConditionType.PROGRESSING, False, ProgressingReason.UNREADABLE, words)
    return replace(
        job.status,
        phase=job.status.phase or Phase.PENDING,
        observed_generation=job.generation,
        conditions=set_conditions(job, (unread,), now),
    )
