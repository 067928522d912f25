"""Deletes Jobs that may be deleted, each once, and after the results of its last node are read.

``deletion_decision`` decides whether a Job may be deleted, ``node_count`` counts.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from loguru import logger

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.listed_results import lists_lack_results
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import JobReport
from daemonset_job.api.states import ConditionType
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, KubeError, NotFound
from daemonset_job.kube.client.resource import JOBS
from daemonset_job.runtime.clock import Clock
from terminator.caches import Caches
from terminator.deleted_nodes import drop_deleted_nodes
from terminator.deletion_decision import OVERDUE_SECONDS, DeletionDecision, decide_deletion
from terminator.job_times import JobTimes
from terminator.ledger.writer import Ledger
from terminator.logs.scanner import Scanner
from terminator.metrics import Metrics
from terminator.node_changes import unchanged_nodes
from terminator.node_count import Count, Snapshot, count_nodes, merge_ledger, merge_records
from terminator.unknown_nodes import has_unknown_nodes
from terminator.unseen_pods import has_unseen_pod

# How long to delay deletion of a complete Job while results are still unread, and how often to
# check. The delay is three times the longest pause between two attempts to read a log
# (read_policy.RETRY_SECONDS).
RESULTS_WAIT_SECONDS = 15.0
RESULTS_CHECK_SECONDS = 0.25
# How long to wait for a pod that the API server has, and the cache has not. Its event causes
# another reconcile, too.
UNSEEN_POD_SECONDS = 1.0
# A deleted Job that is still cached after this time exists again: etcd was restored.
DELETED_CACHED_SECONDS = 120.0


class Deleter:
    """Deletes one Job per call if it may be deleted, or else what need not be kept of it."""

    def __init__(
        self, client: KubeClient, clock: Clock, caches: Caches, ledger: Ledger, metrics: Metrics
    ) -> None:
        self._client = client
        self._clock = clock
        self._caches = caches
        self._ledger = ledger
        self._metrics = metrics
        self._deleted_at = JobTimes()
        # Since when Jobs only wait for results, and since when they are overdue.
        self._deletable_since = JobTimes()
        self._overdue_since = JobTimes()
        # Since when Jobs wait for a pod that is not cached.
        self._unseen_since = JobTimes()
        self._all_times = (
            self._deleted_at,
            self._deletable_since,
            self._overdue_since,
            self._unseen_since,
        )

    def forget(self, key: JobKey) -> None:
        """Drop the state kept for a Job that is not in the caches any more."""
        for times in self._all_times:
            times.forget(key)

    async def delete_if_allowed(
        self, job: Job, daemon_set: DaemonSet | None, pods: Sequence[Pod], scanner: Scanner
    ) -> float | None:
        """Delete the Job if it may be deleted; raises KubeError.

        Returns the seconds until time alone may change the decision, None if it does not.
        """
        await drop_deleted_nodes(self._client, self._caches, job)
        # Counts cached reports only: the evidence has to be stored before the Job is deleted.
        reports = self._caches.reports_of(job)

        def snapshot() -> Snapshot:
            ledger, records = merge_ledger(job, reports), merge_records(job, reports)
            return Snapshot(job, daemon_set, pods, self._caches.nodes(), ledger, records)

        def count() -> Count:
            return count_nodes(snapshot())

        now, moment = self._clock.now(), self._clock.monotonic()
        decision = self._decide(job, count, now, moment)
        if not decision.may_delete:
            self._deletable_since.forget((job.namespace, job.name))
            logger.trace("the Job is not deleted yet", because=decision.blocked_by)
            wake_at = decision.wake_at
            return None if wake_at is None else max((wake_at - now).total_seconds(), 0.0)
        deleted_at = self._deleted_at.get(job)
        if deleted_at is not None and moment < deleted_at + DELETED_CACHED_SECONDS:
            return None  # the cache is stale
        is_reading = self._has_unread_results(job, scanner, reports)
        if is_reading and self._may_wait(job, moment):
            self._ledger.flush_now(job)
            return RESULTS_CHECK_SECONDS
        if unchanged := unchanged_nodes(snapshot()):
            # The controller records each change: that event causes another reconcile.
            logger.debug("the Job is not deleted yet: nodes are not changed", nodes=len(unchanged))
            return None
        if await self._has_unseen_pod(snapshot()):
            logger.debug("the Job is not deleted yet: it has a pod that is not cached")
            return UNSEEN_POD_SECONDS
        await self._delete(job)
        return None

    def _decide(
        self, job: Job, count: Callable[[], Count], now: datetime, moment: float
    ) -> DeletionDecision:
        """Return whether the Job may be deleted, and remember since when it is overdue.

        The monotonic clock measures how long it is overdue: the wall clock can be set, and a Job
        must not be deleted too soon.
        """
        since = self._overdue_since.get(job)
        overdue_seconds = 0.0 if since is None else moment - since
        decision = decide_deletion(job, count, now, now - timedelta(seconds=overdue_seconds))
        if not decision.is_overdue:
            self._overdue_since.forget((job.namespace, job.name))
        elif since is None:
            self._overdue_since.set(job, moment)
        return decision

    async def _has_unseen_pod(self, found: Snapshot) -> bool:
        """Return whether a complete Job has a pod that the caches have not seen yet."""
        job, owner = found.job, found.daemon_set
        if owner is None or not job.is_true(ConditionType.COMPLETE) or not has_unknown_nodes(found):
            return False
        since, moment = self._unseen_since.get(job), self._clock.monotonic()
        if since is not None and moment >= since + OVERDUE_SECONDS:
            return False  # the caches cannot read that pod
        is_unseen = await has_unseen_pod(self._client, job, owner, found.pods)
        if is_unseen and since is None:
            self._unseen_since.set(job, moment)
        return is_unseen

    def _has_unread_results(self, job: Job, scanner: Scanner, reports: Sequence[JobReport]) -> bool:
        """Return whether results are not read or not recorded yet, also in the lists of nodes.

        That may be in mode Exit, in which the exit code alone completes a node. The log of the last
        node may not have been read by then, above all not by a new leader.
        """
        if job.spec.completion.mode != CompletionMode.EXIT or not job.spec.results:
            return False
        if self._ledger.has_pending(job) or scanner.has_unread_logs((job.namespace, job.name)):
            return True
        return lists_lack_results(reports, merge_ledger(job, reports))

    def _may_wait(self, job: Job, moment: float) -> bool:
        """Return whether the deletion may wait: RESULTS_WAIT_SECONDS, if a log cannot be read."""
        since = self._deletable_since.get(job)
        if since is None:
            since = moment
            self._deletable_since.set(job, since)
        return moment < since + RESULTS_WAIT_SECONDS

    async def _delete(self, job: Job) -> None:
        """Delete the Job unless it has changed since it was counted."""
        try:
            await self._client.delete(
                JOBS,
                job.name,
                job.namespace,
                uid=job.uid,
                resource_version=job.resource_version,
            )
        except Conflict:
            # Its spec may select further nodes by now. The change causes another reconcile when it
            # arrives in the cache. After the end of a run, the controller writes the Job only if
            # something else has changed.
            self._metrics.deletions.labels("changed").inc()
            logger.debug("the Job was changed while it was counted, reconciling again")
            return
        except NotFound:
            self._metrics.deletions.labels("gone").inc()
        except KubeError:
            self._metrics.deletions.labels("failed").inc()
            raise
        else:
            self._metrics.deletions.labels("done").inc()
            nodes = job.status.nodes or NodeTotals()
            logger.info(
                "deleted the Job",
                why=_why(job),
                desired=nodes.desired,
                completed=nodes.completed,
                failed=nodes.failed,
            )
        self._deleted_at.set(job, self._clock.monotonic())


def _why(job: Job) -> str:
    """Return why the Job is deleted, for the log."""
    if job.is_true(ConditionType.FAILED):
        return "the run failed, and ttlSecondsAfterFinished have passed"
    if job.spec.ttl_seconds_after_finished:
        return "the run is complete, and ttlSecondsAfterFinished have passed"
    return "the run is complete"
