"""Gathers what a decision is made from, from the caches.

Layer: above the caches, below the reconciler.
"""

from __future__ import annotations

from dataclasses import replace

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.pod import Pod
from job_controller.caches import Caches
from job_controller.core.left_pods import looks_at_left_pods, looks_at_orphans
from job_controller.core.settings import Settings
from job_controller.core.state.ended_pods import is_orphan
from job_controller.core.state.known_numbers import with_known_numbers
from job_controller.core.state.predecessors import CHAIN_LIMIT, Predecessor, newest_run
from job_controller.core.state.snapshot import Snapshot
from job_controller.exclusive_runs import find_use


def cached_snapshot(caches: Caches, key: JobKey, job: Job, settings: Settings) -> Snapshot:
    """Return all that the caches hold about a Job."""
    daemon_set = caches.daemon_set(job.namespace, job.daemon_set_name)
    ours = daemon_set if daemon_set is not None and daemon_set.owner_uid == job.uid else None
    stop = settings.stop_message
    owned = caches.jobs_owned_by(job)
    reports = tuple(report for report in caches.reports_of(key) if report.job_uid == job.uid)
    job = with_known_numbers(job, reports, ours)
    return Snapshot(
        job=replace(job, stop_message=stop) if stop else job,
        daemon_set=daemon_set,
        pods=caches.pods_of(ours) if ours is not None else (),
        nodes=caches.nodes(),
        reports=reports,
        predecessors=find_predecessors(caches, job),
        other_use=find_use(caches, job),
        owned_jobs=owned,
        owned_reports=tuple(
            report
            for each in owned
            for report in caches.reports_of((each.namespace, each.name))
            if report.job_uid == each.uid
        ),
        left_pods=_left_pods(caches, job, daemon_set),
        orphans=_orphans(caches, job),
        ended_pods=caches.ended_pods.of(job),
        settings=settings,
    )


def _left_pods(caches: Caches, job: Job, daemon_set: DaemonSet | None) -> tuple[Pod, ...]:
    """Return the pods of deleted DaemonSets of a Job: for turns, a rollback, a correction, cordons.

    Their label is not enough: anybody can set it, and such a pod would hold up the rollback for as
    long as it runs. Garbage collection deletes a pod whose DaemonSet does not exist.
    """
    if not looks_at_left_pods(job):
        return ()
    own = daemon_set.uid if daemon_set is not None else ""
    return tuple(
        pod
        for pod in caches.pods_labelled(job)
        if pod.owner_uid not in ("", own) and pod.daemon_set == job.daemon_set_name
    )


def _orphans(caches: Caches, job: Job) -> tuple[Pod, ...]:
    """Return the pods that the next DaemonSet of a Job would adopt, if that may run something else.

    In any other case such a pod runs the same.
    """
    if not looks_at_orphans(job):
        return ()
    return tuple(pod for pod in caches.pods_labelled(job) if is_orphan(pod, job))


def find_predecessors(caches: Caches, job: Job) -> dict[str, Predecessor]:
    """Return the newest runs that a Job waits for, and those for which these wait."""
    found: dict[str, Predecessor] = {}
    names = list(job.spec.after) if job.status.start_time is None else []
    while names and len(found) < CHAIN_LIMIT:
        if (name := names.pop(0)) in found:
            continue
        key = job.namespace, name
        # Others own these: no whole spec is unpacked, and reports count only of deleted Jobs.
        other = caches.compact_job(key)
        reports = caches.reports_of(key) if other is None else ()
        found[name] = newest_run(name, other, reports)
        names.extend(found[name].waits_for)
    return found
