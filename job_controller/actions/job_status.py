"""The status of a Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.job_spec import parse_spec
from daemonset_job.api.job_status import JobStatus, parse_job_status
from daemonset_job.kube.client.errors import Conflict, NotFound
from daemonset_job.kube.client.resource import JOB_STATUS, JOBS
from daemonset_job.kube.client.unreadable import Unreadable
from daemonset_job.runtime.clock import Clock
from job_controller.actions.status_log import log_conditions
from job_controller.actions.writer import Writer
from job_controller.core.desired.strategic_merge import diff_merge_patch
from job_controller.core.render.unreadable import unreadable_status
from job_controller.metrics import Metrics


class JobStatusActions:
    """Writes the status of one Job at a time."""

    def __init__(self, writer: Writer, clock: Clock, metrics: Metrics) -> None:
        self._writer = writer
        self._clock = clock
        self._metrics = metrics

    async def write(
        self, key: JobKey, job: Job, status: JobStatus, *, metadata_only: bool = False
    ) -> None:
        """Write the status if the Job has not changed since it was read; Conflict if it has."""
        body = {
            "metadata": {"resourceVersion": job.resource_version, "uid": job.uid},
            "status": diff_merge_patch(job.status.to_raw(), status.to_raw()),
        }
        try:
            written = await self._writer.client.merge_patch(
                JOB_STATUS, job.name, body, job.namespace, metadata_only=metadata_only
            )
        except NotFound:
            # Deleted meanwhile: there is no status to write.
            return
        self._writer.expect_version(key, JOBS, written)
        self._metrics.count_end(job.status, status)
        log_conditions(job.status, status)

    async def check_unchanged(self, key: JobKey, job: Job) -> None:
        """Raise Conflict if the Job has changed since it was read."""
        meta = await self._writer.find_job(key)
        if meta is None or (meta["uid"], meta["resourceVersion"]) != (
            job.uid,
            job.resource_version,
        ):
            raise Conflict(f"Job {job.name} has changed since it was read")

    async def write_unreadable(self, key: JobKey, unread: Unreadable) -> None:
        """Write the status of a Job that cannot be read: it is not run, and why."""
        job = Job(
            namespace=unread.namespace,
            name=unread.name,
            uid=unread.uid,
            resource_version=unread.resource_version,
            generation=unread.generation,
            spec=parse_spec({}),
            status=_readable_status(unread.status),
        )
        status = unreadable_status(job, unread.error, self._clock.now())
        if status != job.status:
            # The full answer could not be read either.
            await self.write(key, job, status, metadata_only=True)


def _readable_status(raw: Mapping[str, Any]) -> JobStatus:
    """Return the status of a Job that cannot be read, an empty one if it is what cannot be."""
    try:
        return parse_job_status(raw)
    except ValueError:
        return JobStatus()
