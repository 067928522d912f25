"""The part of the controller that starts the runs of ScheduledJobs: its queue and its workers."""

from __future__ import annotations

from daemonset_job.api.job import JobKey
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.process.reconcile_results import ReconcileResults
from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue, namespace_of
from job_controller.config import Config
from job_controller.dependencies import Dependencies
from job_controller.metrics import Metrics
from job_controller.schedules.cache import ScheduleCache
from job_controller.schedules.metrics import ScheduleMetrics
from job_controller.schedules.reconciler import ScheduleReconciler

# Of one namespace. A start is a few requests, and one more worker is left for other namespaces.
_WORKERS = 2
# Changes are gathered for that time: a start changes the ScheduledJob, and creates a Job.
_DEBOUNCE_SECONDS = 0.5


class Schedules:
    """All ScheduledJobs of one process: followed always, reconciled while it leads."""

    def __init__(
        self, client: KubeClient, config: Config, metrics: Metrics, *, clock: Clock
    ) -> None:
        self._queue: WorkQueue[JobKey] = WorkQueue(group_of=namespace_of, group_limit=_WORKERS)
        self.cache = ScheduleCache(client, config.namespaces, clock, self._wake)
        self._metrics = ScheduleMetrics(metrics.registry, lambda: len(self.cache))
        self._results = ReconcileResults(metrics.reconciles)

    def _wake(self, key: JobKey) -> None:
        self._queue.add_after(key, _DEBOUNCE_SECONDS)

    async def work(self, dependencies: Dependencies) -> None:
        """Look at every ScheduledJob once, then at those that change or are due."""
        self.add_all()
        reconciler = ScheduleReconciler(dependencies, self._metrics)
        await run_workers(
            self._queue,
            self._results.counted(reconciler.reconcile),
            count=_WORKERS + 1,
            on_error=self._results.on_error,
        )

    def add_all(self) -> None:
        """Have each ScheduledJob reconciled."""
        for key in self.cache.known_keys():
            self._queue.add(key)
