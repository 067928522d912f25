"""Reconciles one Job at a time: which pods to read, and whether the Job may be deleted.

Shell: the scanner reads, the ledger writes, and ``deleter`` deletes. Reconciling is
level-triggered: it starts from the caches, whichever events arrived, and however often.
"""

from collections.abc import Callable
from dataclasses import replace

from loguru import logger

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.evidence import Evidence, lacks_lines
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.pod import Pod
from daemonset_job.api.task_progress import TaskProgress
from daemonset_job.informers.whole_reports import SUMMARY_RETRY_SECONDS
from daemonset_job.kube.cache.reflector import UNSYNCED_SECONDS
from terminator.caches import Caches
from terminator.deleter import Deleter
from terminator.early_flush import EarlyFlush
from terminator.ledger.evidence import (
    exit_evidence,
    has_succeeded,
    is_beyond_limit,
    is_failure,
    is_failure_of_pod,
    is_of_earlier_try,
    is_of_latest_exit,
    log_evidence,
    with_results,
)
from terminator.ledger.writer import Ledger
from terminator.logs.findings import Findings
from terminator.logs.findings_report import OnFindings
from terminator.logs.matchers import Matchers
from terminator.logs.progress_report import OnProgress
from terminator.logs.scanner import Scanner
from terminator.logs.targets import Target
from terminator.node_count import owned_pods, pod_belongs_to_node


