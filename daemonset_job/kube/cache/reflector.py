"""A cache that follows the cluster: list once, then watch, and list again when history is lost.

Own list-and-watch, because ``kubernetes.aio.watch.Watch`` reconnects with the same expired
resourceVersion, has no mark for the end of the initial list, and cannot tell of objects deleted
while it was disconnected. The rules are those of client-go's tools/cache/reflector.go.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from loguru import logger

from daemonset_job.kube.cache.pager import Pager, Selection
from daemonset_job.kube.cache.store import CachedObject, Indexer, Key, Store
from daemonset_job.kube.client.answers import RawObject
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import (
    Gone,
    KubeError,
    Throttled,
    Unavailable,
    error_from_status,
)
from daemonset_job.kube.client.reads import WATCH_IDLE_SECONDS
from daemonset_job.kube.client.resource import Resource
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
# So many bookmarks in a row below the known version say the same. One alone does not: the cache of
# another API server may be a moment behind.
LOW_BOOKMARKS_LIMIT = 2

# The key of an object of which not even the name was found.
_NAMELESS: Key = ("", "")

OnChange = Callable[[T | None, T | None], None]
OnUnreadable = Callable[[Unreadable], None]
OnProgress = Callable[[str, str], None]


class Reflector(Generic[T]):
    """Keeps `store` equal to the cluster and tells `on_change(old, new)` of every difference.

    `parse` makes a small frozen object of the raw JSON, which is then dropped. If it raises
    ValueError (or trips over a missing or odd field), or the JSON cannot be parsed, the object is
    skipped: it is logged, noted in `store.unreadable` and told to `on_unreadable`, once for each
    version. What was known of it before stays: unreadable is not deleted. `on_change` gets
    (None, new) for an addition, (old, new) for a change, (old, None) for a deletion; a replaced UID
    is a deletion and an addition. It must be quick and must not raise; what it raises ends `run`.
    `on_progress(namespace, resource_version)` is told how far the cache has come, after the
    change itself; the namespace is empty if all are watched. Nothing is listed before `after` is
    set.
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
        self._client = client
        self._what = Selection(resource, namespace, label_selector, field_selector, metadata_only)
        self.parse = parse
        self._on_change = on_change
        self._on_progress = on_progress
        self._on_unreadable = on_unreadable
        self._clock = clock
        self._idle_seconds = idle_timeout_seconds
        self._after = after
        self._rng = rng
        self._backoff = Backoff(*BACKOFF_SECONDS, rng=rng)
        self._known: set[Key] = set()
        self._pager = Pager(client, self._what)
        self._must_list = True
        self._watch_refusals = 0
        self._low_bookmarks = 0
        self._running = False
        self.store: Store[T] = Store(indexers) if store is None else store
        self.synced = asyncio.Event()
        self.resource_version = ""
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
            found.update((_key(raw), self.read(raw)) for raw in page.items)
            version, continue_ = page.resource_version, page.continue_
            del page  # it takes much memory, and the next one and other caches need theirs
            if not continue_:
                break
        self.replace(found, version)

    def replace(self, found: Mapping[Key, T | Unreadable], version: str) -> None:
        """Take a complete list, read by `read`, and its resourceVersion: all there is now."""
        # A list is the truth even if its version is lower than ours (etcd restored from a backup).
        # Versions were given twice then, so that equal ones do not mean equal objects.
        went_back = _is_lower(version, self.resource_version)
        if _NAMELESS not in found:  # otherwise it may be any of them
            for key in sorted(self._known.difference(found)):
                self._remove(key)
        for key, item in found.items():
            if not isinstance(item, Unreadable):
                self._put(key, item, is_certain=went_back)
                continue
            old = self.store.get(key)
            if old is not None and item.uid and old.uid != item.uid:
                self._remove(key)
            self._put_unreadable(key, item)
        self._must_list = False
        self._watch_refusals = 0
        self._set_version(version)
        self.synced.set()

    # --- watch -------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Follow events until the server ends the watch; raises what breaks it."""
        low, high = SERVER_TIMEOUT_SECONDS
        async with self._client.watch(
            self._what.resource,
            self._what.namespace,
            resource_version=self.resource_version,
            label_selector=self._what.label_selector,
            field_selector=self._what.field_selector,
            metadata_only=self._what.metadata_only,
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

    def apply_event(self, event: Mapping[str, Any]) -> None:
        """Take one event of a watch: a mapping with `type` and `object`.

        Raises the KubeError that an ERROR event means, and Gone if bookmarks went back for good.
        """
        kind, raw = event.get("type"), event["object"]
        if kind == "ERROR":
            raise error_from_status(raw, request=f"watch {self._what.resource.plural}")
        version = _version(raw)
        if kind == "BOOKMARK":
            self._check_bookmark(version)
        else:
            # Events of one watch come in the order of their versions. One that is not newer than
            # what is known was delivered twice, or late: taking it would bring back the past.
            if not is_newer(version, self.resource_version):
                return
            key = _key(raw)
            if kind == "DELETED":
                self._remove(key)
            elif isinstance(item := self.read(raw), Unreadable):
                self._put_unreadable(key, item)
            else:
                self._put(key, item)
        if is_newer(version, self.resource_version):
            self._set_version(version)

    def _check_bookmark(self, version: str) -> None:
        """Raise Gone if the server's newest version is below ours, and stays so."""
        if not _is_lower(version, self.resource_version):
            self._low_bookmarks = 0
            return
        self._low_bookmarks += 1
        if self._low_bookmarks >= LOW_BOOKMARKS_LIMIT:
            self._low_bookmarks = 0
            raise Gone(f"the server is at {version}, behind {self.resource_version}")

    # --- shared ------------------------------------------------------------------------

    def read(self, raw: RawObject | Unreadable) -> T | Unreadable:
        """Return what is kept of an object, or what is known of one that cannot be read."""
        if isinstance(raw, Unreadable):
            return raw
        try:
            return self.parse(raw)
        except ValueError as error:
            return Unreadable.of(raw, error)
        except (TypeError, LookupError, AttributeError, RecursionError) as error:
            return Unreadable.of(raw, repr(error))

    def _put_unreadable(self, key: Key, item: Unreadable) -> None:
        """Note that an object cannot be read, and say so once for each version of it."""
        self._known.add(key)
        before = self.store.unreadable.get(key)
        self.store.unreadable[key] = item
        if before is not None and before.resource_version == item.resource_version:
            return
        logger.bind(
            resource=self._what.resource.plural,
            namespace=item.namespace,
            name=item.name,
            resource_version=item.resource_version,
            error=item.error,
        ).warning("skipped an object that cannot be read")
        if self._on_unreadable is not None:
            self._on_unreadable(item)

    def _put(self, key: Key, item: T, *, is_certain: bool = False) -> None:
        self._known.add(key)
        self.store.unreadable.pop(key, None)
        old = self.store.get(key)
        if old is not None and old.uid != item.uid:
            self._remove(key)
            self._known.add(key)
            old = None
        if old is not None and old.resource_version == item.resource_version and not is_certain:
            return
        self.store.put(item)
        self._on_change(old, item)

    def _remove(self, key: Key) -> None:
        self._known.discard(key)
        old = self.store.remove(key)
        if old is not None:
            self._on_change(old, None)

    def _set_version(self, version: str) -> None:
        self.resource_version = version
        if self._on_progress is not None:
            self._on_progress(self._what.namespace or "", version)

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


class MultiReflector(Generic[T]):
    """One reflector per namespace into one store, so that a limited controller works the same.

    An empty list of namespaces means all of them, with a single reflector.
    """

    def __init__(
        self,
        namespaces: Iterable[str],
        make: Callable[[str | None, Store[T]], Reflector[T]],
        *,
        indexers: Mapping[str, Indexer[T]] | None = None,
    ) -> None:
        """Call ``make(namespace, store)`` for each namespace; it passes both to Reflector."""
        self.store: Store[T] = Store(indexers)
        wanted = sorted(set(namespaces))
        self._all = None if wanted else make(None, self.store)
        self._by_namespace = {name: make(name, self.store) for name in wanted}

    @property
    def reflectors(self) -> list[Reflector[T]]:
        """Return the reflectors, one or more."""
        return list(self._by_namespace.values()) if self._all is None else [self._all]

    def reflector_for(self, namespace: str) -> Reflector[T]:
        """Return the reflector that covers a namespace; KeyError if it is not followed."""
        return self._all or self._by_namespace[namespace]

    @property
    def healthy(self) -> bool:
        """Whether one of them is at least.

        If the others are not, it is for something of their namespaces, such as a role that is gone
        with its namespace: no reason to call the whole program unready. Their silence is told.
        """
        return any(reflector.healthy for reflector in self.reflectors)

    @property
    def silence_seconds(self) -> float:
        """The longest silence of all, see Reflector."""
        return max(reflector.silence_seconds for reflector in self.reflectors)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())


