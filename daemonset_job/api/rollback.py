"""Whether a run is rolled back, or is to be: by its policy, or because a person asks for it.

Both programs ask: one creates the Jobs of the rollback, the other one deletes the Job after it.
"""

from __future__ import annotations

from daemonset_job.api import names
from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job import Job
from daemonset_job.api.states import ConditionType


def can_roll_back(job: Job) -> bool:
    """Return whether its work can be undone: the spec says how, and its run has an end."""
    return job.spec.rollback and not job.spec.is_continuous


def is_rollback_requested(job: Job) -> bool:
    """Return whether a person asks for a rollback that is possible."""
    return can_roll_back(job) and bool(job.requests.rollback)


def starts_no_node(job: Job) -> bool:
    """Return whether no further node may start: the run is suspended, or rolled back."""
    return job.is_suspended or job.status.rollback is not None or is_rollback_requested(job)


def has_open_rollback(job: Job) -> bool:
    """Return whether the run is to be rolled back, by status and requests, and that has not ended.

    An abort ends a run as it is: only a person has it rolled back after that.
    """
    if job.status.rollback is not None:
        return job.status.rollback.completion_time is None
    has_failed = job.is_true(ConditionType.FAILED) and not job.is_aborted
    is_due = has_failed and job.spec.failure_policy.action == FailureAction.ROLLBACK
    return can_roll_back(job) and (is_due or is_rollback_requested(job))


def ignores_retry(job: Job) -> bool:
    """Return whether a retry is asked for that is not acted on, because the run is rolled back."""
    asked = names.shorten(job.annotations.get(names.ANNOTATION_RETRY) or "", names.RETRY_LIMIT)
    has_asked = bool(asked) and asked != job.status.observed_retry
    return job.status.rollback is not None and has_asked
