"""Deletes Jobs of ScheduledJobs: those that a start replaces, and those beyond the history."""

from __future__ import annotations

from collections.abc import Sequence

from loguru import logger

from daemonset_job.api.scheduled_job import ScheduledJob
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, KubeError, NotFound
from daemonset_job.kube.client.resource import JOBS
from job_controller.actions.errors import is_refusal, most_severe
from job_controller.core.scheduled.snapshot import DeleteRun


class RunDeletions:
    """Deletes each Job only as it was judged, by UID and version."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def delete_old(self, scheduled: ScheduledJob, runs: Sequence[DeleteRun]) -> None:
        """Delete the Jobs beyond the history; one that cannot be deleted holds up no other one.

        Raises the most severe error at the end.
        """
        errors: list[KubeError] = []
        for run in runs:
            try:
                await self.delete(scheduled, run)
            except KubeError as error:
                if not is_refusal(error) and not isinstance(error, Conflict):
                    raise
                errors.append(error)
        if errors:
            raise most_severe(errors)

    async def delete(self, scheduled: ScheduledJob, run: DeleteRun) -> None:
        """Delete the Job of a run; raises Conflict if it has changed since it was read.

        By then a person may have it tried again or corrected, so it is decided again.
        """
        try:
            await self._client.delete(
                JOBS,
                run.name,
                scheduled.namespace,
                uid=run.uid,
                resource_version=run.resource_version,
            )
        except NotFound:
            return
        why = "the next run replaces it" if run.is_replaced else "more than the history keeps"
        logger.info("deleted a Job", job=run.name, why=why)
