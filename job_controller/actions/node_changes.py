"""Nodes: their labels, annotations and taints, once they have completed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from loguru import logger

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.node import parse_node
from daemonset_job.api.node_changes import NodeChange, build_node_patch
from daemonset_job.kube.client.errors import BadRequest, Conflict, NotFound, Unavailable
from daemonset_job.kube.client.resource import NODES
from daemonset_job.runtime.clock import Clock
from job_controller.actions.errors import NO_DRY_RUN, RefusedError, most_severe
from job_controller.actions.writer import Writer
from job_controller.core.plan import ChangeNodes, DryRunNodeChange, RefusedWrite
from job_controller.node_change_store import NodeChangeStore

# As many as pods are: see `pods.PODS_AT_ONCE`.
NODES_AT_ONCE = 32
# How often a node is read again that other clients change at the same time, before a back-off.
_TRIES = 3
# Characters of names in a line of the log.
_NAMES_LIMIT = 400


class NodeActions:
    """Acts on the nodes of one Job at a time."""

    def __init__(self, writer: Writer, clock: Clock, changed: NodeChangeStore) -> None:
        self._writer = writer
        self._clock = clock
        self._changed = changed

    async def execute(self, key: JobKey, job: Job, action: DryRunNodeChange | ChangeNodes) -> None:
        """Execute an action; raises KubeError, or RefusedError if a webhook for nodes is down.

        That may take long, and must neither go unseen nor keep anything else from being written.
        """
        try:
            if isinstance(action, DryRunNodeChange):
                change = action.change
                await dry_run_node_patch(
                    self._writer,
                    (change.name, change.uid),
                    lambda found: build_node_patch(found, change),
                )
            else:
                await self._change(key, job, action)
        except Unavailable as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise RefusedError(error, RefusedWrite.NODE_CHANGE) from error

    async def _change(self, key: JobKey, job: Job, action: ChangeNodes) -> None:
        """Change nodes, a bounded number at a time; one that fails does not stop the others.

        Raises the most severe of their errors. The nodes that are changed are remembered until
        their records have it.
        """
        room = asyncio.Semaphore(NODES_AT_ONCE)
        written: list[str] = []

        async def one(change: NodeChange) -> None:
            async with room:
                if await self._patch_current(change):
                    written.append(change.name)
                self._changed.record(key, job.uid, change.completion_id, self._clock.now())

        results = await asyncio.gather(*map(one, action.changes), return_exceptions=True)
        if written:
            logger.info(
                "changed nodes",
                count=len(written),
                nodes=fold(sorted(written), limit=_NAMES_LIMIT),
                why="their tasks have completed, and spec.onSuccess or results ask for it",
            )
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise most_severe(errors)

    async def _patch_current(self, change: NodeChange) -> bool:
        """Change the newest version of the node; return whether there was anything to do."""
        for _ in range(_TRIES - 1):
            with suppress(Conflict):
                return await self._patch(change)
        return await self._patch(change)

    async def _patch(self, change: NodeChange) -> bool:
        """Patch the node, read from the server; return whether there was anything to do.

        Raises Conflict if it was changed meanwhile, and taints are to be removed.
        """
        found = (await self._writer.client.find(NODES, change.name)).item
        if found is None or parse_node(found).uid != change.uid:
            return False  # deleted: nothing has to be changed
        patch = build_node_patch(found, change)
        if not patch:
            return False
        with suppress(NotFound):
            await self._writer.client.merge_patch(NODES, change.name, patch)
        return True


async def dry_run_node_patch(
    writer: Writer, node: tuple[str, str], build: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> None:
    """Ask the API server whether it would take the patch that `build` makes of the node.

    `node` is its name and UID. Raises KubeError if it would not.
    """
    name, uid = node
    found = (await writer.client.find(NODES, name)).item
    patch = build(found) if found is not None else {}
    if not patch:
        patch = {"metadata": {"uid": uid}}  # the right alone is asked for
    try:
        # A node that was changed or deleted meanwhile shows nothing; a refusal comes first.
        with suppress(Conflict, NotFound):
            await writer.client.check_merge_patch(NODES, name, patch)
    except BadRequest as error:
        # A webhook with side effects supports no dry run; then the change itself shows it.
        if NO_DRY_RUN not in error.message:
            raise
