"""How the pods of Jobs ended that are gone: by their last status in the cache, or in a list.

Layer: beside the caches. What is kept may be lost in a restart: then a pod that is gone is not
known to have started nothing.
"""

from __future__ import annotations

from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.pod import Pod
from daemonset_job.kube.cache.store import Store
from job_controller.core.state.ended_pods import EndedPods

# Of one Job, each about 100 bytes: more than a cluster has nodes.
PODS_LIMIT: Final = 20_000
# kubernetes pkg/controller/podgc/gc_controller.go, markFailedAndDeletePodWithCondition
_BY_POD_GC: Final = "DeletionByPodGC"


class EndedPodStore:
    """What is known of the pods that are gone, by the UID of their Job, while that has started."""

    def __init__(self) -> None:
        self._without_start: dict[str, set[str]] = {}
        self._ran_on: dict[str, str] = {}

    def observe(self, jobs: Store[Job], old: Pod, new: Pod | None) -> None:
        """Record how a pod ended if it is gone, or if a client took it from its run: it runs on."""
        if new is not None and (new.owner_uid, new.job_uid) == (old.owner_uid, old.job_uid):
            return
        for job in jobs.by_index("uid", old.job_uid) if old.job_uid else ():
            if job.namespace == old.namespace and old.daemon_set == job.daemon_set_name:
                self.record(job, old)

    def record(self, job: Job, pod: Pod) -> None:
        """Keep how a pod of the Job ended that has just been removed; `pod` as it was last."""
        if job.status.start_time is None or job.spec.is_continuous or not pod.is_scheduled:
            return
        if not _has_ended_without_start(pod):
            self._ran_on[job.uid] = pod.node_name
            return
        known = self._without_start.setdefault(job.uid, set())
        if len(known) < PODS_LIMIT:
            known.add(pod.uid)

    def record_begin(self, job: Job, pod: Pod) -> None:
        """Keep that a pod of the Job has run, as the API server says; a cache may never have it."""
        if job.status.start_time is not None and not job.spec.is_continuous and pod.is_scheduled:
            self._ran_on[job.uid] = pod.node_name

    def of(self, job: Job) -> EndedPods:
        """Return what is known of the pods of the present run of a Job."""
        if job.status.start_time is None:
            self.forget(job.uid)
        known = self._without_start.get(job.uid) or ()
        return EndedPods(frozenset(known), self._ran_on.get(job.uid, ""))

    def forget(self, job_uid: str) -> None:
        """Forget the pods of a Job that is deleted, or that has not started."""
        self._without_start.pop(job_uid, None)
        self._ran_on.pop(job_uid, None)


def _has_ended_without_start(pod: Pod) -> bool:
    """Return whether the last status of a pod is its kubelet's word that nothing of it has run.

    A kubelet writes the final phase of a pod once nothing of it runs any more, and before it
    removes a deleted one (KEP-3329). A pod without a final phase was removed by force, or its end
    was not seen. The garbage collector of pods writes one, too, for a node that is lost, whose
    kubelet may start the pod all the same.
    """
    is_by_kubelet = pod.is_terminal and pod.disruption_reason != _BY_POD_GC
    return is_by_kubelet and not pod.has_run
