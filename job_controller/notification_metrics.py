"""What the controller counts of notifications. The names of receivers are the administrator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from job_controller.core.notifications import SendResult

# The receiver of notifications for one that does not exist: Jobs can name anything.
NO_RECEIVER: Final = ""


class NotificationMetrics:
    """Counts notifications by receiver, and exports how many wait."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._ended = Counter(
            "dsj_notifications",
            "Notifications that need no further try, by what became of them.",
            ["receiver", "result"],
            registry=registry,
        )
        self._errors = Counter(
            "dsj_notification_errors",
            "Tries to send a notification that failed and are repeated.",
            ["receiver"],
            registry=registry,
        )
        for result in SendResult:
            self._ended.labels(NO_RECEIVER, result)
        self._errors.labels(NO_RECEIVER)
        self._pending = _PendingCollector()
        registry.register(self._pending)

    def count(self, receiver: str, result: SendResult, times: int = 1) -> None:
        """Count notifications that were sent or given up."""
        self._ended.labels(receiver, result).inc(times)

    def count_error(self, receiver: str) -> None:
        """Count one try that failed and is repeated."""
        self._errors.labels(receiver).inc()

    def watch(self, pending: Callable[[], Mapping[str, int]]) -> None:
        """Export the reports that wait for each receiver, from now on those of `pending`.

        Each receiver that is configured has all its series, so that a first failure is an increase.
        """
        self._pending.read = pending
        for receiver in pending():
            for result in SendResult:
                self._ended.labels(receiver, result)
            self._errors.labels(receiver)


def _nothing() -> Mapping[str, int]:
    return {}


class _PendingCollector(Collector):
    def __init__(self) -> None:
        self.read: Callable[[], Mapping[str, int]] = _nothing

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> list[GaugeMetricFamily]:
        gauge = GaugeMetricFamily(
            "dsj_notifications_pending",
            "Runs of which a receiver is yet to be notified of something.",
            labels=["receiver"],
        )
        for receiver, count in self.read().items():
            gauge.add_metric([receiver], count)
        return [gauge]
