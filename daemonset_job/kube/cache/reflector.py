"""A cache that follows the cluster: list once, then watch, and list again when history is lost.

Own list-and-watch, because ``kubernetes.aio.watch.Watch`` reconnects with the same expired
resourceVersion, has no mark for the end of the initial list, and cannot tell of objects deleted
while it was disconnected. The rules are those of client-go's tools/cache/reflector.go.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypeVar

from loguru import logger

from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.cache.store import CachedObject, Indexer, Key, Store
from daemonset_job.kube.cache.store_writer import (
    OnChange,
    OnProgress,
    OnUnreadable,
    StoreWriter,
    key_of,
)
from daemonset_job.kube.client.answers import RawObject
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import (
    Gone,
    KubeError,
    Throttled,
    Unavailable,
)
from daemonset_job.kube.client.reads import WATCH_IDLE_SECONDS
from daemonset_job.kube.client.resource import Resource
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.streams import MALFORMED_EVENT
from daemonset_job.kube.client.unreadable import Unreadable
from daemonset_job.runtime.backoff import Backoff
from daemonset_job.runtime.clock import Clock

T = TypeVar("T", bound=CachedObject)

# The server ends a watch after a random time in this range, so that a restarted API server does
# not keep what another one should carry (client-go: 5 to 10 minutes).
SERVER_TIMEOUT_SECONDS = (300, 600)
BACKOFF_SECONDS = (0.2, 30.0)
# A watch that ended sooner than this counts as a failure: a server that accepts watches and ends
# them at once must not be asked in a tight loop.
SHORT_WATCH_SECONDS = 1.0
# A reflector that had no answer for so long, beyond the time for which its watch may be silent, has
# lost the cluster. Rolling API servers, and the longest back-off, take much less.
DISCONNECTED_SECONDS = 300.0
# The delay before a Job is reconciled again whose namespace is not completely listed.
UNSYNCED_SECONDS = 1.0
# After so many watches that the server answered with 5xx, it is listed: the version that they begin
# from may be the reason. It is when etcd was restored from a backup ("too large resource version").
WATCH_REFUSALS_LIMIT = 3


class Reflector(StoreWriter[T]):
    """Keeps `store` equal to the cluster, and calls `on_change(old, new)` for every difference.

    See StoreWriter for the callbacks. What they raise ends `run`. Nothing is listed before `after`
    is set.
    """

    def __init__(  # noqa: PLR0913 - independent settings, given by name
        self,
        client: KubeClient,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        parse: Callable[[RawObject], T],
        on_change: OnChange[T],
        clock: Clock,
        indexers: Mapping[str, Indexer[T]] | None = None,
        store: Store[T] | None = None,
        on_progress: OnProgress | None = None,
        on_unreadable: OnUnreadable | None = None,
        idle_timeout_seconds: float = WATCH_IDLE_SECONDS,
        after: asyncio.Event | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(
            Selection(resource, namespace, label_selector, field_selector, metadata_only),
            Store(indexers) if store is None else store,
            parse=parse,
            on_change=on_change,
            on_progress=on_progress,
            on_unreadable=on_unreadable,
        )
        self._client = client
        self._clock = clock
        self._idle_seconds = idle_timeout_seconds
        self._after = after
        self._rng = rng
        self._backoff = Backoff(*BACKOFF_SECONDS, rng=rng)
        self._pager = Pager(client, self._what)
        self._must_list = True
        self._watch_refusals = 0
        self._running = False
        self.synced = asyncio.Event()
        self.last_activity = clock.monotonic()
        self._watch_opened: float | None = None

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
        is_lost = self.silence_seconds >= self._idle_seconds + DISCONNECTED_SECONDS
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
                    self._log_error(error, "history expired, beginning anew")
                    self._must_list = True
                    await self._pause(error)
                except (Unavailable, Throttled) as error:
                    self._log_error(error, "lost the server, trying again")
                    self._count_refusal(error)
                    if error.reason == MALFORMED_EVENT:
                        # Nobody knows which version comes after it; from this one it comes again.
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
            found.update((key_of(raw), self.read(raw)) for raw in page.items)
            version, continue_ = page.resource_version, page.continue_
            del page  # it takes much memory, and the next one and other caches need theirs
            if not continue_:
                break
        self.replace(found, version)

    def replace(self, found: Mapping[Key, T | Unreadable], version: str) -> None:
        """Take a complete list, read by `read`, and its resourceVersion: all there is now."""
        super().replace(found, version)
        self._must_list = False
        self._watch_refusals = 0
        self.synced.set()

    # --- watch -------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Follow events until the server ends the watch; raises what breaks it."""
        low, high = SERVER_TIMEOUT_SECONDS
        async with self._client.watch(
            self._what,
            resource_version=self.resource_version,
            server_timeout_seconds=low + int((high - low) * self._rng()),
            idle_timeout_seconds=self._idle_seconds,
        ) as events:
            opened = self._watch_opened = self._clock.monotonic()
            try:
                async for event in events:
                    self.apply_event(event)
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
        # One lost connection in five minutes is normal life; what repeats is worth a warning, and
        # a refusal (RBAC, a missing CRD) is somebody's mistake from the first time on.
        level = "DEBUG" if error.is_retryable and self._backoff.failures < 3 else "WARNING"
        logger.bind(
            resource=self._what.resource.plural,
            namespace=self._what.namespace or "",
            failures=self._backoff.failures,
            error=str(error),
        ).log(level, message)
