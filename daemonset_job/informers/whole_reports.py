"""Keeps the cached reports of existing Jobs whole, and of all others a summary.

A report of a thousand nodes takes more than 1 MiB in memory, and history keeps many. Which reports
are needed whole changes. A Job may come into the cache after its report: two watches have no common
order, and etcd may be restored from a backup. Then the report is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from daemonset_job.api.report import JobReport, parse_report
from daemonset_job.api.report_summary import summarize
from daemonset_job.kube.cache.store import Indexer, Store
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOB_REPORTS

# The index that a store of reports needs: the UID of the run's Job.
RUN_INDEX: Final[Mapping[str, Indexer[JobReport]]] = {"run": lambda report: (report.job_uid,)}
# A report that changed after it was cached comes with the watch, which causes the next reconcile.
SUMMARY_RETRY_SECONDS = 1.0

IsNeeded = Callable[[str], bool]


def parse_cached_report(raw: Mapping[str, Any], is_needed: IsNeeded) -> JobReport:
    """Return the report in a raw object, whole if its run's UID is needed; raises ValueError."""
    report = parse_report(raw)
    return report if is_needed(report.job_uid) else summarize(report)


class WholeReports:
    """Makes summaries of reports that are not needed whole, and whole reports of summaries.

    `is_needed(uid)` returns whether the reports of the Job of that UID are needed whole.
    """

    def __init__(self, client: KubeClient, store: Store[JobReport], *, is_needed: IsNeeded) -> None:
        self._client = client
        self._store = store
        self._is_needed = is_needed

    def release(self, uid: str) -> None:
        """Keep summaries of the reports of a run if they are not needed whole."""
        if self._is_needed(uid):
            return
        for report in self._store.by_index("run", uid):
            if report.is_whole:
                self._store.put(summarize(report))

    def release_all(self) -> None:
        """Keep summaries of all reports that are not needed whole."""
        for uid in {report.job_uid for report in self._store if report.is_whole}:
            self.release(uid)

    def are_whole(self, uid: str) -> bool:
        """Return whether all cached reports of a run are whole."""
        return all(report.is_whole for report in self._store.by_index("run", uid))

    async def read_whole(self, uid: str) -> None:
        """Read the reports of a run again of which there is a summary only; raises KubeError.

        What has changed since it was cached is left to the watch: the answer may be ahead of it.
        """
        for summary in self._store.by_index("run", uid):
            if summary.is_whole:
                continue
            found = await self._client.find(JOB_REPORTS, summary.name, summary.namespace)
            if found.item is not None:
                self._take(parse_report(found.item))

    def _take(self, report: JobReport) -> None:
        known = self._store.get((report.namespace, report.name))
        is_same = known is not None and (known.uid, known.resource_version) == (
            report.uid,
            report.resource_version,
        )
        if is_same and self._is_needed(report.job_uid):
            self._store.put(report)
