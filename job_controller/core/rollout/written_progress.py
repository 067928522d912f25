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

    The report has the start of a soak once that is in the Job's status. While the API server
    refuses the status, each reconcile gives the soak another start.
    """
    if progress is None:
        return None
    known = written_progress(job)
    is_written = known is not None and known.soak_started_at == progress.soak_started_at
    return progress if is_written else replace(progress, soak_started_at=None)
