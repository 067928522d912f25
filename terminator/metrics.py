"""The terminator's metrics. Labels are words from fixed lists: no pod, node or Job names.

| metric | labels | meaning |
|---|---|---|
| terminator_targets | - | pods whose logs are being read |
| terminator_streams_open | - | follow streams open now |
| terminator_short_reads_total | result: done, failed | short reads of a log's end |
| terminator_log_bytes_total | - | bytes of log received |
| terminator_tokens_total | kind: completed, failed | tokens seen, each pod once per reading |
| terminator_read_errors_total | reason | log reads that failed |
| terminator_ledger_writes_total | result: done, failed | patches of reports |
| terminator_ledger_entries_total | - | nodes entered in reports |
| terminator_ledger_pending | - | nodes seen as completed and not yet entered |
| terminator_deletions_total | result: done, gone, changed, failed | Jobs deleted |
| terminator_reconciles_total | result: done, retried, failed | looks at one Job |
| terminator_requests_total | verb, resource, code | requests to the API server |
| terminator_config_reloads_total | - | configurations taken over while running |
| terminator_config_reload_errors_total | - | configurations refused while running |
| terminator_leader | - | 1 while this replica acts |
| terminator_asyncio_tasks | - | asyncio tasks |
| terminator_queue_keys | state: due, delayed, processing | Jobs in the work queue |
| terminator_cache_objects | resource | objects in the caches |
| terminator_unreadable_objects | resource | objects that cannot be read |
| terminator_watch_silence_seconds | resource | seconds since the API server answered |
| terminator_ledger_books | - | runs of which the ledger keeps something |
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from daemonset_job.kube.client.errors import (
    BadRequest,
    Forbidden,
    KubeError,
    NotFound,
    Throttled,
    Unauthorized,
)
from daemonset_job.runtime.sizes import Size, SizeCollector

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


class Metrics:
    """All metrics in one registry of their own, every label value present from the start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.targets = self._gauge("targets", "Pods whose logs are being read.")
        self.streams_open = self._gauge("streams_open", "Follow streams open now.")
        self.short_reads = self._counter("short_reads", "Short reads.", result=("done", "failed"))
        self.log_bytes = self._counter("log_bytes", "Bytes of log received.")
        self.tokens = self._counter("tokens", "Tokens seen.", kind=("completed", "failed"))
        self.read_errors = self._counter(
            "read_errors", "Log reads that failed.", reason=READ_ERROR_REASONS
        )
        self.ledger_writes = self._counter(
            "ledger_writes", "Patches of reports.", result=("done", "failed")
        )
        self.ledger_entries = self._counter("ledger_entries", "Nodes entered in reports.")
        self.ledger_pending = self._gauge(
            "ledger_pending", "Nodes seen as completed and not yet entered."
        )
        self.deletions = self._counter(
            "deletions", "Jobs deleted.", result=("done", "gone", "changed", "failed")
        )
        self.reconciles = self._counter(
            "reconciles", "Looks at one Job.", result=("done", "retried", "failed")
        )
        self.config_reloads = self._counter("config_reloads", "Configurations taken over.")
        self.config_reload_errors = self._counter("config_reload_errors", "Configurations refused.")
        self.is_leader = self._gauge("leader", "1 while this replica acts.")
        self._requests = Counter(
            "terminator_requests",
            "Requests to the API server.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )

    def count_request(self, verb: str, resource: str, code: int, _seconds: float) -> None:
        """Count one request; `code` 0 means that no answer came."""
        self._requests.labels(verb, resource, str(code)).inc()

    def watch_sizes(self, sizes: Iterable[Size]) -> None:
        """Tell how much the program holds, read whenever the metrics are."""
        self.registry.register(SizeCollector("terminator", sizes))

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"terminator_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str, **labels: tuple[str, ...]) -> Counter:
        counter = Counter(f"terminator_{name}", text, list(labels), registry=self.registry)
        for values in labels.values():
            for value in values:
                counter.labels(value)
        return counter
