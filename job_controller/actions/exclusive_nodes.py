"""Keeps Jobs with the same key `rollout.exclusive` from starting on a node at the same time.

The decision was made from caches, which may not have the newest start of another Job. So the pods
with the key are read from the API server again. Until the gate is removed, no other Job with the
key may remove one. One controller leads, so a lock in this process is enough.

A key of the administrator is that of many namespaces. While the writes of one of them hang, the
others must not wait in all workers. So one Job waits for the lock, and further ones try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.api.report import merge_evidence
from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.client.errors import Conflict, Unavailable
from daemonset_job.kube.client.resource import PODS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable
from job_controller.actions.writer import Writer
from job_controller.core.state.exclusive import is_at_work

# A Job whose writes had no answer leaves the key to others for this time.
_PAUSE_SECONDS: Final = 10.0


@dataclass(eq=False)
class _Key:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    has_waiter: bool = False


class ExclusiveNodes:
    """The nodes on which one Job with a key may start, one Job at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        # A key is there while a Job holds its lock or waits for it.
        self._keys: WeakValueDictionary[tuple[str, str], _Key] = WeakValueDictionary()
        # By UID of a Job, in the loop's time: until when it leaves its key to others.
        self._paused: dict[str, float] = {}

    @asynccontextmanager
    async def reserved(self, job: Job, pods: Sequence[Pod]) -> AsyncIterator[list[Pod]]:
        """Yield the pods on nodes that no other Job with the key uses; it starts none meanwhile.

        All pods of a Job without a key. Raises KubeError.
        """
        if not job.spec.exclusive or not pods:
            yield list(pods)
            return
        async with self._lock(job):
            used = await self._nodes_in_use(job, pods[0].owner_uid)
            free = [pod for pod in pods if pod.node_name not in used]
            if len(free) < len(pods):
                logger.info("nodes are in use by another Job with the key", key=job.spec.exclusive)
            yield free

    @asynccontextmanager
    async def _lock(self, job: Job) -> AsyncIterator[None]:
        """Hold the lock of the Job's key; raises Conflict if another Job waits for it already."""
        place = self._writer.caches.key_scope(job.namespace, job.spec.exclusive), job.spec.exclusive
        key = self._keys.get(place) or _Key()
        self._keys[place] = key
        now = asyncio.get_running_loop().time()
        self._paused = {uid: until for uid, until in self._paused.items() if until > now}
        if key.has_waiter or job.uid in self._paused:
            raise Conflict(f"other Jobs with the key {place[1]} start, trying again")
        key.has_waiter = key.lock.locked()
        try:
            await key.lock.acquire()
        finally:
            key.has_waiter = False
        try:
            yield
        except Unavailable:
            self._paused[job.uid] = asyncio.get_running_loop().time() + _PAUSE_SECONDS
            raise
        finally:
            key.lock.release()

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
