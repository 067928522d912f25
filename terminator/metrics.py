"""The terminator's metrics. Labels are words from fixed lists: no pod, node or Job names.

docs/reference/metrics.md has the list. Metrics that the controller has too have the label
`component`.
"""

from prometheus_client import Counter, Gauge

from daemonset_job.kube.client.errors import (
    BadRequest,
    Forbidden,
    KubeError,
    NotFound,
    Throttled,
    Unauthorized,
)
from daemonset_job.process.program_metrics import ProgramMetrics

_REASONS: tuple[tuple[type[KubeError], str], ...] = (
    (BadRequest, "not_started"),
    (NotFound, "not_found"),
    (Forbidden, "forbidden"),
    (Unauthorized, "unauthorized"),
    (Throttled, "throttled"),
)
READ_ERROR_REASONS = (*(word for _, word in _REASONS), "timeout", "unavailable", "other")


def read_error_reason(error: KubeError) -> str:
    """Return the label for a failed read: one of READ_ERROR_REASONS."""
    for kind, word in _REASONS:
        if isinstance(error, kind):
            return word
    if error.reason in {"Timeout", "IdleTimeout"}:
        return "timeout"
    return "unavailable" if error.is_retryable else "other"


class Metrics(ProgramMetrics):
    """The terminator's metrics."""

    def __init__(self) -> None:
        super().__init__("terminator")
        self.targets = self._gauge("log_targets", "Pods whose logs are being read.")
        self.streams_open = self._gauge("log_streams", "Follow streams open now.")
        self.short_reads = self._counter(
            "log_short_reads", "Short reads of a log's end.", result=("done", "failed")
        )
        self.log_bytes = self._counter("log_read_bytes", "Bytes of log received.")
        self.tokens = self._counter("log_tokens", "Tokens seen.", kind=("completed", "failed"))
        self.read_errors = self._counter(
            "log_read_errors", "Log reads that failed.", reason=READ_ERROR_REASONS
        )
        self.ledger_writes = self._counter(
            "ledger_writes", "Patches of JobReports.", result=("done", "failed")
        )
        self.ledger_entries = self._counter("ledger_entries", "Nodes recorded in JobReports.")
        self.ledger_pending = self._gauge(
            "ledger_pending_nodes", "Nodes with evidence that is not recorded yet."
        )
        self.deletions = self._counter(
            "job_deletions", "Jobs deleted.", result=("done", "gone", "changed", "failed")
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"dsj_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str, **labels: tuple[str, ...]) -> Counter:
        counter = Counter(f"dsj_{name}", text, list(labels), registry=self.registry)
        for values in labels.values():
            for value in values:
                counter.labels(value)
        return counter
