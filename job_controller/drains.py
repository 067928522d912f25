"""The drains of one process: which pods are left on a node, their evictions, and stray cordons.

Layer: beside the reconciler. What it keeps may be lost in a restart: evictions are then requested
again, and the API server says again what it thinks of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import replace

from loguru import logger

from daemonset_job.api.drain import Drain
from daemonset_job.api.drained_pod import DrainedPod, parse_drained_pod
from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job, JobKey
from daemonset_job.kube.cache.pager import SMALL_PAGES_BYTES, Pager
from daemonset_job.kube.client.errors import (
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    Throttled,
    Unavailable,
)
from daemonset_job.kube.client.resource import EVICTIONS, PODS
from daemonset_job.kube.client.response import ANSWER_TOO_LARGE
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable
from job_controller.actions.cordons import CordonActions
from job_controller.actions.writer import Writer
from job_controller.core.drain_actions import DrainAction, EvictPods
from job_controller.core.state.cordons import find_stray_cordons, nodes_to_list
from job_controller.core.state.evictions import NO_DRAIN, NodeDrain, judge_pods
from job_controller.core.state.snapshot import Snapshot
from job_controller.dependencies import Dependencies

# kubectl drain requests a refused eviction again after this time.
RETRY_SECONDS = 5.0
# A cordon whose Job is gone is tried to be lifted at these intervals.
STRAY_RETRY_SECONDS = 10.0
# Nodes whose pods are listed at a time, and evictions that are requested at a time.
LISTS_AT_ONCE = 8
EVICTIONS_AT_ONCE = 16
# Evictions in one reconcile, so that other Jobs have their turn in between.
EVICTIONS_PER_NODE = 100
LIST_TIMEOUT_SECONDS = 10.0
# Pods that were listed a moment ago are not listed again, however often the Job is reconciled.
FRESH_SECONDS = 0.8
# What is kept of an answer of the API server.
ANSWER_LIMIT = 400
_MOMENT_AGO = "0"
# Pods that have ended stay, and a node may have any number of them.
_LIVE = "spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed"
_NO_RIGHT = 'cannot create resource "pods/eviction"'


class Drains:
    """The drains and cordons of all Jobs; one Job at a time."""

    def __init__(self, dependencies: Dependencies, writer: Writer) -> None:
        self._dependencies = dependencies
        self._writer = writer
        self._cordons = CordonActions(writer)
        # The last eviction of each pod, by its UID: when, and the answer if it was a refusal.
        self._evictions: dict[JobKey, dict[str, tuple[float, str]]] = {}
        # When an eviction was first requested on each node in its present drain.
        self._tried: dict[JobKey, dict[str, float]] = {}
        # What was left on each node that is drained, and when that was listed.
        self._listed: dict[JobKey, dict[str, tuple[float, NodeDrain]]] = {}

    def forget(self, key: JobKey) -> None:
        """Forget the drains of a deleted Job."""
        self._forget_pods(key)
        self._cordons.forget(key)

    async def settle(self, key: JobKey) -> None:
        """Lift the cordons of a Job of which it is not known whether they were lifted."""
        await self._cordons.settle(key)

    def with_unsettled(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the nodes of which it is not known whether they are cordoned."""
        found = self._cordons.unsettled(key)
        return replace(snapshot, unsettled_cordons=found) if found else snapshot

    async def with_drains(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what is left on the nodes that are being drained."""
        drain, nodes = snapshot.job.spec.drain, nodes_to_list(snapshot)
        if drain is None or not nodes:
            self._forget_pods(key)
            return snapshot
        room = asyncio.Semaphore(LISTS_AT_ONCE)
        known, clock = self._listed.get(key, {}), self._dependencies.clock

        async def one(name: str) -> tuple[str, float, NodeDrain | None]:
            async with room:
                at, state = known.get(name, (-math.inf, NO_DRAIN))
                if clock.monotonic() < at + FRESH_SECONDS and not state.is_done:
                    return name, at, state
                return name, clock.monotonic(), await self._look(name, drain, snapshot)

        results = await asyncio.gather(*(one(node.name) for node in nodes))
        listed = {name: (at, state) for name, at, state in results if state is not None}
        self._listed[key] = listed
        found = {name: state for name, (_, state) in listed.items()}
        tried = self._tried.get(key, {})
        self._tried[key] = {node.name: tried[node.name] for node in nodes if node.name in tried}
        return replace(snapshot, drains=self._with_answers(key, found))

    async def execute(self, key: JobKey, action: DrainAction) -> None:
        """Execute an action; raises KubeError, or RefusedError."""
        if isinstance(action, EvictPods):
            await self._evict(key, action)
        else:
            await self._cordons.execute(action)

    async def lift_stray_cordons(self, key: JobKey, job: Job | None) -> float | None:
        """Uncordon the nodes that a Job of this name cordoned which is there no more.

        Returns the seconds until the next try, None for none. A failure keeps nothing else of the
        present Job of that name from being done.
        """
        nodes = self._writer.caches.nodes_cordoned_by(key)
        stray = find_stray_cordons(nodes, *key, job.uid if job is not None else "")
        if not stray:
            return None
        try:
            # The cache of Jobs may be behind that of nodes: the Job may exist after all.
            found = await self._writer.find_job(key)
            uid = str(found["uid"]) if found is not None else ""
            over = [cordon for cordon in stray if cordon.mark.job_uid != uid]
            await self._cordons.uncordon(over, "uncordoned nodes whose Job was deleted")
        except KubeError as error:
            names = fold([cordon.node for cordon in stray])
            logger.bind(nodes=names, error=str(error)).warning(
                "cannot uncordon nodes whose Job was deleted, retrying"
            )
        # The cache of nodes may not show it yet.
        return STRAY_RETRY_SECONDS

    def _forget_pods(self, key: JobKey) -> None:
        self._evictions.pop(key, None)
        self._listed.pop(key, None)
        self._tried.pop(key, None)

    # --- what is left on a node ----------------------------------------------------------

    async def _look(self, name: str, drain: Drain, snapshot: Snapshot) -> NodeDrain | None:
        """Return what has yet to leave a node, None if that cannot be read."""
        namespace = snapshot.settings.system_namespace
        try:
            found = judge_pods(await self._list(name, _MOMENT_AGO), drain, namespace)
            if found.is_done:
                # That may be of a moment ago, when a pod was not on the node yet.
                found = judge_pods(await self._list(name, None), drain, namespace)
        except KubeError as error:
            logger.bind(node=name, error=str(error)).warning("cannot list the pods of a node")
            return None
        return found

    async def _list(self, name: str, version: str | None) -> list[DrainedPod]:
        """Return the pods on a node. Any tenant may have pods there, of any size."""
        what, client = Selection(PODS, field_selector=_LIVE.format(name)), self._writer.client
        try:
            page = await client.page(
                what,
                resource_version=version,
                limit_bytes=SMALL_PAGES_BYTES[PODS],
                timeout_seconds=LIST_TIMEOUT_SECONDS,
            )
        except Unavailable as error:
            if error.reason != ANSWER_TOO_LARGE:
                raise
        else:
            return [_parse(raw) for raw in page.items]
        pages = Pager(client, what).pages()
        return [_parse(raw) async for page in pages for raw in page.items]

    def _with_answers(self, key: JobKey, found: dict[str, NodeDrain]) -> dict[str, NodeDrain]:
        """Return the drains with what is known of earlier evictions, and those that are due."""
        now = self._dependencies.clock.monotonic()
        left = {pod.uid for state in found.values() for pod in state.leaving}
        known = {uid: tried for uid, tried in self._evictions.get(key, {}).items() if uid in left}
        self._evictions[key] = known

        tried = self._tried[key]

        def with_answers(name: str, state: NodeDrain) -> NodeDrain:
            answers = {
                pod.uid: known[pod.uid][1]
                for pod in state.leaving
                if pod.uid in known and known[pod.uid][1] and not pod.is_terminating
            }
            due = [
                pod
                for pod in state.leaving
                if not pod.is_terminating
                and (pod.uid not in known or now >= known[pod.uid][0] + RETRY_SECONDS)
            ]
            return replace(
                state,
                answers=answers,
                due=tuple(due[:EVICTIONS_PER_NODE]),
                tried_seconds=now - tried[name] if name in tried else None,
            )

        return {name: with_answers(name, state) for name, state in found.items()}

    # --- evictions -----------------------------------------------------------------------

    async def _evict(self, key: JobKey, action: EvictPods) -> None:
        """Request evictions. A refusal is kept, and one for lack of the right is raised."""
        room = asyncio.Semaphore(EVICTIONS_AT_ONCE)
        tried = self._evictions.setdefault(key, {})
        now = self._dependencies.clock.monotonic()
        self._tried.setdefault(key, {}).setdefault(action.node, now)
        evicted: list[str] = []

        async def one(pod: DrainedPod) -> None:
            async with room:
                answer = await self._request(pod, action.grace_period_seconds)
                tried[pod.uid] = (self._dependencies.clock.monotonic(), answer)
                if not answer:
                    evicted.append(pod.path)

        results = await asyncio.gather(*map(one, action.pods), return_exceptions=True)
        if evicted:
            logger.info("evicted pods", node=action.node, count=len(evicted))
        if errors := [result for result in results if isinstance(result, Exception)]:
            raise errors[0]

    async def _request(self, pod: DrainedPod, grace_period_seconds: int | None) -> str:
        """Request the eviction of a pod; return why that is refused, "" if it is not."""
        options: dict[str, object] = {"preconditions": {"uid": pod.uid}}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            await self._writer.client.create(EVICTIONS, body, pod.namespace, name=pod.name)
        except (NotFound, Conflict):
            return ""  # it has left, and another pod may have its name
        except Throttled as error:
            return _answer(error)
        except Forbidden as error:
            if _NO_RIGHT in error.message:
                raise
            return _answer(error)
        except KubeError as error:
            # A webhook, or several budgets for one pod: shown, and tried again until the time-out.
            return _answer(error)
        return ""


def _parse(raw: object) -> DrainedPod:
    """Return a pod of a list; one that cannot be read has only its name."""
    if isinstance(raw, Unreadable):
        return DrainedPod(raw.namespace, raw.name, raw.uid, is_unreadable=True)
    assert isinstance(raw, dict)
    try:
        return parse_drained_pod(raw)
    except (KeyError, ValueError):
        meta = raw.get("metadata") or {}
        namespace, name, uid = (str(meta.get(part) or "") for part in ("namespace", "name", "uid"))
        return DrainedPod(namespace, name, uid, is_unreadable=True)


def _answer(error: KubeError) -> str:
    """Return the words of the API server, with the names of disruption budgets."""
    causes: Iterable[object] = error.details.get("causes") or ()
    details = [
        str(cause["message"])
        for cause in causes
        if isinstance(cause, dict) and cause.get("message")
    ]
    words = "; ".join([error.message or error.reason, *details])
    return words[:ANSWER_LIMIT]
