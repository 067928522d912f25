"""The status of a run that has ended, while its nodes cannot be counted exactly."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.states import ConditionType
from job_controller.core.render.job_status import set_conditions
from job_controller.core.render.rollback import copy_rollback


def frozen_status(job: Job, status: JobStatus, now: datetime) -> JobStatus:
    """Return the status of the Job with what of a new one does not come from a count of nodes.

    Among that is whether it is suspended, and what keeps such a run from being corrected.
    """
    suspended = [each for each in status.conditions if each.type == ConditionType.SUSPENDED]
    kept = replace(job, status=copy_rollback(job.status, status))
    return replace(
        kept.status,
        conditions=set_conditions(kept, suspended, now),
        observed_generation=job.generation,
        revision=status.revision,
        completion_token=status.completion_token,
        observed_rerun=status.observed_rerun,
    )
