"""Reconciles one Job at a time: which pods to read, and whether the Job may be deleted.

Shell: ``completion`` counts, the scanner reads, and the ledger writes. Reconciling is
level-triggered: it starts from the caches, whichever events arrived, and however often.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from loguru import logger

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import Completion
from daemonset_job.api.pod import Pod
from daemonset_job.informers.full_reports import INCOMPLETE_RETRY_SECONDS
from daemonset_job.kube.cache.reflector import UNSYNCED_SECONDS
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, KubeError, NotFound
from daemonset_job.kube.client.resource import JOBS
from daemonset_job.runtime.clock import Clock
from terminator.caches import Caches, JobKey
from terminator.completion import decide_deletion
from terminator.ledger.assignment import (
    exit_evidence,
    has_succeeded,
    is_failure,
    is_of_latest_exit,
    log_evidence,
)
from terminator.ledger.writer import Ledger
from terminator.logs.matcher import Matcher
from terminator.logs.scanner import Scanner
from terminator.logs.tail_read import Findings, bounded_results
from terminator.logs.targets import Target
from terminator.metrics import Metrics
from terminator.node_count import (
    Count,
    Snapshot,
    count_nodes,
    merge_ledger,
    merge_records,
    owned_pods,
    pod_belongs_to_node,
)

# Number of different matchers kept. Jobs of one token share a matcher, and with it the states that
# its regular expression has built.
_MATCHERS_LIMIT = 256
# How long to delay deletion of a complete Job while results are still unread, and how often to
# check. The delay is three times the longest pause between two attempts to read a log
# (read_policy.RETRY_SECONDS).
RESULTS_WAIT_SECONDS = 15.0
RESULTS_CHECK_SECONDS = 0.25
# A deleted Job that is still cached after this time exists again: etcd was restored.
DELETED_CACHED_SECONDS = 120.0

_Tokens = tuple[Completion, tuple[str, ...], str]


class Matchers:
    """The matchers of all Jobs."""

    def __init__(self, default_token: Callable[[], str]) -> None:
        self._default_token = default_token
        # The least recently used comes first; None for an invalid token.
        self._matchers: OrderedDict[_Tokens, Matcher | None] = OrderedDict()

    def of(self, job: Job) -> Matcher | None:
        """Return the Job's matcher, None after a warning if its token is invalid.

        Jobs with equal tokens get equal matchers.
        """
        # The default token that the running pods were given; the default may have changed since.
        default = job.completion_token or self._default_token()
        key = (job.spec.completion, job.spec.results, default)
        if key in self._matchers:
            self._matchers.move_to_end(key)
            return self._matchers[key]
        if len(self._matchers) >= _MATCHERS_LIMIT:
            self._matchers.popitem(last=False)
        try:
            matcher = Matcher.of(job.spec, default)
        except ValueError as error:
            logger.warning(
                "the completion token cannot be used",
                error=str(error),
            )
            matcher = None
        self._matchers[key] = matcher
        return matcher


class Reconciler:
    """Acts on one Job per call."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        caches: Caches,
        ledger: Ledger,
        metrics: Metrics,
        *,
        default_token: Callable[[], str],
    ) -> None:
        self._client = client
        self._clock = clock
        self._caches = caches
        self._ledger = ledger
        self._metrics = metrics
        self._matchers = Matchers(default_token)
        # By key, the UID of a Job that was deleted, and when, in seconds of the monotonic clock.
        self._deleted: dict[JobKey, tuple[str, float]] = {}
        # By key, the UID of a Job that only waits for results, and since when, likewise.
        self._deletable_since: dict[JobKey, tuple[str, float]] = {}
        # By key, the UID of a Job that is overdue, and since when, likewise: the wall clock can be
        # set, and a Job must not be deleted too soon.
        self._overdue_since: dict[JobKey, tuple[str, float]] = {}
        # Set right after: the scanner needs `on_findings`, and the reconciler needs the scanner.
        self.scanner: Scanner

    async def reconcile(self, key: JobKey) -> float | None:
        """Update the targets of the scanner, and delete the Job if it may be; raises KubeError.

        Returns the seconds until the next reconcile is due, if no event comes first.
        """
        if not self._caches.has_synced(key[0]):
            return UNSYNCED_SECONDS
        job = self._caches.job(key)
        if job is None:
            self._deleted.pop(key, None)
            self._deletable_since.pop(key, None)
            self._overdue_since.pop(key, None)
            self.scanner.set_targets(key, ())
            return None
        if not self._caches.full_reports.is_complete(job.uid):
            await self._caches.full_reports.complete(job.uid)
            job = self._caches.job(key)
            if job is None or not self._caches.full_reports.is_complete(job.uid):
                return INCOMPLETE_RETRY_SECONDS
        daemon_set = self._caches.daemon_set_of(job)
        pods = owned_pods(
            job, daemon_set, self._caches.pods_of(daemon_set) if daemon_set is not None else ()
        )
        self.scanner.set_targets(key, self._targets(job, pods))
        self._flush_if_last(job)
        self._flush_for_ended_pods(job, pods)
        return await self._delete_if_allowed(key, job, daemon_set, pods)

    # --- reading -------------------------------------------------------------------------

    def _targets(self, job: Job, pods: list[Pod]) -> list[Target]:
        """Return the pods to read; evidence in a pod's status is recorded at once."""
        matcher = self._matchers.of(job)
        if matcher is None:
            return []
        is_exit = job.spec.completion.mode == CompletionMode.EXIT
        # In mode Exit a running task's log decides nothing, unless it may print that it failed.
        is_live = not is_exit or job.spec.completion.failure_token is not None
        ledger, nodes = self._ledger.evidence(job), self._caches.nodes_of(pods)
        targets = []
        for pod in pods:
            node = nodes.get(pod.node_name)
            if node is None or not pod.is_scheduled or not pod_belongs_to_node(pod, node):
                continue
            entry = ledger.get(node.name)
            if entry is not None and entry.node_uid != node.uid:
                entry = None
            if is_exit and has_succeeded(pod) and (entry is None or not entry.is_completed):
                self._record(job, pod, exit_evidence(pod, node.uid))
                if not job.spec.results:
                    continue
            if entry is not None and entry.is_completed:
                # In mode Exit the results of the completed attempt are still in the log.
                if not (is_exit and job.spec.results and is_of_latest_exit(entry, pod)):
                    continue
            elif entry is not None and entry.failed_at and entry.pod_uid == pod.uid:
                continue
            targets.append(Target(pod, job.uid, node.uid, matcher, is_live))
        return targets

    def on_findings(self, key: JobKey, target: Target, findings: Findings) -> None:
        """Record the scanner's findings: a token, or the end of a log without one."""
        job = self._caches.job(key)
        if job is None or job.uid != target.job_uid:
            return
        # Findings in a deleted pod's log must not replace the evidence about a newer node.
        node = self._caches.nodes_of([target.pod]).get(target.pod.node_name)
        if node is None or node.uid != target.node_uid:
            return
        is_exit = job.spec.completion.mode == CompletionMode.EXIT
        evidence = log_evidence(
            target.pod,
            target.node_uid,
            findings,
            job.spec.failure_log_lines,
            with_attempt=not is_exit,
        )
        if is_exit and has_succeeded(target.pod):
            if self._is_of_later_start(job, target):
                return
            exited = exit_evidence(target.pod, target.node_uid)
            evidence = replace(exited, results=bounded_results(findings.results))
        if evidence is not None and not self._is_redundant(job, target.pod, evidence):
            self._record(job, target.pod, evidence)
            self._flush_if_last(job)

    def _is_of_later_start(self, job: Job, target: Target) -> bool:
        """Return whether the node had completed before this attempt, in mode Exit."""
        entry = self._ledger.evidence_of(job, target.pod.node_name)
        if entry is None or not entry.is_completed or entry.node_uid != target.node_uid:
            return False
        return not is_of_latest_exit(entry, target.pod)

    def _is_redundant(self, job: Job, pod: Pod, evidence: Evidence) -> bool:
        """Return whether evidence of another failed attempt is not needed.

        The kubelet restarts the task of a kept pod again and again. Once the controller has
        recorded the node as failed since the newest retry, the lines of one attempt are enough.
        """
        if evidence.is_completed or evidence.failed_at:
            return False
        is_failed = any(
            (record := report.records.get(pod.node_name)) is not None
            and is_failure(record, evidence.node_uid, job.retry_request)
            for report in self._caches.reports_of(job)
        )
        if not is_failed:
            return False
        entry = self._ledger.evidence_of(job, pod.node_name)
        has_lines = entry is not None and entry.pod_uid == pod.uid and bool(entry.last_lines)
        return has_lines or not evidence.last_lines

    def _record(self, job: Job, pod: Pod, evidence: Evidence) -> None:
        if self._ledger.record(job, pod.node_name, evidence):
            logger.bind(
                namespace=job.namespace,
                job=job.name,
                node=pod.node_name,
                pod=pod.name,
                completed=evidence.is_completed,
                failed=bool(evidence.failed_at),
            ).debug("evidence about a node")

    # --- ending --------------------------------------------------------------------------

    def _flush_if_last(self, job: Job) -> None:
        """Flush pending evidence at once if no other evidence is expected for now.

        That is, if it completes the run, or decides about every node whose pod is not gated.
        """
        daemon_set = self._caches.daemon_set_of(job)
        if daemon_set is None or not self._ledger.has_pending(job):
            return
        if self._are_all_pods_decided(job, daemon_set):
            self._ledger.flush_now(job)
            return
        if not self._ledger.may_complete(job, daemon_set.desired):
            return
        pods = self._caches.pods_of(daemon_set)
        nodes = self._caches.nodes_of(pods)
        if count_nodes(
            Snapshot(job, daemon_set, pods, nodes, self._ledger.evidence(job))
        ).all_completed:
            self._ledger.flush_now(job)

    def _are_all_pods_decided(self, job: Job, daemon_set: DaemonSet) -> bool:
        """Return whether all nodes have pods, and no log of a pod without a gate is undecided."""
        if self.scanner.has_undecided_pods((job.namespace, job.name)):
            return False
        pods = self._caches.pods_of(daemon_set)
        return len(pods) >= daemon_set.desired and all(
            pod.is_scheduled or pod.is_gated for pod in pods
        )

    def _flush_for_ended_pods(self, job: Job, pods: list[Pod]) -> None:
        """Flush pending evidence early if the pod or task that it came from has ended.

        It is flushed at once for a pod that is deleted or terminating, because the next pod runs
        the task again unless the completion is recorded. For an ended task it is flushed soon: the
        controller decides by the exit code unless the token is recorded in time.
        """
        staying = {pod.uid: pod for pod in pods if not pod.is_terminating}
        sources = [staying.get(entry.pod_uid) for entry in self._ledger.pending(job).values()]
        if None in sources:
            self._ledger.flush_now(job)
        elif job.spec.completion.mode != CompletionMode.EXIT and any(
            pod and _has_ended(pod) for pod in sources
        ):
            self._ledger.flush_soon(job)

    async def _delete_if_allowed(
        self, key: JobKey, job: Job, daemon_set: DaemonSet | None, pods: list[Pod]
    ) -> float | None:
        """Delete the Job if it may be; return the seconds until time alone may change that."""
        # Counts cached reports only: the evidence has to be stored before the Job is deleted.
        reports = self._caches.reports_of(job)

        def count() -> Count:
            ledger, records = merge_ledger(job, reports), merge_records(job, reports)
            nodes = self._caches.nodes()
            return count_nodes(Snapshot(job, daemon_set, pods, nodes, ledger, records))

        now, moment = self._clock.now(), self._clock.monotonic()
        uid, since = self._overdue_since.get(key, (job.uid, moment))
        overdue_seconds = moment - since if uid == job.uid else 0.0
        decision = decide_deletion(job, count, now, now - timedelta(seconds=overdue_seconds))
        if not decision.is_overdue:
            self._overdue_since.pop(key, None)
        elif uid != job.uid or key not in self._overdue_since:
            self._overdue_since[key] = job.uid, moment
        if not decision.may_delete:
            logger.trace("the Job is not deleted yet", because=decision.blocked_by)
            wake_at = decision.wake_at
            return None if wake_at is None else max((wake_at - now).total_seconds(), 0.0)
        deleted_uid, deleted_at = self._deleted.get(key, ("", 0.0))
        if deleted_uid == job.uid and self._clock.monotonic() < deleted_at + DELETED_CACHED_SECONDS:
            return None  # the cache is stale
        if self._should_wait_for_results(key, job, moment):
            self._ledger.flush_now(job)
            return RESULTS_CHECK_SECONDS
        await self._delete(key, job, count())
        return None

    def _should_wait_for_results(self, key: JobKey, job: Job, moment: float) -> bool:
        """Return whether to wait for unread results; in mode Exit the exit code alone completes.

        The log of the last node may not have been read by then, above all not by a new leader. A
        log that cannot be read delays the deletion by RESULTS_WAIT_SECONDS at most.
        """
        if job.spec.completion.mode != CompletionMode.EXIT or not job.spec.results:
            return False
        if not (self._ledger.has_pending(job) or self.scanner.has_unread_logs(key)):
            return False
        uid, since = self._deletable_since.setdefault(key, (job.uid, moment))
        if uid != job.uid:
            since = moment
            self._deletable_since[key] = (job.uid, since)
        return moment < since + RESULTS_WAIT_SECONDS

    async def _delete(self, key: JobKey, job: Job, count: Count) -> None:
        """Delete the Job unless it has changed since it was counted."""
        try:
            await self._client.delete(
                JOBS,
                job.name,
                job.namespace,
                uid=job.uid,
                resource_version=job.resource_version,
                propagation="Background",
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
            logger.info(
                "deleted the Job",
                desired=len(count.desired),
                completed=len(count.completed),
                failed=len(count.failed),
            )
        self._deleted[key] = (job.uid, self._clock.monotonic())


def _has_ended(pod: Pod) -> bool:
    """Return whether the task in the pod has ended at least once."""
    container = pod.container
    return container is not None and (container.state != "running" or container.restart_count > 0)
