"""What is counted of ScheduledJobs. No label has a name."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from job_controller.core.scheduled.snapshot import StartResult

_RESULTS = {
    StartResult.STARTED: "started",
    StartResult.WAS_STARTED: "started before",
    StartResult.REFUSED: "refused",
    StartResult.NAME_TAKEN: "name taken",
}


class ScheduleMetrics:
    """The metrics of ScheduledJobs, in the registry of the controller."""

    def __init__(self, registry: CollectorRegistry, count: Callable[[], int]) -> None:
        scheduled = Gauge("dsj_scheduled_jobs", "ScheduledJobs.", registry=registry)
        scheduled.set_function(count)
        self.scheduled_starts = Counter(
            "dsj_scheduled_starts",
            "Starts of ScheduledJobs that were due, by what became of them.",
            ["result"],
            registry=registry,
        )
        for result in _RESULTS.values():
            self.scheduled_starts.labels(result)

    def count_start(self, result: StartResult) -> None:
        """Count a start."""
        self.scheduled_starts.labels(_RESULTS[result]).inc()
