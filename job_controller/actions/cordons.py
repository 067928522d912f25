"""Nodes: their cordons, each with the mark of its Job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from loguru import logger

from daemonset_job.api.drain import build_cordon, build_uncordon
from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import JobKey
from daemonset_job.kube.client.errors import Conflict, NotFound, Unavailable
from daemonset_job.kube.client.resource import NODES
from job_controller.actions.errors import RefusedError, most_severe
from job_controller.actions.node_changes import dry_run_node_patch
from job_controller.actions.writer import Writer
from job_controller.caches import watch_id
from job_controller.core.drain_actions import (
    CordonNodes,
    DryRunCordon,
    NodeCordon,
    UncordonNodes,
)
from job_controller.core.plan import (
    RefusedWrite,
)

# As many as pods are: see `pods.PODS_AT_ONCE`.
NODES_AT_ONCE = 32
# How often a node is read again that other clients change at the same time, before a back-off.
_TRIES = 3
# After these answers, or none, a write may have been carried out, or still be.
_UNKNOWN = frozenset({0, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT})
# Characters of names in a line of the log.
_NAMES_LIMIT = 400

_Build = Callable[[Mapping[str, Any], NodeCordon], dict[str, Any]]


class CordonActions:
    """Cordons and uncordons nodes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        # By node: the cordons of a Job of which it is not known whether they were lifted.
        self._unsettled: dict[JobKey, dict[str, NodeCordon]] = {}

    def unsettled(self, key: JobKey) -> frozenset[str]:
        """Return the nodes whose cordon may have been lifted, or may be at any moment."""
        return frozenset(self._unsettled.get(key, ()))

    def forget(self, key: JobKey) -> None:
        """Forget what is not known of the cordons of a deleted Job."""
        self._unsettled.pop(key, None)

    async def settle(self, key: JobKey) -> None:
        """Lift the cordons of a Job of which it is not known whether they were lifted.

        The answer was lost, and the request may still be under way. So each cordon is lifted for
        sure, although its node may have a turn again by now. Raises KubeError without an answer.
        """
        if cordons := self._unsettled.get(key):
            try:
                await self.uncordon(tuple(cordons.values()), "uncordoned nodes after lost answers")
            except Unavailable as error:
                if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise

    async def execute(self, action: DryRunCordon | CordonNodes | UncordonNodes) -> None:
        """Execute an action; raises KubeError, or RefusedError if a webhook for nodes is down.

        That may take long, and must neither go unseen nor keep anything else from being written.
        """
        try:
            match action:
                case DryRunCordon():
                    cordon = action.cordon
                    await dry_run_node_patch(
                        self._writer,
                        (cordon.node, cordon.uid),
                        lambda found: _cordon(found, cordon),
                    )
                case CordonNodes():
                    await self._for_each(action.cordons, _cordon, "cordoned nodes for their turn")
                case UncordonNodes():
                    await self.uncordon(action.cordons, "uncordoned nodes after their turn")
        except Unavailable as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise RefusedError(error, RefusedWrite.CORDON) from error

    async def uncordon(self, cordons: Iterable[NodeCordon], what: str) -> None:
        """Lift cordons of which the mark is still there; raises the most severe error."""
        await self._for_each(cordons, _uncordon, what)

    async def _for_each(self, cordons: Iterable[NodeCordon], build: _Build, what: str) -> None:
        """Patch nodes, a bounded number at a time; one that fails does not stop the others."""
        room = asyncio.Semaphore(NODES_AT_ONCE)
        written: list[str] = []

        async def one(cordon: NodeCordon) -> None:
            async with room:
                is_written = await _with_tries(lambda: self._patch(cordon, build))
                if build is _uncordon:
                    self._unsettled.get(_key(cordon), {}).pop(cordon.node, None)
                if is_written:
                    written.append(cordon.node)

        results = await asyncio.gather(*map(one, cordons), return_exceptions=True)
        if written:
            nodes = fold(sorted(written), limit=_NAMES_LIMIT)
            logger.info(what, count=len(written), nodes=nodes)
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise most_severe(errors)

    async def _patch(self, cordon: NodeCordon, build: _Build) -> bool:
        """Patch the node, read from the server; return whether there was anything to do.

        Reconciles of the Job wait until the cache has the node as it is now. By an older cache, a
        gate could be removed although the node is not cordoned any more.

        Raises Conflict if it was changed meanwhile.
        """
        found = (await self._writer.client.find(NODES, cordon.node)).item
        if found is None or (found.get("metadata") or {}).get("uid") != cordon.uid:
            return False  # deleted: nothing has to be changed
        patch = build(found, cordon)
        if patch:
            try:
                found = await self._writer.client.merge_patch(NODES, cordon.node, patch)
            except NotFound:
                return True
            except Unavailable as error:
                if build is _uncordon and error.status in _UNKNOWN:
                    self._unsettled.setdefault(_key(cordon), {})[cordon.node] = cordon
                raise
        version = (found.get("metadata") or {}).get("resourceVersion") or ""
        self._writer.written.wrote(_key(cordon), watch_id(NODES.plural, ""), version)
        return bool(patch)


def _key(cordon: NodeCordon) -> JobKey:
    return cordon.mark.namespace, cordon.mark.job_name


def _cordon(raw: Mapping[str, Any], cordon: NodeCordon) -> dict[str, Any]:
    return build_cordon(raw, cordon.uid, cordon.mark)


def _uncordon(raw: Mapping[str, Any], cordon: NodeCordon) -> dict[str, Any]:
    return build_uncordon(raw, cordon.mark)


async def _with_tries(patch: Callable[[], Awaitable[bool]]) -> bool:
    """Return what the patch of the newest version of a node returns."""
    for _ in range(_TRIES - 1):
        with suppress(Conflict):
            return await patch()
    return await patch()
