"""Follows the ConfigMap that stops all Jobs of the cluster.

Layer: over kube, beside the caches. It is no part of them: without the right to read it, Jobs still
get a status, which says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.stop import (
    StopOrder,
    parse_stop,
    stop_message,
    unknown_stop_message,
)
from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.kube.cache.store import Store
from daemonset_job.kube.cache.store_writer import StoreWriter
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import CONFIG_MAPS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.runtime.clock import Clock

# A list takes milliseconds. After this time the conditions of Jobs say that it is not known.
KNOWN_WITHIN_SECONDS = 10.0


class StopWatch:
    """Whether all Jobs are stopped. Without a namespace of the system nothing can stop them."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        clock: Clock,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self._namespace = namespace
        self._on_change = on_change
        self._store: Store[StopOrder] = Store()
        writer: StoreWriter[StopOrder] = StoreWriter(
            # The right is for this one name, and a list of it has to name it.
            Selection(
                CONFIG_MAPS, namespace, field_selector=f"metadata.name={names.STOP_CONFIG_MAP}"
            ),
            self._store,
            parse=parse_stop,
            on_change=lambda _old, new: self._changed(new),
            on_unreadable=lambda _found: on_change(),
        )
        self._reflector = Reflector(client, writer, clock=clock)

    async def run(self) -> None:
        """Follow the ConfigMap until cancelled."""
        if self._namespace:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reflector.run())
                group.create_task(self._tell_first_list())

    async def wait_known(self) -> None:
        """Return once it is known whether all Jobs are stopped, or after ten seconds."""
        if self._namespace:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reflector.synced.wait(), KNOWN_WITHIN_SECONDS)

    def message(self) -> str:
        """Return what conditions say about a stop, "" if there is none."""
        if not self._namespace:
            return ""
        if not self._reflector.has_synced or self._store.unreadable:
            return unknown_stop_message(self._namespace)
        found = self._store.get((self._namespace, names.STOP_CONFIG_MAP))
        return stop_message(found)

    async def _tell_first_list(self) -> None:
        """Have the Jobs reconciled once it is known, however late that is."""
        await self._reflector.synced.wait()
        self._on_change()

    def _changed(self, new: StopOrder | None) -> None:
        if new is not None and new.is_on:
            logger.warning("all Jobs are stopped", reason=new.reason)
        else:
            logger.info("no Job is stopped any more")
        self._on_change()
