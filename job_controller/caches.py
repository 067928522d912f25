"""The controller's caches: one for each kind, and the Jobs that a change affects.

Layer: above kube, below the reconciler. It turns every change into the keys, (namespace, name), of
the Jobs that it may affect. It does not decide what to do about it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.affinity import changed_labels
from daemonset_job.api.compact import (
    compact_daemon_set,
    compact_job,
    compact_oversized_job,
    expand_daemon_set,
    expand_job,
)
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.drain import parse_mark
from daemonset_job.api.job import Job, JobKey, parse_job
from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.api.report import JobReport
from daemonset_job.informers.daemon_sets import (
    daemon_set_kind,
    owners_of_pod,
    selecting_by_changed_label,
)
from daemonset_job.informers.informers import CachedKind, SharedInformers
from daemonset_job.informers.job_changes import is_by_client
from daemonset_job.informers.whole_reports import RUN_INDEX, WholeReports, parse_cached_report
from daemonset_job.kube.cache.store_writer import OnChange
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, PODS
from daemonset_job.kube.client.unreadable import Unreadable
from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.debounce import Debouncer
from job_controller.core.cluster_keys import NO_CLUSTER_KEYS, ClusterKeys
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES, spec_bytes
from job_controller.core.desired.owned_job import owned_name
from job_controller.core.desired.part import part_suffixes
from job_controller.core.desired.rollback_job import rollback_name
from job_controller.core.left_pods import looks_at_left_pods, looks_at_orphans
from job_controller.core.owned_jobs.rollback_jobs import BATCHES_LIMIT
from job_controller.ended_pods import EndedPodStore

# Changes of pods and nodes come in bursts: one reconcile this much later sees them all. It is later
# if decisions take long, at most 2 s. Changes of the ledger, which end a run, are not delayed. A
# client's change of a Job is delayed only if the last reconcile was less than that time ago.
DEBOUNCE_SECONDS = 0.25
DEBOUNCE_LIMIT_SECONDS = 2.0
# Of one Job. It creates fewer than 20: a rollback of 5,000 nodes is five.
OWNED_JOBS_LIMIT = 64


def parse_cached_job(raw: Mapping[str, Any]) -> Job:
    """Return the Job in a raw object as it is kept; raises ValueError when it is none."""
    job = parse_job(raw)
    # A Job that started before there was a limit continues.
    size = 0 if job.status.start_time is not None else spec_bytes(job)
    return compact_oversized_job(job, size) if size > SPEC_LIMIT_BYTES else compact_job(job)


class Caches(SharedInformers):
    """The caches. They call `wake(key, seconds)` for every Job that a change may affect.

    `progress(resource, namespace, version)` gets the version that each cache has reached, and
    `on_job(old, new)` each change of a Job. `cluster_keys` are those that hold over all namespaces.
    """

    def __init__(  # noqa: PLR0913 - what it is made of, and one callback for each use
        self,
        client: KubeClient,
        namespaces: Iterable[str],
        clock: Clock,
        *,
        wake: Callable[[JobKey, float], None],
        progress: Callable[[str, str, str], None],
        on_job: OnChange[Job] = lambda _old, _new: None,
        cluster_keys: ClusterKeys = NO_CLUSTER_KEYS,
    ) -> None:
        super().__init__(
            client, clock, namespaces, on_node=self._node_changed, on_progress=progress
        )
        self._wake = wake
        self._on_job = on_job
        self._cluster_keys = cluster_keys
        self.ended_pods = EndedPodStore()
        self._debouncer: Debouncer[JobKey] = Debouncer(
            min_seconds=DEBOUNCE_SECONDS, max_seconds=DEBOUNCE_LIMIT_SECONDS
        )
        self._jobs = self._watch(
            CachedKind(
                JOBS,
                parse_cached_job,
                {
                    "daemon_set": lambda job: (_index_key(job.namespace, job.daemon_set_name),),
                    "uid": lambda job: (job.uid,),
                    "owner": _owner_key,
                    "after": _waits_for,
                    "step label": lambda job: job.step_labels,
                    "exclusive": lambda job: self._exclusive_keys(
                        job.namespace, job.spec.exclusive
                    ),
                },
            ),
            self._job_changed,
            on_unreadable=lambda found: wake((found.namespace, found.name), 0.0),
        )
        self._daemon_sets = self._watch(
            daemon_set_kind(compact_daemon_set), self._daemon_set_changed
        )
        self._pods = self._watch(
            CachedKind(
                PODS,
                parse_pod,
                {
                    "owner": lambda pod: (_index_key(pod.namespace, pod.owner_uid),),
                    "exclusive": lambda pod: self._exclusive_keys(pod.namespace, pod.exclusive),
                    "job": _job_uid_key,
                },
                names.MANAGED_SELECTOR,
            ),
            self._pod_changed,
        )
        self._reports = self._watch(
            CachedKind(
                JOB_REPORTS,
                lambda raw: parse_cached_report(raw, self._has_job),
                {
                    "job": lambda report: (_index_key(report.namespace, report.job_name),),
                    **RUN_INDEX,
                    "namespace": lambda report: (report.namespace,),
                },
            ),
            self._report_changed,
            # Reports of cached Jobs are kept whole, so the Jobs come first.
            after=self._jobs,
        )
        self.whole_reports = WholeReports(client, self._reports.store, is_needed=self._has_job)

    # --- reading -----------------------------------------------------------------------

    def job(self, key: JobKey) -> Job | None:
        """Return the Job of that key."""
        found = self._jobs.store.get(key)
        return None if found is None else expand_job(found)

    def compact_job(self, key: JobKey) -> Job | None:
        """Return the Job of that key without the long parts of its spec, which takes no time."""
        return self._jobs.store.get(key)

    def jobs(self) -> list[Job]:
        """Return all Jobs, without the long parts of their specs."""
        return self._jobs.store.values()

    def jobs_owned_by(self, job: Job) -> tuple[Job, ...]:
        """Return the Jobs of its namespace that a Job controls, by owner reference, by name.

        At most OWNED_JOBS_LIMIT of them. Any client may create some with such a reference: those
        with a name that the Job gives come first.
        """
        found = self._jobs.store.by_index("owner", _index_key(job.namespace, job.uid))
        if not found:
            return ()
        given = {rollback_name(job, number) for number in range(1, BATCHES_LIMIT + 1)}
        given |= {owned_name(job.name, suffix) for suffix in part_suffixes(job)}
        first = heapq.nsmallest(
            OWNED_JOBS_LIMIT, found, key=lambda owned: (owned.name not in given, owned.name)
        )
        return tuple(expand_job(owned) for owned in first)

    def unreadable_job(self, key: JobKey) -> Unreadable | None:
        """Return the readable parts of the Job of that key if it cannot be read."""
        return self._jobs.store.unreadable.get(key)

    def unreadable_keys(self) -> list[JobKey]:
        """Return the keys of all Jobs that cannot be read."""
        return list(self._jobs.store.unreadable)

    def reported_keys(self) -> set[JobKey]:
        """Return the keys of all Jobs, deleted ones too, that have a report."""
        return {(report.namespace, report.job_name) for report in self._reports.store}

    def daemon_set(self, namespace: str, name: str) -> DaemonSet | None:
        """Return the DaemonSet of that name, if it carries our label."""
        found = self._daemon_sets.store.get((namespace, name))
        return None if found is None else expand_daemon_set(found)

    def compact_daemon_set(self, namespace: str, name: str) -> DaemonSet | None:
        """Return the same without the long parts of its spec, which takes no time."""
        return self._daemon_sets.store.get((namespace, name))

    def pods_of(self, daemon_set: DaemonSet) -> tuple[Pod, ...]:
        """Return the pods that the DaemonSet controls, by owner reference and not by label.

        Only those of its namespace: pods elsewhere may carry a forged UID.
        """
        index_key = _index_key(daemon_set.namespace, daemon_set.uid)
        return tuple(self._pods.store.by_index("owner", index_key))

    def pods_labelled(self, job: Job) -> tuple[Pod, ...]:
        """Return the pods with the label of a Job, of whatever owner: anybody can set it."""
        return tuple(self._pods.store.by_index("job", _index_key(job.namespace, job.uid)))

    def reports_of(self, key: JobKey) -> tuple[JobReport, ...]:
        """Return the reports of all runs of Jobs of that namespace and name.

        Those of a run whose Job is not cached are summaries.
        """
        return tuple(self._reports.store.by_index("job", _index_key(*key)))

    def key_scope(self, namespace: str, exclusive: str) -> str:
        """Return where that key of a Job of the namespace holds: there, or "" for everywhere."""
        return self._cluster_keys.scope(namespace, exclusive)

    def key_namespaces(self, namespace: str, exclusive: str) -> tuple[str | None, ...]:
        """Return the namespaces whose pods have to be listed for a key, None for all at once."""
        scope = self.key_scope(namespace, exclusive)
        return (scope,) if scope else self._namespaces or (None,)

    def jobs_with_key(self, namespace: str, exclusive: str) -> list[Job]:
        """Return the Jobs that share that key `rollout.exclusive` with one of the namespace."""
        (key,) = self._exclusive_keys(namespace, exclusive)
        return self._jobs.store.by_index("exclusive", key)

    def pods_with_key(self, namespace: str, exclusive: str) -> list[Pod]:
        """Return the pods of such Jobs, deleted ones too."""
        (key,) = self._exclusive_keys(namespace, exclusive)
        return self._pods.store.by_index("exclusive", key)

    def _exclusive_keys(self, namespace: str, exclusive: str) -> tuple[str, ...]:
        return (_index_key(self.key_scope(namespace, exclusive), exclusive),) if exclusive else ()

    def nodes_cordoned_by(self, key: JobKey) -> list[Node]:
        """Return the nodes that a Job of that key has cordoned, whether or not it still exists."""
        return self._nodes.store.by_index("cordoned_by", _index_key(*key))

    def cordoning_keys(self) -> set[JobKey]:
        """Return the keys of all Jobs, deleted ones too, that have cordoned a node."""
        marks = (parse_mark(node.cordoned_by) for node in self._nodes.store if node.cordoned_by)
        return {
            (mark.namespace, mark.job_name)
            for mark in marks
            if mark is not None and self.covers(mark.namespace)
        }

    def report(self, place: tuple[str, str]) -> JobReport | None:
        """Return the report of that namespace and name, a summary if its Job is deleted."""
        return self._reports.store.get(place)

    def reports(self) -> Iterable[JobReport]:
        """Return all reports; those of runs whose Job is deleted are summaries."""
        return self._reports.store

    def count_reports(self, namespace: str) -> int:
        """Return how many reports a namespace has."""
        return self._reports.store.count("namespace", namespace)

    def past_reports(self, namespace: str) -> list[JobReport]:
        """Return the reports of a namespace's runs whose Job is deleted."""
        unreadable = self._jobs.store.unreadable
        if ("", "") in unreadable:
            return []  # the unreadable Job may be that of any report
        return [
            report
            for report in self._reports.store.by_index("namespace", namespace)
            if not self._has_job(report.job_uid)
            and (report.namespace, report.job_name) not in unreadable
        ]

    def _has_job(self, uid: str) -> bool:
        return bool(self._jobs.store.by_index("uid", uid))

    # --- changes -----------------------------------------------------------------------

    def record_duration(self, key: JobKey, seconds: float) -> None:
        """Record the duration of a decision, by which changes of the Job are debounced."""
        if self._jobs.store.get(key) is not None:
            self._debouncer.record(key, seconds, self._clock.monotonic())

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        if (job := new or old) is not None:
            if new is None:
                self._debouncer.forget((job.namespace, job.name))
                self.whole_reports.release(job.uid)
            if new is None or new.status.start_time is None:
                # Of a start that was taken back nothing counts, also in a program on standby.
                self.ended_pods.forget(job.uid)
            self._wake_after_change(old, new, (job.namespace, job.name))
            self._wake_jobs_after(job.namespace, job.name)
            if job.owner_uid:
                self._wake_owner(job)
        self._on_job(old, new)

    def _wake_after_change(self, old: Job | None, new: Job | None, key: JobKey) -> None:
        """Wake a Job that has changed: at once, unless a client has just changed it as well."""
        pause_seconds = 0.0
        if is_by_client(old, new):
            pause_seconds = self._debouncer.remaining_seconds(key, self._clock.monotonic())
        self._wake(key, pause_seconds)

    def _daemon_set_changed(self, old: DaemonSet | None, new: DaemonSet | None) -> None:
        found = new or old
        if found is not None:
            # By name and not by owner: a Job also waits for the DaemonSet of an earlier run to go.
            self._wake_jobs_of(found, debounced=bool(old and new))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None:
            if old is not None:
                self.ended_pods.observe(self._jobs.store, old, new)
            owners = list(owners_of_pod(self._daemon_sets.store, pod))
            for found in owners:
                self._wake_jobs_of(found, debounced=True)
            if not owners and pod.job_uid:
                self._wake_job_of_left(pod)
            if _use_of(old) != _use_of(new):
                self._wake_sharers(pod.namespace, pod.exclusive)

    def _report_changed(self, old: JobReport | None, new: JobReport | None) -> None:
        if (report := new or old) is not None:
            self._wake((report.namespace, report.job_name), 0.0)
            self._wake_jobs_after(report.namespace, report.job_name)
            for job in self._jobs.store.by_index("uid", report.job_uid):
                self._wake_sharers(job.namespace, job.spec.exclusive)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        mark = parse_mark(new.cordoned_by) if new is not None else None
        if mark is not None and self.covers(mark.namespace):
            self._wake((mark.namespace, mark.job_name), 0.0)  # it may be deleted
        if old is not None and new is not None and _readiness(old) == _readiness(new):
            for found in selecting_by_changed_label(self._daemon_sets.store, old, new):
                self._wake_jobs_of(found, debounced=True)
            for label in changed_labels(old.labels, new.labels):
                for job in self._jobs.store.by_index("step label", label):
                    self._wake_debounced((job.namespace, job.name))
            return
        for job in self._jobs.store:
            self._wake_debounced((job.namespace, job.name))

    def _wake_jobs_of(self, found: DaemonSet, *, debounced: bool) -> None:
        for job in self._jobs.store.by_index("daemon_set", _index_key(found.namespace, found.name)):
            key = (job.namespace, job.name)
            if debounced:
                self._wake_debounced(key)
            else:
                self._wake(key, 0.0)

    def _wake_job_of_left(self, pod: Pod) -> None:
        """Wake the Job that may wait for the pods of its deleted DaemonSet."""
        for job in self._jobs.store.by_index("uid", pod.job_uid):
            is_needed = looks_at_left_pods(job) or looks_at_orphans(job)
            if job.namespace == pod.namespace and is_needed:
                self._wake_debounced((job.namespace, job.name))

    def _wake_sharers(self, namespace: str, exclusive: str) -> None:
        """Wake the Jobs with a key: one of them may have freed a node."""
        for job in self.jobs_with_key(namespace, exclusive) if exclusive else ():
            self._wake_debounced((job.namespace, job.name))

    def _wake_owner(self, owned: Job) -> None:
        for job in self._jobs.store.by_index("uid", owned.owner_uid):
            if job.namespace == owned.namespace:
                self._wake_debounced((job.namespace, job.name))

    def _wake_jobs_after(self, namespace: str, name: str) -> None:
        for job in self._jobs.store.by_index("after", _index_key(namespace, name)):
            self._wake_debounced((job.namespace, job.name))

    def _wake_debounced(self, key: JobKey) -> None:
        self._wake(key, self._debouncer.pause_seconds(key))


