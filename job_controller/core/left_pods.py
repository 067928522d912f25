"""For which Jobs pods matter whose DaemonSet was deleted: each change of one wakes these Jobs."""

from __future__ import annotations

from daemonset_job.api.job import Job
from job_controller.core.render.suspension import is_taken_back
from job_controller.core.taken_back_start import may_be_taken_back


def looks_at_left_pods(job: Job) -> bool:
    """Return whether they count: for turns, a rollback, cordons, or a correction."""
    spec = job.spec
    return bool(spec.rollout or spec.rollback or spec.cordons) or may_be_taken_back(job)


def looks_at_orphans(job: Job) -> bool:
    """Return whether pods matter that the next DaemonSet of the Job would adopt.

    They do if that may run something else, which it may while the start of the run is taken back.
    """
    return may_be_taken_back(job) or is_taken_back(job)