class Reconciler:
    """Acts on one Job per call.

    `default_token` returns the token of Jobs that name none. `new_scanner` returns the scanner that
    reads the logs, and calls what it is given with its findings, and with the progress of tasks.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        deleter: Deleter,
        *,
        default_token: Callable[[], str],
        new_scanner: Callable[[OnFindings, OnProgress], Scanner],
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._matchers = Matchers(default_token)
        self._early_flush = EarlyFlush(caches, ledger)
        self._deleter = deleter
        self.scanner = new_scanner(self.on_findings, self.on_progress)

    async def reconcile(self, key: JobKey) -> float | None:
        """Update the targets of the scanner, and delete the Job if it may be; raises KubeError.

        Returns the seconds until the next reconcile is due, if no event comes first.
        """
        if not self._caches.has_synced(key[0]):
            return UNSYNCED_SECONDS
        job = self._caches.job(key)
        if job is None:
            self._deleter.forget(key)
            self.scanner.set_targets(key, ())
            return None
        if not self._caches.whole_reports.are_whole(job.uid):
            await self._caches.whole_reports.read_whole(job.uid)
            job = self._caches.job(key)
            if job is None or not self._caches.whole_reports.are_whole(job.uid):
                return SUMMARY_RETRY_SECONDS
        daemon_set = self._caches.daemon_set_of(job)
        pods = owned_pods(
            job, daemon_set, self._caches.pods_of(daemon_set) if daemon_set is not None else ()
        )
        self.scanner.set_targets(key, self._targets(job, pods))
        self._early_flush.flush_if_last(job, self.scanner)
        self._early_flush.flush_for_ended_pods(job, pods)
        return await self._deleter.delete_if_allowed(job, daemon_set, pods, self.scanner)

    def _targets(self, job: Job, pods: list[Pod]) -> list[Target]:
        """Return the pods to read; evidence in a pod's status is recorded at once."""
        matcher = self._matchers.of(job)
        if matcher is None or job.has_new_revision:
            # The status has the token of an earlier revision.
            return []
        is_exit = job.spec.completion.mode == CompletionMode.EXIT
        # In mode Exit a running task's log decides nothing, unless it may print that it failed.
        is_live = not is_exit or job.spec.completion.failure_token is not None
        ledger, nodes = self._ledger.evidence(job), self._caches.nodes_of(pods)
        failed, revision, earlier = self._failed_nodes(job), job.revision, self._earlier_pods(job)
        ends_all_tasks = job.ends_all_tasks
        targets = []
        for pod in pods:
            node = nodes.get(pod.node_name)
            if node is None or not pod.is_scheduled or not pod_belongs_to_node(pod, node):
                continue
            if pod.revision != revision or pod.uid in earlier.get(node.name, ()):
                # It is about to be replaced, and its log says nothing of what is to run now.
                continue
            entry = ledger.get(node.name)
            if is_failure_of_pod(entry, pod) and entry.node_uid != node.uid:
                # The cache was late, and still had the former node of that name.
                entry = replace(entry, node_uid=node.uid)
                self._record(job, pod, entry)
            if entry is not None and (
                entry.node_uid != node.uid
                or is_of_earlier_try(entry, revision, earlier.get(node.name, ()))
            ):
                entry = None
            # A failure token in its log outweighs exit code 0, so the log is read first.
            has_exited = is_exit and has_succeeded(pod)
            if has_exited and not is_live and (entry is None or not entry.is_completed):
                self._record(job, pod, exit_evidence(pod, node.uid))
                if not job.spec.results:
                    continue
            if _is_log_needed(job, pod, entry):
                has_failed = ends_all_tasks or failed.get(node.name) == node.uid
                wants_lines = (
                    has_failed and bool(job.spec.failure_log_lines) and lacks_lines(pod, entry)
                )
                targets.append(
                    Target(pod, job.uid, node.uid, matcher, is_live, wants_lines, has_exited)
                )
        return targets

    def _failed_nodes(self, job: Job) -> dict[str, str]:
        """Return the UIDs of the nodes on record as failed since the newest retry, by name."""
        if job.status.nodes is None or not job.status.nodes.failed:
            return {}
        return {
            name: record.uid
            for report in self._caches.reports_of(job)
            for name, record in report.records.items()
            if is_failure(record, record.uid, job)
        }

    def _earlier_pods(self, job: Job) -> dict[str, tuple[str, ...]]:
        """Return the pods whose evidence no longer counts, by node, for policy Continuous."""
        if not job.revision:
            return {}
        return {
            name: record.earlier_pods
            for report in self._caches.reports_of(job)
            for name, record in report.records.items()
            if record.earlier_pods
        }

    def _earlier_pods_of(self, job: Job, node: str) -> tuple[str, ...]:
        return tuple(
            uid
            for report in self._caches.reports_of(job)
            if (record := report.records.get(node)) is not None
            for uid in record.earlier_pods
        )

    def on_findings(self, key: JobKey, target: Target, findings: Findings) -> None:
        """Record the scanner's findings: a token, or the end of a log without one."""
        job = self._job_of(key, target)
        if job is None:
            return
        is_exit = job.spec.completion.mode == CompletionMode.EXIT
        evidence = log_evidence(
            target.pod,
            target.node_uid,
            findings,
            job.spec.failure_log_lines,
        )
        if (
            is_exit
            and has_succeeded(target.pod)
            and not self._has_failed_for_good(job, target, evidence)
        ):
            if self._is_of_later_start(job, target):
                return
            exited = exit_evidence(target.pod, target.node_uid)
            evidence = with_results(exited, findings.all_results)
        if evidence is not None:
            evidence = self._with_lines_of_failure(job, target.pod, evidence)
        if evidence is not None and not self._is_redundant(job, target.pod, evidence):
            self._record(job, target.pod, evidence)
            self._early_flush.flush_if_last(job, self.scanner)

    def on_progress(self, key: JobKey, target: Target, progress: TaskProgress) -> None:
        """Note how far the task in a pod has come."""
        if (job := self._job_of(key, target)) is not None:
            self._ledger.note_progress(job, target.pod.node_name, target.node_uid, progress)

    def _job_of(self, key: JobKey, target: Target) -> Job | None:
        """Return the Job that findings about a target are for, None if they are for none now.

        It is without the fields that select its nodes, since this is called for each pod.
        """
        job = self._caches.compact_job(key)
        if job is None or job.uid != target.job_uid:
            return None
        # Findings in a deleted pod's log must not replace the evidence about a newer node.
        node = self._caches.nodes_of([target.pod]).get(target.pod.node_name)
        return job if node is not None and node.uid == target.node_uid else None

    def _has_failed_for_good(self, job: Job, target: Target, new: Evidence | None) -> bool:
        """Return whether the task in a pod has printed the failure token."""
        entry = self._ledger.evidence_of(job, target.pod.node_name)
        return any(is_failure_of_pod(found, target.pod) for found in (new, entry))

    def _is_of_later_start(self, job: Job, target: Target) -> bool:
        """Return whether the node had completed before this attempt, in mode Exit."""
        entry = self._ledger.evidence_of(job, target.pod.node_name)
        if entry is None or not entry.completes(target.node_uid):
            return False
        if is_of_earlier_try(entry, job.revision, self._earlier_pods_of(job, target.pod.node_name)):
            return False
        return not is_of_latest_exit(entry, target.pod)

    def _with_lines_of_failure(self, job: Job, pod: Pod, evidence: Evidence) -> Evidence:
        """Return the evidence without lines, if the node had failed before they were printed.

        The kubelet starts the task again, also after its last allowed failure. The lines of that
        failure say what is wrong, also if there are none. The next attempt may only say that it
        does nothing, as run-once does. Its number is still recorded: the controller waits until its
        end has been read. If that of the failure was not read, later lines are better than none.
        """
        if evidence.is_completed or evidence.failed_at or not evidence.last_lines:
            return evidence
        if not is_beyond_limit(job.spec, pod, evidence):
            return evidence
        entry = self._ledger.evidence_of(job, pod.node_name)
        if entry is None or entry.pod_uid != pod.uid:
            return evidence
        is_read = bool(entry.last_lines) or entry.attempt > job.spec.backoff_limit
        return replace(evidence, last_lines=()) if is_read else evidence

    def _is_redundant(self, job: Job, pod: Pod, evidence: Evidence) -> bool:
        """Return whether evidence of another failed attempt is not needed.

        The kubelet restarts the task of a kept pod again and again. Once the controller has
        recorded the node as failed since the newest retry, the lines of one attempt are enough.
        """
        if evidence.is_completed or evidence.failed_at:
            return False
        is_failed = any(
            (record := report.records.get(pod.node_name)) is not None
            and is_failure(record, evidence.node_uid, job)
            for report in self._caches.reports_of(job)
        )
        if not is_failed:
            return False
        entry = self._ledger.evidence_of(job, pod.node_name)
        has_lines = entry is not None and entry.pod_uid == pod.uid and bool(entry.last_lines)
        return has_lines or not evidence.last_lines

    def _record(self, job: Job, pod: Pod, evidence: Evidence) -> None:
        if job.revision:
            earlier = self._earlier_pods_of(job, pod.node_name)
            if pod.uid in earlier:
                # Found before the node was due again.
                return
            evidence = replace(evidence, replaces=earlier)
        if self._ledger.record(job, pod.node_name, evidence):
            logger.bind(
                namespace=job.namespace,
                job=job.name,
                node=pod.node_name,
                pod=pod.name,
                completed=evidence.is_completed,
                failed=bool(evidence.failed_at),
            ).debug("evidence about a node")


def _is_log_needed(job: Job, pod: Pod, entry: Evidence | None) -> bool:
    """Return whether a pod's log may show more about its node than the evidence `entry`."""
    if entry is None:
        return True
    if entry.is_completed:
        # In mode Exit the results of the completed attempt are still in the log.
        is_exit = job.spec.completion.mode == CompletionMode.EXIT
        return is_exit and bool(job.spec.results) and is_of_latest_exit(entry, pod)
    return not entry.failed_at or entry.pod_uid != pod.uid
