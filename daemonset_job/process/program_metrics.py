"""The metrics that every program has; the label `component` says which program a value is of."""

from collections.abc import Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from daemonset_job.process.reload import ReloadMetrics
from daemonset_job.runtime.sizes import Size, SizeCollector

_RESULTS = ("done", "retried", "forbidden", "failed")


class ProgramMetrics:
    """The metrics of a program, in a registry of their own; every label value starts at 0.

    `reconciles(result)` is the counter of the reconciles with that result. `is_leader` is the gauge
    of whether the process acts.
    """

    def __init__(self, component: str) -> None:
        self._component = component
        self.registry = CollectorRegistry()
        reconciles = Counter(
            "dsj_reconciles",
            "Reconciles of a Job, by result.",
            ["component", "result"],
            registry=self.registry,
        )
        self.reconciles = partial(reconciles.labels, component)
        for result in _RESULTS:
            self.reconciles(result)
        self._requests = Counter(
            "dsj_api_requests",
            "Requests to the API server, by verb, resource and HTTP status (0: no response).",
            ["component", "verb", "resource", "code"],
            registry=self.registry,
        )
        self.reloads = ReloadMetrics(component, self.registry)
        self.is_leader = Gauge(
            "dsj_is_leader",
            "Whether this process holds the lease and acts (1) or is on standby (0).",
            ["component"],
            registry=self.registry,
        ).labels(component)

    def count_request(self, verb: str, resource: str, status: int, _seconds: float) -> None:
        """Count one request to the API server; `status` 0 means that no answer came."""
        self._requests.labels(self._component, verb, resource, str(status)).inc()

    def watch_sizes(self, sizes: Iterable[Size]) -> None:
        """Export how much the program holds, read at each scrape."""
        self.registry.register(SizeCollector(self._component, sizes))
