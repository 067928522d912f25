"""Metrics of the Jobs whose run has not ended: why each is where it is, and for how long.

They are read from the cached status of each Job at each scrape. The work is proportional to the
number of Jobs, not of nodes, and no label has the name of a Job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from daemonset_job.api.job import Job
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.states import FINAL_PHASES, ConditionType

# A Job that the controller has not reported on, or with a reason of another version.
UNKNOWN_REASON: Final = "Unknown"
_ENDED: Final = (ProgressingReason.COMPLETED, ProgressingReason.FAILED)
REASONS: Final = (
    *(str(reason) for reason in ProgressingReason if reason not in _ENDED),
    UNKNOWN_REASON,
)


class _Progress(NamedTuple):
    """What changes when a run gets further, or its spec is changed, and the reason."""

    reason: str
    generation: int
    completed: int
    failed: int


class ProgressCollector(Collector):
    """Counts unfinished Jobs by reason, and measures how long ago one last changed.

    `monotonic` is a clock, in seconds. A time counts from the first scrape that saw the change, so
    it is short by one scrape interval at most, and begins again with the process.
    """

    def __init__(self, jobs: Callable[[], Iterable[Job]], monotonic: Callable[[], float]) -> None:
        self._jobs = jobs
        self._monotonic = monotonic
        # By UID, of the unfinished Jobs of the last scrape only.
        self._known: dict[str, tuple[_Progress, float]] = {}

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: registering must not read."""
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return both gauges, with 0 for reasons that no Job has."""
        now = self._monotonic()
        counts, idle_seconds = dict.fromkeys(REASONS, 0), dict.fromkeys(REASONS, 0.0)
        known: dict[str, tuple[_Progress, float]] = {}
        for job in self._jobs():
            if job.status.phase in FINAL_PHASES:
                continue
            progress = _progress(job)
            before = self._known.get(job.uid)
            since = before[1] if before is not None and before[0] == progress else now
            known[job.uid] = progress, since
            counts[progress.reason] += 1
            idle_seconds[progress.reason] = max(idle_seconds[progress.reason], now - since)
        self._known = known
        by_reason = GaugeMetricFamily(
            "dsj_unfinished_jobs",
            "Jobs whose run has not ended, by the reason of Progressing.",
            labels=["reason"],
        )
        idle = GaugeMetricFamily(
            "dsj_unfinished_jobs_idle_seconds",
            "Seconds since the Job that changed longest ago changed, by the reason of Progressing.",
            labels=["reason"],
        )
        for reason in REASONS:
            by_reason.add_metric([reason], counts[reason])
            idle.add_metric([reason], idle_seconds[reason])
        return (by_reason, idle)


def _progress(job: Job) -> _Progress:
    condition = job.status.condition(ConditionType.PROGRESSING)
    reason = str(condition.reason) if condition is not None else UNKNOWN_REASON
    nodes = job.status.nodes or NodeTotals()
    return _Progress(
        reason if reason in REASONS else UNKNOWN_REASON,
        job.generation,
        nodes.completed,
        nodes.failed,
    )
