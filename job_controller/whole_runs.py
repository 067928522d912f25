"""Whether the reports that a decision about a Job reads are whole, and how they become so.

Layer: above the caches. These are the reports of the Job itself, of Jobs that it owns, and of those
that share its key `rollout.exclusive`. At the start of the program a Job may come into the cache
after its report. Of that there is a summary until then, which does not say who has its turn.
"""

from __future__ import annotations

from daemonset_job.api.job import Job
from job_controller.caches import Caches


def are_whole(caches: Caches, job: Job) -> bool:
    """Return whether all cached reports that a decision about a Job reads are whole."""
    return all(map(caches.whole_reports.are_whole, _runs_of(caches, job)))


async def read_whole(caches: Caches, job: Job) -> None:
    """Read those reports again of which there is a summary only; raises KubeError."""
    for uid in _runs_of(caches, job):
        await caches.whole_reports.read_whole(uid)


def _runs_of(caches: Caches, job: Job) -> list[str]:
    """Return the UIDs of the Jobs whose reports a decision about this one reads, without repeats.

    Of those that share its key only the ones with pods count, as in `exclusive_runs`.
    """
    found = [job.uid, *(owned.uid for owned in caches.jobs_owned_by(job))]
    if job.spec.exclusive:
        with_pods = {pod.job_uid for pod in caches.pods_with_key(job.namespace, job.spec.exclusive)}
        sharing = caches.jobs_with_key(job.namespace, job.spec.exclusive)
        found += [other.uid for other in sharing if other.uid in with_pods]
    return list(dict.fromkeys(found))
