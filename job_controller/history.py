"""The reports of finished runs: they are closed, and removed beyond the history limits.

Layer: beside the reconciler.
"""

from __future__ import annotations

from collections.abc import Awaitable

from loguru import logger

from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.kube.cache.reflector import UNSYNCED_SECONDS
from daemonset_job.kube.client.errors import KubeError
from job_controller.actions.errors import is_refusal
from job_controller.actions.reports import ReportActions
from job_controller.actions.writer import Writer
from job_controller.core.history import closed_status, excess_reports, expired_reports
from job_controller.dependencies import Dependencies

# One reconcile removes at most this many reports beyond a namespace's limit. The next one follows
# after this many seconds, so that other Jobs are not delayed for long.
EXCESS_AT_ONCE = 20
EXCESS_SECONDS = 1.0
# The least delay before a refused close or deletion of a report is tried again. Until then the
# report is left out, so that others have their tries.
HISTORY_RETRY_SECONDS = 30.0
_CLOSE, _DELETE = "close", "delete"


class History:
    """Maintains the reports of finished runs of one Job name at a time, and of its namespace."""

    def __init__(self, dependencies: Dependencies, writer: Writer, reports: ReportActions) -> None:
        self._dependencies = dependencies
        self._writer = writer
        self._reports = reports
        self._since = dependencies.clock.now()
        # When which change of the report of which UID was refused, by the monotonic clock.
        self._refused: dict[tuple[str, str], float] = {}

    async def close_and_prune(self, key: JobKey, job: Job | None) -> float | None:
        """Close the reports of runs whose Job is deleted and remove those beyond the limits.

        Returns the seconds until the next time, None for never. A refusal by the API server does
        not stop the reconcile of the current Job of that name.
        """
        settings, now = self._dependencies.settings(), self._dependencies.clock.now()
        living = {job.uid} if job is not None else set()
        known = self._writer.caches.reports_of(key)
        reports = [r for r in known if r.job_uid not in living]
        closing = {r.name: status for r in reports if (status := closed_status(r, now)) is not None}
        expired, wake_at = expired_reports(
            list(known),
            current_uid=job.uid if job is not None else "",
            limit=settings.history_limit,
            max_age_seconds=settings.history_max_age_seconds,
            now=now,
            since=self._since,
        )
        # The cache of Jobs may be behind that of reports: the Job may exist after all.
        found = await self._writer.find_job(key) if closing or expired else None
        uncached_uid = str(found["uid"]) if found is not None else ""
        is_late = uncached_uid not in living and any(r.job_uid == uncached_uid for r in reports)
        self._forget_refusals()
        for report in reports:
            if report.name in closing and report.job_uid != uncached_uid:
                await self._close(key, report, closing[report.name])
        for report in expired:
            if report.job_uid != uncached_uid:
                await self._delete(report, "more runs, or older ones, than the history keeps")
        waits = (
            await self._prune_namespace(key[0], settings.history_namespace_limit),
            UNSYNCED_SECONDS if is_late else None,
            max((wake_at - now).total_seconds(), 0.0) if wake_at is not None else None,
            HISTORY_RETRY_SECONDS if any(map(self._was_refused, reports)) else None,
        )
        return min((seconds for seconds in waits if seconds is not None), default=None)

    async def _prune_namespace(self, namespace: str, limit: int | None) -> float | None:
        """Remove reports that a namespace has beyond its limit; return when to go on, in seconds.

        A report whose deletion is refused still counts: no later report is deleted for it.
        """
        if limit is None:
            return None
        excess = self._writer.caches.count_reports(namespace) - limit
        if excess <= 0:
            return None
        past = excess_reports(self._writer.caches.past_reports(namespace), excess)
        tried, run = 0, ""
        for report in past:
            # All shards of a run are deleted together.
            if tried >= EXCESS_AT_ONCE and report.job_uid != run:
                return EXCESS_SECONDS
            if await self._delete(report, "the namespace has more reports than its limit"):
                tried, run = tried + 1, report.job_uid
        return HISTORY_RETRY_SECONDS if any(map(self._was_refused, past)) else None

    async def _close(self, key: JobKey, report: JobReport, status: ReportStatus) -> None:
        if (_CLOSE, report.uid) not in self._refused:
            await self._try(_CLOSE, report, self._reports.write_status(key, report, status))

    async def _delete(self, report: JobReport, why: str) -> bool:
        """Delete a report; return whether that was tried, which it is not soon after a refusal."""
        if (_DELETE, report.uid) in self._refused:
            return False
        await self._try(_DELETE, report, self._reports.delete(report, why))
        return True

    async def _try(self, verb: str, report: JobReport, change: Awaitable[None]) -> None:
        """Make a change and note if it is refused; raises KubeError if trying again can help."""
        try:
            await change
        except KubeError as error:
            if not is_refusal(error):
                raise
            self._refused[verb, report.uid] = self._dependencies.clock.monotonic()
            logger.warning(
                "cannot change the JobReport of an earlier run, retrying",
                job=report.job_name,
                report=report.name,
                change=verb,
                error=str(error),
            )

    def _was_refused(self, report: JobReport) -> bool:
        return any((verb, report.uid) in self._refused for verb in (_CLOSE, _DELETE))

    def _forget_refusals(self) -> None:
        """Forget those that are so old that the change is tried again."""
        # Later if they are many: to try them all again takes at most half of the tries.
        again = 2 * len(self._refused) * EXCESS_SECONDS / EXCESS_AT_ONCE
        since = self._dependencies.clock.monotonic() - max(again, HISTORY_RETRY_SECONDS)
        self._refused = {each: at for each, at in self._refused.items() if at > since}
