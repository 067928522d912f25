"""The status of a Job whose new revision gets its number, before anything is done for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.states import ConditionType
from job_controller.core.state.run_state import RunState


def revision_status(job: Job, status: JobStatus, run: RunState) -> JobStatus:
    """Return the first status with a new revision, of which no report says anything yet.

    It opens a run that has ended, unless that has nothing to do for the revision either. Requests,
    counts and the generation stay as they are: only the report says which nodes follow them. So
    does the condition that another client changed the DaemonSet: the report has that first.
    `status` is the one that follows once the report is written.
    """
    kept = replace(job.status, revision=status.revision, completion_token=status.completion_token)
    if run.has_ended:
        return kept
    return replace(
        kept,
        phase=status.phase,
        conditions=tuple(_with_known_alteration(job, status)),
        completion_time=status.completion_time,
    )


def _with_known_alteration(job: Job, status: JobStatus) -> Iterator[Condition]:
    known = job.condition(ConditionType.ALTERED)
    for condition in status.conditions:
        if condition.type != ConditionType.ALTERED:
            yield condition
        elif known is not None:
            yield known
