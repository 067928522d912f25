"""The Jobs that a Job owns: creation and deletion."""

from __future__ import annotations

from typing import assert_never

from loguru import logger

from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.owners import controlling_job_uid
from daemonset_job.kube.client.errors import AlreadyExists, Conflict, NotFound
from daemonset_job.kube.client.resource import JOBS
from job_controller.actions.errors import RefusedError
from job_controller.actions.writer import Writer
from job_controller.core.job_actions import CreateJob, DeleteJob, OwnedJobAction
from job_controller.core.plan import RefusedWrite


class OwnedJobActions:
    """Creates and deletes the Jobs that one Job at a time owns."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def execute(self, key: JobKey, job: Job, action: OwnedJobAction) -> None:
        """Create or delete an owned Job; raises KubeError, or RefusedError if the name is taken."""
        match action:
            case CreateJob():
                await self._create(key, job, action)
            case DeleteJob():
                await self._delete(key, action)
            case _ as unreachable:
                assert_never(unreachable)

    async def _create(self, key: JobKey, job: Job, action: CreateJob) -> None:
        """Create the Job, unless its owner is gone: its pods would start before it is collected."""
        name = action.body["metadata"]["name"]
        owner = await self._writer.find_job(key)
        if owner is None or owner["uid"] != job.uid or owner.get("deletionTimestamp"):
            return
        try:
            written = await self._writer.client.create(JOBS, action.body, job.namespace)
        except AlreadyExists as error:
            # One that was deleted meanwhile is created by the next reconcile.
            found = await self._writer.find_job((job.namespace, name))
            if found is not None and controlling_job_uid(found) != job.uid:
                raise RefusedError(error, RefusedWrite.OWNED_JOB_NAME) from error
            return
        self._writer.expect_version(key, JOBS, written)
        logger.info("created a Job that this Job owns", owned=name)

    async def _delete(self, key: JobKey, action: DeleteJob) -> None:
        """Delete the Job with that UID, if it exists."""
        try:
            written = await self._writer.client.delete(JOBS, action.name, key[0], uid=action.uid)
        except (NotFound, Conflict):
            return  # it is deleted, or another Job has its name
        self._writer.expect_version(key, JOBS, written)
        logger.info("deleted a Job that this Job owned", owned=action.name)
