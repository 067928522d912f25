"""What other Jobs with the same key `rollout.exclusive` do, from the caches.

Layer: above the caches. The decision is in `core.state.exclusive`. A key holds in one namespace,
or over all of them if the administrator has named it.
"""

from __future__ import annotations

from collections import defaultdict

from daemonset_job.api.job import Job
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import merge_evidence, merge_records
from job_controller.caches import Caches
from job_controller.core.state.exclusive import NO_OTHER_USE, OtherRun, OtherUse, find_other_use


def other_runs(caches: Caches, job: Job) -> list[OtherRun]:
    """Return the other runs with the key of a Job that have pods; those without a Job are one run.

    Others own these Jobs, and there may be thousands: no whole spec is unpacked, and the ledger is
    read only of those that have pods.
    """
    # With their namespaces: pods elsewhere may carry a forged UID.
    pods: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for pod in caches.pods_with_key(job.namespace, job.spec.exclusive):
        pods[pod.namespace, pod.owner_uid].append(pod)
    runs: list[OtherRun] = []
    for other in caches.jobs_with_key(job.namespace, job.spec.exclusive):
        found = caches.compact_daemon_set(other.namespace, other.daemon_set_name)
        is_own = found is not None and found.owner_uid == other.uid
        own = pods.pop((found.namespace, found.uid), []) if found is not None and is_own else []
        if other.uid == job.uid or not own:
            continue
        key = other.namespace, other.name
        reports = [each for each in caches.reports_of(key) if each.job_uid == other.uid]
        runs.append(OtherRun(other, tuple(own), merge_evidence(reports), merge_records(reports)))
    left = [pod for each in pods.values() for pod in each]
    return [*runs, OtherRun(None, tuple(left))]


def find_use(caches: Caches, job: Job) -> OtherUse:
    """Return which nodes other Jobs with the key of this one use or claim."""
    return find_other_use(job, other_runs(caches, job)) if job.spec.exclusive else NO_OTHER_USE
