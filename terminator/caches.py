"""The terminator's caches, and which Job a change affects.

It caches Jobs, DaemonSets, pods by the label selector and JobReports. Of nodes it
caches the metadata only: counting needs name, UID, creation time and labels.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from daemonset_job.api.compact import (
    compact_daemon_set_placement,
    compact_job_placement,
    expand_job_placement,
)
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job, JobKey, parse_job
from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.api.report import JobReport
from daemonset_job.api.states import ConditionType
from daemonset_job.informers.daemon_sets import (
    daemon_set_kind,
    owners_of_pod,
    selecting_by_changed_label,
)
from daemonset_job.informers.informers import CachedKind, SharedInformers
from daemonset_job.informers.job_changes import is_by_client
from daemonset_job.informers.whole_reports import RUN_INDEX, WholeReports, parse_cached_report
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, PODS
from daemonset_job.runtime.clock import Clock


class Listener(Protocol):
    """Is called on changes, from within the caches; it must return quickly and not await."""

    def job_affected(self, key: JobKey, *, debounced: bool) -> None:
        """Handle a change that affects a Job; `debounced`: further changes may follow."""
        ...

    def report_changed(self, report: JobReport) -> None:
        """Handle the creation, change or deletion of a report."""
        ...

    def job_deleted(self, job: Job) -> None:
        """Handle the deletion of a Job; another one of its name may exist."""
        ...

    def needs_whole_reports(self, job_uid: str) -> bool:
        """Return whether evidence of that run, whose Job may be deleted, is still pending."""
        ...


class Caches(SharedInformers):
    """The caches of some namespaces (none named: all of them)."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        listener: Listener,
        *,
        namespaces: Iterable[str],
        pod_label_selector: str,
    ) -> None:
        super().__init__(
            client, clock, namespaces, on_node=self._node_changed, metadata_of_nodes_only=True
        )
        self._listener = listener
        self._jobs = self._watch(
            CachedKind(
                JOBS,
                lambda raw: compact_job_placement(parse_job(raw)),
                {"uid": lambda job: (job.uid,)},
            ),
            self._job_changed,
        )
        self._daemon_sets = self._watch(
            daemon_set_kind(compact_daemon_set_placement), self._daemon_set_changed
        )
        self._pods = self._watch(
            CachedKind(
                PODS,
                parse_pod,
                {"owner": lambda pod: (f"{pod.namespace}/{pod.owner_uid}",)},
                pod_label_selector or None,
            ),
            self._pod_changed,
        )
        self._reports = self._watch(
            CachedKind(
                JOB_REPORTS,
                lambda raw: parse_cached_report(raw, self._needs_whole_reports),
                RUN_INDEX,
            ),
            self._report_changed,
            # The Jobs decide which reports are cached whole.
            after=self._jobs,
        )
        self.whole_reports = WholeReports(
            client, self._reports.store, is_needed=self._needs_whole_reports
        )

    # --- reading -------------------------------------------------------------------------

    def job(self, key: JobKey) -> Job | None:
        """Return the Job of that key, with the parts of its spec that the terminator needs."""
        found = self._jobs.store.get(key)
        return None if found is None else expand_job_placement(found)

    def compact_job(self, key: JobKey) -> Job | None:
        """Return the Job of that key without the fields that select its nodes."""
        return self._jobs.store.get(key)

    def jobs(self) -> list[Job]:
        """Return all Jobs, without the fields that select their nodes."""
        return self._jobs.store.values()

    def has_job(self, uid: str) -> bool:
        """Return whether the Job of that UID exists."""
        return bool(self._jobs.store.by_index("uid", uid))

    def daemon_set_of(self, job: Job) -> DaemonSet | None:
        """Return the DaemonSet of the Job's name; check its owner UID before using it."""
        return self._daemon_sets.store.get((job.namespace, job.daemon_set_name))

    def pods_of(self, daemon_set: DaemonSet) -> list[Pod]:
        """Return the pods that the DaemonSet controls, by owner reference and not by label.

        Only pods of its namespace count. A user who may create pods elsewhere can write any UID
        into them, and their logs would count for this DaemonSet's Job.
        """
        return self._pods.store.by_index("owner", f"{daemon_set.namespace}/{daemon_set.uid}")

    def nodes_of(self, pods: Iterable[Pod]) -> Mapping[str, Node]:
        """Return the nodes that these pods are on or meant for, by name."""
        found = (self._nodes.store.get(("", pod.node_name)) for pod in pods if pod.node_name)
        return {node.name: node for node in found if node is not None}

    def reports_of(self, job: Job) -> list[JobReport]:
        """Return the reports of this run, by the UID of its Job."""
        found = self._reports.store.by_index("run", job.uid)
        return [report for report in found if report.namespace == job.namespace]

    def _needs_whole_reports(self, uid: str) -> bool:
        return self.has_job(uid) or self._listener.needs_whole_reports(uid)

    # --- changes -------------------------------------------------------------------------

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        job = new or old
        assert job is not None
        if new is None:
            self._listener.job_deleted(job)
            self.whole_reports.release(job.uid)
        self._listener.job_affected((job.namespace, job.name), debounced=is_by_client(old, new))

    def _daemon_set_changed(self, old: DaemonSet | None, new: DaemonSet | None) -> None:
        found = new or old
        assert found is not None
        self._wake_owner(found, debounced=old is not None and new is not None)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        for found in owners_of_pod(self._daemon_sets.store, pod):
            self._wake_owner(found, debounced=True)

    def _wake_owner(self, found: DaemonSet, *, debounced: bool) -> None:
        for job in self._jobs.store.by_index("uid", found.owner_uid):
            if job.namespace == found.namespace:  # one elsewhere may carry a forged UID
                self._listener.job_affected((job.namespace, job.name), debounced=debounced)

    def _report_changed(self, old: JobReport | None, new: JobReport | None) -> None:
        report = new or old
        assert report is not None
        self._listener.report_changed(report)
        self.whole_reports.release(report.job_uid)
        # A complete Job waits for its record only, so no burst of changes follows.
        key = (report.namespace, report.job_name)
        job = self._jobs.store.get(key)  # its conditions are there without unpacking its spec
        is_complete = job is not None and job.is_true(ConditionType.COMPLETE)
        self._listener.job_affected(key, debounced=not is_complete)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.uid == new.uid:
            for found in selecting_by_changed_label(self._daemon_sets.store, old, new):
                self._wake_owner(found, debounced=True)
            return
        for job in self._jobs.store:
            self._listener.job_affected((job.namespace, job.name), debounced=True)
