"""Writes pending evidence before the flush interval is over, where waiting has a cost.

It works on the caches and the ledger.
"""

from collections.abc import Iterable

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.compact import expand_job_placement
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job
from daemonset_job.api.pod import Pod
from terminator.caches import Caches
from terminator.ledger.writer import Ledger
from terminator.logs.scanner import Scanner
from terminator.node_count import Snapshot, count_nodes


class EarlyFlush:
    """Flushes the evidence of one Job per call."""

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger

    def flush_if_last(self, job: Job, scanner: Scanner) -> None:
        """Flush pending evidence at once if no other evidence is expected for now.

        That is, if it completes the run, or decides about every node whose pod is not gated. The
        Job may be without the fields that select its nodes.
        """
        daemon_set = self._caches.daemon_set_of(job)
        if daemon_set is None or not self._ledger.has_pending(job):
            return
        if self._are_all_pods_decided(job, daemon_set, scanner) or self._are_all_completed(
            job, daemon_set
        ):
            self._ledger.flush_now(job)

    def flush_for_ended_pods(self, job: Job, pods: Iterable[Pod]) -> None:
        """Flush pending evidence early if the pod or task that it came from has ended.

        It is flushed at once for a pod that is deleted or terminating, because the next pod runs
        the task again unless the completion is recorded. For an ended task it is flushed soon: the
        controller decides by the exit code unless the token is recorded in time.
        """
        staying = {pod.uid: pod for pod in pods if not pod.is_terminating}
        pending = self._ledger.pending(job).values()
        sources = [staying.get(entry.pod_uid) for entry in pending if not entry.is_only_progress]
        if None in sources:
            self._ledger.flush_now(job)
        elif job.spec.completion.mode != CompletionMode.EXIT and any(
            pod and _has_ended(pod) for pod in sources
        ):
            self._ledger.flush_soon(job)

    def _are_all_pods_decided(self, job: Job, daemon_set: DaemonSet, scanner: Scanner) -> bool:
        """Return whether all nodes have pods, and no log of a pod without a gate is undecided."""
        if scanner.has_undecided_pods((job.namespace, job.name)):
            return False
        pods = self._caches.pods_of(daemon_set)
        return len(pods) >= daemon_set.desired and all(
            pod.is_scheduled or pod.is_gated for pod in pods
        )

    def _are_all_completed(self, job: Job, daemon_set: DaemonSet) -> bool:
        """Return whether every desired node is completed, by evidence that may be pending."""
        if not self._ledger.may_complete(job, daemon_set.desired):
            return False
        pods = self._caches.pods_of(daemon_set)
        nodes = self._caches.nodes_of(pods)
        whole = expand_job_placement(job)
        snapshot = Snapshot(whole, daemon_set, pods, nodes, self._ledger.evidence(job))
        return count_nodes(snapshot).all_completed


def _has_ended(pod: Pod) -> bool:
    """Return whether the task in the pod has ended at least once."""
    container = pod.container
    return container is not None and (container.state != "running" or container.restart_count > 0)
