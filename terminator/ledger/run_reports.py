"""The reports of a run: from the caches, or from our own patches where these are newer.

Reads the event loop's time, and reads reports again of which the caches have summaries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from daemonset_job.api.job import Job
from daemonset_job.api.report import JobReport
from terminator.ledger.run_buffer import RunBuffer
from terminator.node_count import reports_of_run

ReportsOf = Callable[[Job], Iterable[JobReport]]
ReadWholeReports = Callable[[Job], Awaitable[None]]


class RunReports:
    """Finds the reports of runs.

    `reports_of(job)` returns the cached reports of a run, and `has_job(uid)` whether its Job is in
    the caches. `read_whole_reports(job)` reads the reports again of which the cache has a summary
    only.
    """

    def __init__(
        self,
        reports_of: ReportsOf,
        has_job: Callable[[str], bool],
        read_whole_reports: ReadWholeReports,
    ) -> None:
        self._reports_of = reports_of
        self._has_job = has_job
        self._read_whole_reports = read_whole_reports

    def has_job(self, job: Job) -> bool:
        """Return whether the Job is in the caches."""
        return self._has_job(job.uid)

    def cached(self, job: Job) -> list[JobReport]:
        """Return the run's cached reports, in the namespace of its Job only."""
        return reports_of_run(job, self._reports_of(job))

    def newest(self, buffer: RunBuffer) -> list[JobReport]:
        """Return the run's reports, each from the cache or from our own patch if that is newer."""
        return buffer.written.newest(self.cached(buffer.job), asyncio.get_running_loop().time())

    async def make_whole(self, buffer: RunBuffer) -> bool:
        """Read reports again that are summaries; return whether all are whole then.

        There are summaries after a Job was missing from the cache and is back. Raises KubeError.
        """
        if self._are_whole(buffer):
            return True
        await self._read_whole_reports(buffer.job)
        return self._are_whole(buffer)

    def is_gone(self, buffer: RunBuffer) -> bool:
        """Return whether Job and reports are deleted, so that evidence cannot be written."""
        return not self.has_job(buffer.job) and not self.cached(buffer.job)

    def is_idle(self, buffer: RunBuffer) -> bool:
        """Return whether nothing is pending and the cache has all of our own patches."""
        if buffer.pending or buffer.progress:
            return False
        buffer.written.prune(self.cached(buffer.job), asyncio.get_running_loop().time())
        return not buffer.written

    def _are_whole(self, buffer: RunBuffer) -> bool:
        return all(report.is_whole for report in self.newest(buffer))
