"""The progress of a rollout that is in the Job's status: what is to survive is there first."""

from __future__ import annotations

from dataclasses import replace

from daemonset_job.api.job import Job
from daemonset_job.api.rollout_progress import RolloutProgress


def written_progress(job: Job) -> RolloutProgress | None:
    """Return the progress in the Job's status, None if it has none for what the Job runs now."""
    known = job.status.rollout
    return known if known is not None and known.revision == job.revision else None


def reported_progress(job: Job, progress: RolloutProgress | None) -> RolloutProgress | None:
    """Return the progress for the report, from that for the Job's status.

    The report has the start of a soak, or of a check, once that is in the Job's status. While the
    API server refuses the status, each reconcile gives them another start.
    """
    if progress is None:
        return None
    known = written_progress(job)
    if known is None or known.soak_started_at != progress.soak_started_at:
        progress = replace(progress, soak_started_at=None)
    if known is None or known.check_started_at != progress.check_started_at:
        progress = replace(progress, check_started_at=None)
    return progress
