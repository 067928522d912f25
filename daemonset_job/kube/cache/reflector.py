"""A cache that follows the cluster: list once, then watch, and list again when history is lost.

``kubernetes.aio.watch.Watch`` cannot be used. It reconnects with the same expired resourceVersion,
and does not mark the end of the initial list. It also cannot report objects that were deleted while
it was disconnected. The rules are those of client-go's tools/cache/reflector.go.
"""

import asyncio
import random
from collections.abc import Mapping
from http import HTTPStatus
from typing import Generic, TypeVar

from loguru import logger

from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.cache.store import CachedObject, Key, Store
from daemonset_job.kube.cache.store_writer import StoreWriter, key_of
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Gone, KubeError, Throttled, Unavailable
from daemonset_job.kube.client.reads import WATCH_IDLE_SECONDS
from daemonset_job.kube.client.streams import MALFORMED_EVENT
from daemonset_job.kube.client.unreadable import Unreadable
from daemonset_job.runtime.backoff import Backoff
from daemonset_job.runtime.clock import Clock

T = TypeVar("T", bound=CachedObject)

# The server ends a watch after a random time in this range (client-go: 5 to 10 minutes). Otherwise
# all watches would stay with the API servers that did not restart.
SERVER_TIMEOUT_SECONDS = (300, 600)
BACKOFF_SECONDS = (0.2, 30.0)
# A watch that ended sooner than this counts as a failure. A server that accepts watches and ends
# them at once must not be asked in a tight loop.
SHORT_WATCH_SECONDS = 1.0
# A reflector has lost the cluster if it had no answer for this time, beyond the time for which its
# watch may be silent. Rolling API servers, and the longest back-off, take much less.
DISCONNECTED_SECONDS = 300.0
# The delay before a Job is reconciled again whose namespace is not completely listed.
UNSYNCED_SECONDS = 1.0
# After this many watches that the server answered with 5xx, it is listed: the version that they
# begin from may be the reason. It is when etcd was restored from a backup ("too large resource
# version").
WATCH_REFUSALS_LIMIT = 3