async def wait_synced(caches: Iterable[MultiReflector[Any]], namespaces: Iterable[str]) -> None:
    """Return once all caches have listed one of the namespaces; none given means all in one.

    One and not every one: a namespace that cannot be listed, since its role is gone with it, must
    not keep the others waiting.
    """

    async def listed(namespace: str) -> None:
        for cache in caches:
            await cache.reflector_for(namespace).synced.wait()

    waiting = [asyncio.create_task(listed(name)) for name in list(namespaces) or [""]]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def is_newer(version: str, than: str) -> bool:
    """Return whether a resourceVersion is newer; those of one resource type compare as integers.

    (KEP-5504, and what storage has always done.) What is no integer counts as newer, so that a
    server with versions of another kind is followed rather than ignored.
    """
    if not version or not than:
        return bool(version)
    try:
        return int(version) > int(than)
    except ValueError:
        return version != than


def _is_lower(version: str, than: str) -> bool:
    """Return whether a resourceVersion is below another one; False for what is no integer."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _key(raw: RawObject | Unreadable) -> Key:
    if isinstance(raw, Unreadable):
        return raw.namespace, raw.name
    metadata = _metadata(raw)
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _version(raw: RawObject | Unreadable) -> str:
    if isinstance(raw, Unreadable):
        return raw.resource_version
    return str(_metadata(raw).get("resourceVersion") or "")


def _metadata(raw: RawObject) -> Mapping[str, Any]:
    metadata = raw.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
