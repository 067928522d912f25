"""The DaemonSet of a Job: dry run, apply, repair, deletion."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, assert_never

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.daemon_set import DaemonSet, parse_daemon_set
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.managed_fields import has_own_entry, take_ownership
from daemonset_job.kube.client.errors import BadRequest, Conflict, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS
from job_controller.actions.errors import NO_DRY_RUN
from job_controller.actions.writer import Writer
from job_controller.core.desired.strategic_merge import diff_merge_patch
from job_controller.core.plan import (
    ApplyDaemonSet,
    CreatePodsAgain,
    DeleteDaemonSet,
    DryRunDaemonSet,
)


class DaemonSetActions:
    """Acts on the DaemonSet of one Job at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def execute(
        self, key: JobKey, job: Job, action: DryRunDaemonSet | CreatePodsAgain | DeleteDaemonSet
    ) -> None:
        """Execute an action other than an apply; raises KubeError."""
        match action:
            case DryRunDaemonSet():
                await self._dry_run(job, action.body)
            case CreatePodsAgain():
                await self._create_pods_again(key, job, action)
            case DeleteDaemonSet():
                await self._delete(job, action)
            case _ as unreachable:
                assert_never(unreachable)

    async def find_by_name(self, job: Job) -> DaemonSet | None:
        """Return the DaemonSet of the Job's DaemonSet name, read from the server.

        One without our label is in no cache. The API server would only refuse the change of its
        selector, which does not say that the name is taken.
        """
        found = await self._find_raw(job)
        return parse_daemon_set(found) if found is not None else None

    async def _dry_run(self, job: Job, body: Mapping[str, Any]) -> None:
        """Ask the API server whether it would accept the DaemonSet; raises KubeError if not."""
        try:
            await self._send(job, body, dry_run=True)
        except BadRequest as error:
            # A webhook with side effects supports no dry run; then the apply itself shows it.
            if NO_DRY_RUN not in error.message:
                raise

    async def apply(self, key: JobKey, job: Job, action: ApplyDaemonSet) -> bool:
        """Apply the DaemonSet; return False if the Job, its owner, is deleted."""
        body = dict(action.body)
        if action.uid:
            body["metadata"] = {**body["metadata"], "uid": action.uid}
        elif not await self._job_exists(job):
            return False
        if action.takes_ownership:
            await self._take_ownership(key, job, action)
        written = await self._send(job, body)
        self._writer.expect_version(key, DAEMON_SETS, written)
        logger.log(
            "INFO" if action.why else "DEBUG",
            "changed the DaemonSet" if action.uid else "created the DaemonSet",
            daemon_set=job.daemon_set_name,
            why=action.why,
        )
        return True

    async def _create_pods_again(self, key: JobKey, job: Job, action: CreatePodsAgain) -> None:
        """Annotate the DaemonSet, unless it is gone or another one by now."""
        marks = {names.ANNOTATION_CREATE_AGAIN: str(action.reads)}
        body = {"metadata": {"uid": action.uid, "annotations": marks}}
        with suppress(NotFound, Conflict):
            written = await self._writer.client.merge_patch(
                DAEMON_SETS, job.daemon_set_name, body, job.namespace
            )
            self._writer.expect_version(key, DAEMON_SETS, written)

    async def _delete(self, job: Job, action: DeleteDaemonSet) -> None:
        """Delete the DaemonSet with that UID, if it exists."""
        with suppress(NotFound):
            await self._writer.client.delete(
                DAEMON_SETS, job.daemon_set_name, job.namespace, uid=action.uid
            )
            logger.info(
                "deleted the DaemonSet",
                daemon_set=job.daemon_set_name,
                why=action.why,
            )

    async def _send(
        self, job: Job, body: Mapping[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        return await self._writer.client.apply(
            DAEMON_SETS,
            job.daemon_set_name,
            body,
            job.namespace,
            field_manager=names.FIELD_MANAGER,
            dry_run=dry_run,
        )

    async def _take_ownership(self, key: JobKey, job: Job, action: ApplyDaemonSet) -> None:
        """Own all fields of the DaemonSet's spec, so that an apply removes foreign ones.

        The patch also removes the annotation of the last apply. If this process ends in between,
        the next reconcile applies. Raises Conflict if the DaemonSet was changed meanwhile.
        """
        found = await self._find_raw(job)
        if found is None or found["metadata"].get("uid") != action.uid:
            return
        meta = found["metadata"]
        version = {"uid": action.uid, "resourceVersion": meta["resourceVersion"]}
        body: dict[str, Any] = {
            "metadata": {
                **version,
                "annotations": {names.ANNOTATION_SPEC_HASH: None},
                "managedFields": take_ownership(meta.get("managedFields") or ()),
            }
        }
        if not has_own_entry(meta):
            # We were removed as the owner, so foreign fields look like defaults: all are removed.
            body["spec"] = diff_merge_patch(found.get("spec") or {}, action.body["spec"])
        written = await self._writer.client.merge_patch(
            DAEMON_SETS, job.daemon_set_name, body, job.namespace
        )
        self._writer.expect_version(key, DAEMON_SETS, written)

    async def _job_exists(self, job: Job) -> bool:
        """Return whether the Job exists, read from the server, before its DaemonSet is created.

        The garbage collector removes the DaemonSet of a deleted Job. If the cache of Jobs is behind
        the cache of DaemonSets, that looks as if a client had deleted the DaemonSet.
        """
        meta = await self._writer.find_job((job.namespace, job.name))
        return meta is not None and meta["uid"] == job.uid and not meta.get("deletionTimestamp")

    async def _find_raw(self, job: Job) -> Mapping[str, Any] | None:
        client = self._writer.client
        return (await client.find(DAEMON_SETS, job.daemon_set_name, job.namespace)).item