class Reflector(Generic[T]):
    """Has `writer` keep its store equal to the cluster.

    What the callbacks of the writer raise ends `run`. Nothing is listed before `after` is set.
    """

    def __init__(
        self,
        client: KubeClient,
        writer: StoreWriter[T],
        *,
        clock: Clock,
        after: asyncio.Event | None = None,
    ) -> None:
        self._client = client
        self.writer = writer
        self._clock = clock
        self._after = after
        self._backoff = Backoff(*BACKOFF_SECONDS)
        self._pager = Pager(client, writer.what)
        self._must_list = True
        self._watch_refusals = 0
        self._running = False
        self.synced = asyncio.Event()
        self.last_activity = clock.monotonic()
        self._watch_opened: float | None = None

    @property
    def store(self) -> Store[T]:
        """Return the store that is kept equal to the cluster."""
        return self.writer.store

    @property
    def has_synced(self) -> bool:
        """Whether the store has held a complete list; it stays true through reconnections."""
        return self.synced.is_set()

    @property
    def silence_seconds(self) -> float:
        """How long ago the server last answered: by a page, an event, a bookmark or a watch.

        A watch is an answer once it has lasted a second, events or not: where nothing changes and
        there are no bookmarks, nothing else comes.
        """
        now = self._clock.monotonic()
        opened = self._watch_opened
        if opened is None or now - opened < SHORT_WATCH_SECONDS:
            return now - self.last_activity
        return now - max(self.last_activity, opened)

    @property
    def healthy(self) -> bool:
        """Whether it runs, has synced, and had an answer of the server within some minutes.

        False while the API server is away, too: good for readiness, not for restarting the process.
        """
        is_lost = self.silence_seconds >= WATCH_IDLE_SECONDS + DISCONNECTED_SECONDS
        return self._running and self.has_synced and not is_lost

    async def run(self) -> None:
        """Follow the cluster until cancelled; errors of the API are logged and retried."""
        self._running = True
        try:
            if self._after is not None:
                await self._after.wait()
            while True:
                try:
                    if self._must_list:
                        await self._list()
                    await self._watch()
                except Gone as error:
                    self._log_error(error, "history expired, listing again")
                    self._must_list = True
                    await self._pause(error)
                except (Unavailable, Throttled) as error:
                    self._log_error(error, "lost the server, trying again")
                    self._count_refusal(error)
                    if error.reason == MALFORMED_EVENT:
                        # Its version is unknown, and a watch from the known one gets it again.
                        self._must_list = True
                    await self._pause(error)
                except KubeError as error:
                    self._log_error(error, "refused by the server, trying again")
                    self._must_list = True
                    await self._pause(error)
        finally:
            self._running = False

    # --- list --------------------------------------------------------------------------

    async def _list(self) -> None:
        """Replace the store by what is in the cluster now."""
        found: dict[Key, T | Unreadable] = {}
        continue_, is_whole = "", False
        while True:
            try:
                page = await (self._pager.list_all() if is_whole else self._pager.page(continue_))
            except Gone:
                if not continue_:
                    raise
                # A slow pagination outlives its snapshot. What was read belongs to that snapshot,
                # so all of it is read again in one answer (client-go: FullListIfExpired).
                found, continue_, is_whole = {}, "", True
                continue
            self.last_activity = self._clock.monotonic()
            found.update((key_of(raw), self.writer.read(raw)) for raw in page.items)
            version, continue_ = page.resource_version, page.continue_
            del page  # it takes much memory, and the next one and other caches need theirs
            if not continue_:
                break
        self.replace(found, version)

    def replace(self, found: Mapping[Key, T | Unreadable], version: str) -> None:
        """Have the writer take a complete list and its resourceVersion."""
        self.writer.replace(found, version)
        self._must_list = False
        self._watch_refusals = 0
        self.synced.set()

    # --- watch -------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Follow events until the server ends the watch; raises what breaks it."""
        low, high = SERVER_TIMEOUT_SECONDS
        async with self._client.watch(
            self.writer.what,
            resource_version=self.writer.resource_version,
            server_timeout_seconds=low + int((high - low) * random.random()),  # noqa: S311 - no secret
        ) as events:
            opened = self._watch_opened = self._clock.monotonic()
            try:
                async for event in events:
                    self.writer.apply_event(event)
                    self.last_activity = self._clock.monotonic()
                    self._note_lasting(opened)
            except Unavailable:
                self._note_lasting(opened)
                raise
            finally:
                self._watch_opened = None
        if not self._note_lasting(opened):
            raise Unavailable("the server ended the watch at once", reason="ShortWatch")
        self.last_activity = self._clock.monotonic()

    def _note_lasting(self, opened: float) -> bool:
        """Forget past failures if the watch has lasted; return whether it has.

        Not before: a server that lists well, but refuses or ends every watch, with or without an
        event, would be asked five times a second.
        """
        if self._clock.monotonic() - opened < SHORT_WATCH_SECONDS:
            return False
        self.last_activity = max(self.last_activity, opened)
        self._backoff.reset()
        self._watch_refusals = 0
        return True

    def _count_refusal(self, error: KubeError) -> None:
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return  # no answer at all: the version is not the reason
        self._watch_refusals += 1
        if self._watch_refusals >= WATCH_REFUSALS_LIMIT:
            self._must_list = True

    # --- failures ----------------------------------------------------------------------

    async def _pause(self, error: KubeError) -> None:
        await asyncio.sleep(max(self._backoff.next_seconds(), error.retry_after_seconds or 0.0))

    def _log_error(self, error: KubeError, message: str) -> None:
        # One lost connection in five minutes is normal; repeated ones deserve a warning. A refusal
        # (RBAC, a missing CRD) is a mistake of an administrator from the first time on.
        level = "DEBUG" if error.is_retryable and self._backoff.failures < 3 else "WARNING"
        logger.bind(
            resource=self.writer.what.resource.plural,
            namespace=self.writer.what.namespace or "",
            failures=self._backoff.failures,
            error=str(error),
        ).log(level, message)
