"""The reports of runs that are over: closed, and removed when there is no room for them.

Layer: beside the reconciler.
"""

from __future__ import annotations

from loguru import logger

from daemonset_job.api.job import Job
from daemonset_job.kube.cache.reflector import UNSYNCED_SECONDS
from daemonset_job.kube.client.errors import KubeError
from job_controller.actions.errors import is_refusal
from job_controller.actions.reports import ReportActions
from job_controller.actions.shell import Shell, Writer
from job_controller.caches import Key
from job_controller.core.render.report_status import closed_status, excess_reports, expired_reports

# So many of the reports that a namespace has too many are removed by one pass, and after so many
# seconds more of them: it keeps no other Job waiting for long.
EXCESS_AT_ONCE = 20
EXCESS_SECONDS = 1.0
# When reports of ended runs are tried again that the API server does not let be closed or deleted.
HISTORY_RETRY_SECONDS = 30.0


class History:
    """Keeps the reports of ended runs of one Job's name at a time, and of its namespace."""

    def __init__(self, shell: Shell, writer: Writer, reports: ReportActions) -> None:
        self._shell = shell
        self._writer = writer
        self._reports = reports

    async def keep(self, key: Key, job: Job | None) -> float | None:
        """Close the reports of runs whose Job is gone and remove those history has no room for.

        Returns the seconds after which to look again, None for never. What the API server refuses
        here holds up nothing of the Job that has the name now.
        """
        settings, now = self._shell.settings(), self._shell.clock.now()
        living = {job.uid} if job is not None else set()
        known = self._writer.caches.reports_of(key)
        reports = [r for r in known if r.job_uid not in living]
        closing = {r.name: status for r in reports if (status := closed_status(r)) is not None}
        expired, wake_at = expired_reports(
            list(known),
            living_uid=job.uid if job is not None else "",
            limit=settings.history_limit,
            max_age_seconds=settings.history_seconds,
            now=now,
        )
        # The cache of Jobs may be behind that of reports: a run that goes on is not of the past.
        found = await self._writer.find_job(key) if closing or expired else None
        unheard = str(found["uid"]) if found is not None else ""
        is_late = unheard not in living and any(r.job_uid == unheard for r in reports)
        try:
            for report in reports:
                if report.name in closing and report.job_uid != unheard:
                    await self._reports.write_status(key, report, closing[report.name])
            for report in expired:
                if report.job_uid != unheard:
                    await self._reports.delete(report)
            has_more = await self._thin_out(key[0], settings.history_namespace_limit)
        except KubeError as error:
            if not is_refusal(error):
                raise
            logger.warning("a report of the past cannot be changed", error=str(error))
            return HISTORY_RETRY_SECONDS
        if has_more:
            return EXCESS_SECONDS
        if is_late:
            return UNSYNCED_SECONDS
        return max((wake_at - now).total_seconds(), 0.0) if wake_at is not None else None

    async def _thin_out(self, namespace: str, limit: int | None) -> bool:
        """Remove reports that a namespace has beyond its limit; return whether some are left."""
        if limit is None:
            return False
        excess = self._writer.caches.count_reports(namespace) - limit
        if excess <= 0:
            return False
        past = excess_reports(
            self._writer.caches.past_reports(namespace), min(excess, EXCESS_AT_ONCE)
        )
        for report in past:
            await self._reports.delete(report)
        return bool(past) and excess > len(past)
