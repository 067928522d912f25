"""JobReports: created, and their status written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport, metadata_without_managed_fields
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState, Phase
from daemonset_job.kube.client.errors import AlreadyExists, Conflict, NotFound
from daemonset_job.kube.client.resource import JOB_REPORTS
from job_controller.actions.report_patch import patch_report_status
from job_controller.actions.status_log import log_failed_nodes
from job_controller.actions.writer import Writer
from job_controller.core.plan import DeleteReport
from job_controller.core.render.report_status import build_status_patch
from job_controller.core.render.subscriptions import with_current_deliveries
from job_controller.core.state.snapshot import Snapshot
from job_controller.metrics import Metrics

_FIRST_SHARD = "0"
# How often a status is written to a report that gets evidence at the same time, before a back-off.
_TRIES = 3


class ReportActions:
    """Acts on the reports of one Job at a time."""

    def __init__(
        self,
        writer: Writer,
        metrics: Metrics,
        on_deleted: Callable[[JobReport], None] = lambda _report: None,
    ) -> None:
        """Call `on_deleted` with each report that this program has deleted."""
        self._writer = writer
        self._metrics = metrics
        self._on_deleted = on_deleted

    def find(self, key: JobKey, snapshot: Snapshot, name: str) -> JobReport | None:
        """Return the report of that name; that of the snapshot if the cache has only a summary.

        The patch is the difference to the current status, so it needs all of it.
        """
        found = next((r for r in self._writer.caches.reports_of(key) if r.name == name), None)
        if found is None or found.is_whole:
            return found
        return next((r for r in snapshot.reports if r.uid == found.uid), None)

    async def create(self, key: JobKey, job: Job, body: Mapping[str, Any]) -> None:
        """Create a report of the run, unless it exists."""
        try:
            written = await self._writer.client.create(JOB_REPORTS, body, job.namespace)
        except AlreadyExists:
            # Created by an earlier reconcile that is not in the cache yet, or before a restart. The
            # name has the start of the Job's UID, so it is this run's.
            return
        self._writer.expect_version(key, JOB_REPORTS, written)
        name, uid = written["metadata"]["name"], written["metadata"]["uid"]
        shard = body["metadata"]["labels"][names.LABEL_SHARD]
        logger.info("created the JobReport", report=name, why=_why_created(job, shard))
        with suppress(NotFound):
            written = await self._writer.client.merge_patch(
                JOB_REPORTS, name, {"metadata": metadata_without_managed_fields(uid)}, job.namespace
            )
            self._writer.expect_version(key, JOB_REPORTS, written)

    async def write_status(
        self,
        key: JobKey,
        report: JobReport,
        status: ReportStatus,
        *,
        decided_on: JobReport | None = None,
    ) -> None:
        """Write the status of a report, if it exists.

        `decided_on` is the report from which the status was made, if that is older than `report`.
        Raises Conflict if another controller has written the status since, also if this write is
        carried out so late that its process leads no more. If it closes the report, adds to its
        history or gives nodes their turns, the report must be as it was read, with all evidence.
        """
        seen = decided_on or report
        status = with_current_deliveries(status, seen.status, report.status)
        # A closing write must not overwrite the final status of a run that has just ended: a new
        # leader may not have it in its cache yet. Nor may one replace entries of the history which
        # a write made that had no answer.
        # A turn is given only if no other controller has given one meanwhile.
        is_guarded = status.phase == Phase.CANCELLED or status.history != seen.status.history
        is_guarded |= _gives_turns(seen.status, status)
        version = seen.resource_version if is_guarded else report.resource_version
        body = {
            "metadata": {"uid": report.uid, "resourceVersion": version},
            "status": build_status_patch(report.status, status),
        }
        try:
            written = await patch_report_status(
                self._writer.client,
                report,
                body,
                # Evidence is added often, and no status depends on its absence.
                is_due=lambda found: _is_same(found, report.status),
                tries=1 if is_guarded else _TRIES,
            )
        except NotFound:
            # The report was deleted; the run continues and CreateReport creates a new one.
            return
        if written is None:
            raise Conflict(f"another client has written the status of JobReport {report.name}")
        self._writer.expect_version(key, JOB_REPORTS, written)
        self._tell_written(report, status, body["status"].get("nodeStates") or {})

    async def delete_own(self, key: JobKey, snapshot: Snapshot, action: DeleteReport) -> None:
        """Delete a report of a run whose start is taken back, if it exists."""
        found = self.find(key, snapshot, action.name)
        if found is not None and found.uid == action.uid:
            await self.delete(found, "the start of its run is taken back")

    async def delete(self, report: JobReport, why: str) -> None:
        """Delete a report, if it exists; `why` is for the log."""
        with suppress(NotFound):
            await self._writer.client.delete(
                JOB_REPORTS, report.name, report.namespace, uid=report.uid
            )
            logger.info("deleted the JobReport", job=report.job_name, report=report.name, why=why)
            self._on_deleted(report)

    def _tell_written(
        self, report: JobReport, status: ReportStatus, changed: Mapping[str, Any]
    ) -> None:
        """Count and log the nodes that a write shows as failed, and the end of a cancelled run.

        `changed` has the nodes of the patch, so that this costs nothing for the others.
        """
        failed = {
            name: status.node_states[name]
            for name, change in changed.items()
            if change and change.get("state") == NodeState.FAILED
        }
        self._metrics.count_failed_nodes(record.reason for record in failed.values())
        log_failed_nodes(failed.items())
        if status.phase == Phase.CANCELLED:
            self._metrics.count_cancelled()
            logger.info("closed the JobReport", report=report.name, why=status.message)


def _is_same(found: ReportStatus, status: ReportStatus) -> bool:
    """Return whether a status is the one that was read, but for what was notified."""
    return replace(found, notifications=status.notifications) == status


def _gives_turns(before: ReportStatus, after: ReportStatus) -> bool:
    """Return whether nodes get their turns, or are set aside, so that others may get theirs."""
    unknown = NodeRecord("", NodeState.WAITING)
    for name, record in after.node_states.items():
        if record.turn_at is None and record.set_aside_at is None:
            continue
        known = before.node_states.get(name, unknown)
        if (known.turn_at, known.set_aside_at) != (record.turn_at, record.set_aside_at):
            return True
    return False


def _why_created(job: Job, shard: str) -> str:
    if shard != _FIRST_SHARD:
        return "the run has more nodes than its other reports have room for"
    if job.reported_desired:
        return "the report was deleted during the run"
    return "the run starts"
