"""The progress of a rollout that is in the Job's status: what is to survive is there first."""

from __future__ import annotations

from daemonset_job.api.job import Job
from daemonset_job.api.rollout_progress import RolloutProgress


def written_progress(job: Job) -> RolloutProgress | None:
    """Return the progress in the Job's status, None if it has none for what the Job runs now."""
    known = job.status.rollout
    return known if known is not None and known.revision == job.revision else None
