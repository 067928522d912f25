"""The reports of one run after our own patches, while the cache has not caught up with them.

Reads no cache and no clock: the cached reports and the event loop's time are given.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from daemonset_job.api.report import JobReport
from daemonset_job.kube.cache.resource_version import is_newer

# How long the answer to our own patch takes precedence over the cache. The cache usually catches up
# in a moment, and within 70 s if its watch is dead. It never does if etcd was restored from a
# backup: then the evidence is lost, and the logs have to be read again.
WRITTEN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class _Written:
    """A report after our own patches, and until when it takes precedence over the cache.

    `base_version` is the version in the cache before them.
    """

    report: JobReport
    base_version: str
    until: float  # in the loop's time

    def is_superseded(self, cached: JobReport, now: float) -> bool:
        """Return whether the cached report counts: it has caught up, is another one, or older."""
        return (
            now >= self.until
            or cached.uid != self.report.uid
            or not is_newer(self.report.resource_version, cached.resource_version)
            # Older than the report that was patched: etcd was restored.
            or is_newer(self.base_version, cached.resource_version)
        )


class WrittenReports:
    """The answers to our own patches that take precedence over the cache; false if there is none.

    Times are seconds of the event loop's clock.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, _Written] = {}

    def __bool__(self) -> bool:
        """Return whether an answer is kept."""
        return bool(self._by_name)

    def add(self, patched: JobReport, answer: JobReport, now: float) -> None:
        """Keep the answer to a patch of the report `patched`."""
        former = self._by_name.get(patched.name)
        base_version = patched.resource_version if former is None else former.base_version
        self._by_name[patched.name] = _Written(answer, base_version, now + WRITTEN_SECONDS)

    def prune(self, cached: Iterable[JobReport], now: float) -> None:
        """Drop the answers that the cache has caught up with."""
        if not self._by_name:
            return
        for report in cached:
            written = self._by_name.get(report.name)
            if written is not None and written.is_superseded(report, now):
                del self._by_name[report.name]

    def newest(self, cached: Iterable[JobReport], now: float) -> list[JobReport]:
        """Return the run's reports: each from the cache, or our own answer if that is newer."""
        reports = list(cached)
        self.prune(reports, now)
        return [
            report if (written := self._by_name.get(report.name)) is None else written.report
            for report in reports
        ]
