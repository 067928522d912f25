"""Keeps Jobs with the same key `rollout.exclusive` from starting on a node at the same time.

The decision was made from caches, which may not have the newest start of another Job. So the pods
with the key are read from the API server again. Until the gate is removed, no other Job with the
key may remove one. One controller leads, so a lock in this process is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.api.report import merge_evidence
from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.client.resource import PODS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable
from job_controller.actions.writer import Writer
from job_controller.core.state.exclusive import is_at_work


class ExclusiveNodes:
    """The nodes on which one Job with a key may start, one Job at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        # A lock is there while a Job holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def reserved(self, job: Job, pods: Sequence[Pod]) -> AsyncIterator[list[Pod]]:
        """Yield the pods on nodes that no other Job with the key uses; it starts none meanwhile.

        All pods of a Job without a key. Raises KubeError.
        """
        if not job.spec.exclusive or not pods:
            yield list(pods)
            return
        scope = self._writer.caches.key_scope(job.namespace, job.spec.exclusive)
        key = scope, job.spec.exclusive
        lock = self._locks.get(key) or asyncio.Lock()
        self._locks[key] = lock
        async with lock:
            used = await self._nodes_in_use(job, pods[0].owner_uid)
            free = [pod for pod in pods if pod.node_name not in used]
            if len(free) < len(pods):
                logger.info("nodes are in use by another Job with the key", key=key[1])
            yield free

    async def _nodes_in_use(self, job: Job, own_uid: str) -> set[str]:
        """Return the nodes on which other Jobs with the key are at work, by a new read.

        `own_uid` is that of the Job's own DaemonSet.
        """
        caches = self._writer.caches
        pods = [
            pod
            async for pod in self._list(job)
            if (pod.namespace, pod.owner_uid) != (job.namespace, own_uid) and is_at_work(pod, None)
        ]
        # Many Jobs with the key may have ended: the ledger is read only of those with such a pod.
        uids = {pod.job_uid for pod in pods}
        evidence = {
            entry.pod_uid: entry
            for other in caches.jobs_with_key(job.namespace, job.spec.exclusive)
            if other.uid in uids
            for entry in merge_evidence(caches.reports_of((other.namespace, other.name))).values()
        }
        return {pod.node_name for pod in pods if is_at_work(pod, evidence.get(pod.uid))}

    async def _list(self, job: Job) -> AsyncIterator[Pod]:
        """Yield the pods with the key. Any user of the namespaces may label pods, of any size."""
        selector = f"{names.LABEL_EXCLUSIVE}={job.spec.exclusive}"
        for namespace in self._writer.caches.key_namespaces(job.namespace, job.spec.exclusive):
            what = Selection(PODS, namespace, selector)
            async for page in Pager(self._writer.client, what).pages():
                for raw in page.items:
                    if not isinstance(raw, Unreadable):
                        yield parse_pod(raw)