def watch_id(resource: str, namespace: str) -> str:
    """Return the identifier of the watch of one resource in one namespace ("": in all of them).

    Watches progress independently: the version of one says nothing about another.
    """
    return f"{resource}/{namespace}"


def _readiness(node: Node) -> tuple[Any, ...]:
    """Return the fields of a node that matter to every Job even if its pod does not change.

    Heartbeats and images do not matter; each node sends one of either every few minutes. Labels
    matter only to Jobs that select nodes by them.
    """
    changed = node.ready_changed_at, node.network_changed_at
    return node.uid, node.ready, changed, node.taints, node.cordoned_by


def _waits_for(job: Job) -> tuple[str, ...]:
    """Return the runs that a Job waits for which has not started."""
    if job.status.start_time is not None:
        return ()
    return tuple(_index_key(job.namespace, name) for name in job.spec.after)


def _owner_key(job: Job) -> tuple[str, ...]:
    return (_index_key(job.namespace, job.owner_uid),) if job.owner_uid else ()


def _use_of(pod: Pod | None) -> tuple[Any, ...]:
    """Return what of a pod decides whether its node is in use. Probes change other fields at will.

    A client may change its pods at any rate, and those that share a key may be other tenants.
    """
    if pod is None:
        return ()
    return pod.node_name, pod.exclusive, pod.is_gated, pod.is_terminal, pod.is_terminating


def _job_uid_key(pod: Pod) -> tuple[str, ...]:
    return (_index_key(pod.namespace, pod.job_uid),) if pod.job_uid else ()


def _index_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"
