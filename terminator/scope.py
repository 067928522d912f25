"""The caches of one set of namespaces, which always run, and the work of a leader.

Shell. Changes become keys of Jobs in a work queue; one worker at a time reconciles a key. The state
of a leader beyond the caches is created when it starts to lead and dropped when it stops.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable

from loguru import logger

from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.reasons import EventReason
from daemonset_job.api.report import JobReport
from daemonset_job.informers.job_reference import job_reference
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.recorder import EventRecorder
from daemonset_job.process.reconcile_results import ReconcileResults
from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.debounce import Debouncer
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue, namespace_of
from terminator.caches import Caches
from terminator.config import Config
from terminator.deleter import Deleter
from terminator.ledger.run_reports import RunReports
from terminator.ledger.writer import Ledger
from terminator.logs.findings_report import OnFindings
from terminator.logs.progress_report import OnProgress
from terminator.logs.scanner import Limits, Scanner
from terminator.metrics import Metrics
from terminator.reconciler import Reconciler

# Jobs of one namespace that are reconciled at a time, plus one of another namespace.
WORKERS = 4
# Bursts of changes are debounced. The first change is reconciled at once, the next ones together
# after this time, or later if the last reconcile took long. There is no upper limit: a Job of
# thousands of nodes takes 5 % of a CPU at most, and its last node waits about a second.
DEBOUNCE_SECONDS = 0.1
# How long a stopping leader may write its pending evidence.
FINAL_FLUSH_SECONDS = 1.0


class NamespaceScope:
    """The namespaces of one configuration: `caches` follows them, `lead` acts on them."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        metrics: Metrics,
        config: Callable[[], Config],
        events: EventRecorder,
    ) -> None:
        self.is_stopping = False
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._config = config
        self._events = events
        self.queue: WorkQueue[JobKey] = WorkQueue(group_of=namespace_of, group_limit=WORKERS)
        self._debouncer: Debouncer[JobKey] = Debouncer(
            min_seconds=DEBOUNCE_SECONDS, max_seconds=math.inf
        )
        self._scanner: Scanner | None = None
        self._ledger: Ledger | None = None
        self.caches = Caches(
            client,
            clock,
            self,
            namespaces=config().namespaces,
            pod_label_selector=config().pod_label_selector,
        )

    @property
    def ledger_run_count(self) -> int:
        """Return how many runs have a buffer in the ledger; 0 while another replica leads."""
        return len(self._ledger) if self._ledger is not None else 0

    async def lead(self) -> None:
        """Read logs, record evidence and delete Jobs until cancelled.

        If the process is stopping, and not if the lease was lost, pending evidence is written
        before this returns.
        """
        ledger = self._ledger = self._create_ledger()
        reconciler = Reconciler(
            self.caches,
            ledger,
            Deleter(self._client, self._clock, self.caches, ledger, self._metrics),
            default_token=lambda: self._config().termination_word,
            new_scanner=self._create_scanner,
        )
        scanner = self._scanner = reconciler.scanner
        results = ReconcileResults(self._metrics.reconciles)
        self.enqueue_all()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ledger.run())
                group.create_task(scanner.run())
                group.create_task(self._resync())
                group.create_task(
                    run_workers(
                        self.queue,
                        results.counted(self._measured(reconciler)),
                        count=WORKERS + 1,
                        on_error=results.on_error,
                    )
                )
        finally:
            self._scanner = self._ledger = None
            self.caches.whole_reports.release_all()
            if self.is_stopping:
                await self._final_flush(ledger)

    def _create_ledger(self) -> Ledger:
        return Ledger(
            self._client,
            self._metrics,
            reports=RunReports(
                self.caches.reports_of,
                self.caches.has_job,
                lambda job: self.caches.whole_reports.read_whole(job.uid),
            ),
            on_refused=self._report_refused,
            flush_seconds=self._config().flush_interval,
        )

    def _report_refused(self, job: Job, words: str) -> None:
        self._events.emit(
            job_reference(job), "Warning", EventReason.EVIDENCE_REFUSED, words, "Recording"
        )

    def _create_scanner(self, on_findings: OnFindings, on_progress: OnProgress) -> Scanner:
        return Scanner(
            self._client,
            self._clock,
            self._metrics,
            limits=_limits(self._config()),
            on_findings=on_findings,
            on_progress=on_progress,
        )

    def enqueue_all(self) -> None:
        """Enqueue every Job."""
        for job in self.caches.jobs():
            self.queue.add((job.namespace, job.name))

    def apply(self, config: Config) -> None:
        """Apply the settings of a new configuration that can change while leading."""
        if self._scanner is not None:
            self._scanner.set_limits(_limits(config))
        if self._ledger is not None:
            self._ledger.flush_seconds = config.flush_interval
        self.enqueue_all()

    # --- calls from the caches -----------------------------------------------------------

    def job_affected(self, key: JobKey, *, debounced: bool) -> None:
        """Enqueue a Job: now, or debounced with further changes."""
        delay = 0.0
        if debounced:
            delay = self._debouncer.remaining_seconds(key, self._clock.monotonic())
        self.queue.add_after(key, delay)

    def report_changed(self, report: JobReport) -> None:
        """Pass a changed report on to the ledger."""
        if self._ledger is not None:
            self._ledger.report_changed(report.job_uid)

    def job_deleted(self, job: Job) -> None:
        """Drop the state kept for the Job. Its evidence is still written while reports exist."""
        self._debouncer.forget((job.namespace, job.name))
        if self._ledger is not None and not self.caches.reports_of(job):
            self._ledger.drop_run(job.uid)

    def needs_whole_reports(self, job_uid: str) -> bool:
        """Return whether the ledger has a buffer of that run."""
        return self._ledger is not None and job_uid in self._ledger

    # --- one reconcile -------------------------------------------------------------------

    def _measured(self, reconciler: Reconciler) -> Callable[[JobKey], Awaitable[float | None]]:
        async def reconcile(key: JobKey) -> float | None:
            started = self._clock.monotonic()
            again_seconds = await reconciler.reconcile(key)
            now = self._clock.monotonic()
            if self.caches.job(key) is not None:
                self._debouncer.record(key, now - started, now)
            return again_seconds

        return reconcile

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._config().resync_period)
            if self._ledger is not None:
                self._ledger.drop_idle_runs()
            self.caches.whole_reports.release_all()
            self.enqueue_all()

    async def _final_flush(self, ledger: Ledger) -> None:
        try:
            async with asyncio.timeout(FINAL_FLUSH_SECONDS):
                await ledger.flush()
        except TimeoutError:
            logger.warning(
                "stopped before all evidence was recorded; the next leader reads those logs again"
            )


def _limits(config: Config) -> Limits:
    """Return the limits of the scanner in a configuration."""
    return Limits(config.max_streams, config.short_reads)
