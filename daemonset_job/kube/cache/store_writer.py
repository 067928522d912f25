"""Writes lists and events of the API server into a store, and reports every difference."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from loguru import logger

from daemonset_job.kube.cache.resource_version import is_lower, is_newer
from daemonset_job.kube.cache.store import CachedObject, Key, Store
from daemonset_job.kube.client.answers import RawObject
from daemonset_job.kube.client.errors import Gone
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.status_errors import error_from_status
from daemonset_job.kube.client.unreadable import Unreadable

T = TypeVar("T", bound=CachedObject)

# After this many bookmarks in a row below the known version, objects are listed: etcd was restored
# from a backup. One alone does not show that, since another API server's cache may be stale.
LOW_BOOKMARKS_LIMIT = 2
# A client may write an object that cannot be read at any rate. Each has one warning in this time.
WARN_AGAIN_SECONDS = 60.0

# The key of an object of which not even the name was found.
_NAMELESS: Key = ("", "")

OnChange = Callable[[T | None, T | None], None]
OnUnreadable = Callable[[Unreadable], None]
OnProgress = Callable[[str, str], None]


class StoreWriter(Generic[T]):
    """Keeps `store` equal to the lists and events that it gets, and reports every difference.

    `parse` makes a small frozen object of the raw JSON, which is then dropped. If it raises
    ValueError (or trips over a missing or odd field), or the JSON cannot be parsed, the object is
    skipped. It is noted in `store.unreadable` and passed to `on_unreadable`, once for each version,
    and logged. What was known of it before stays: unreadable is not deleted. `on_change` gets
    (None, new) for an addition, (old, new) for a change, (old, None) for a deletion; a replaced UID
    is a deletion and an addition. It must be quick and must not raise.
    `on_progress(namespace, resource_version)` gets the version of the cache, after the change
    itself; the namespace is empty if all are watched.
    """

    def __init__(
        self,
        what: Selection,
        store: Store[T],
        *,
        parse: Callable[[RawObject], T],
        on_change: OnChange[T],
        on_progress: OnProgress | None = None,
        on_unreadable: OnUnreadable | None = None,
    ) -> None:
        self.what = what
        self.store = store
        self.parse = parse
        self._on_change = on_change
        self._on_progress = on_progress
        self._on_unreadable = on_unreadable
        self.resource_version = ""
        self._known: set[Key] = set()
        # When each object that cannot be read was last logged with a warning.
        self._warned: dict[Key, float] = {}
        self._low_bookmarks = 0

    def replace(self, found: Mapping[Key, T | Unreadable], version: str) -> None:
        """Take a complete list, read by `read`, and its resourceVersion: all there is now."""
        # A list is the truth even if its version is lower than ours (etcd restored from a backup).
        # Versions were given twice then, so that equal ones do not mean equal objects.
        went_back = is_lower(version, self.resource_version)
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
        self._set_version(version)

    def apply_event(self, event: Mapping[str, Any]) -> None:
        """Take one event of a watch: a mapping with `type` and `object`.

        Raises the KubeError that an ERROR event means, and Gone if bookmarks went back for good.
        """
        kind, raw = event.get("type"), event["object"]
        if kind == "ERROR":
            raise error_from_status(raw, request=f"watch {self.what.resource.plural}")
        version = _version(raw)
        if kind == "BOOKMARK":
            self._check_bookmark(version)
        else:
            # Events of one watch come in the order of their versions. One that is not newer than
            # what is known was delivered twice, or late: taking it would bring back the past.
            if not is_newer(version, self.resource_version):
                return
            key = key_of(raw)
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
        if not is_lower(version, self.resource_version):
            self._low_bookmarks = 0
            return
        self._low_bookmarks += 1
        if self._low_bookmarks >= LOW_BOOKMARKS_LIMIT:
            self._low_bookmarks = 0
            raise Gone(f"the server is at {version}, behind {self.resource_version}")

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
        """Note that an object cannot be read, and log each version of it."""
        self._known.add(key)
        before = self.store.unreadable.get(key)
        self.store.unreadable[key] = item
        if before is not None and before.resource_version == item.resource_version:
            return
        now, warned = time.monotonic(), self._warned.get(key)
        is_news = warned is None or now >= warned + WARN_AGAIN_SECONDS
        if is_news:
            self._warned[key] = now
        logger.bind(
            resource=self.what.resource.plural,
            namespace=item.namespace,
            name=item.name,
            resource_version=item.resource_version,
            error=item.error,
        ).log("WARNING" if is_news else "DEBUG", "skipped an object that cannot be read")
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
        self._warned.pop(key, None)
        old = self.store.remove(key)
        if old is not None:
            self._on_change(old, None)

    def _set_version(self, version: str) -> None:
        self.resource_version = version
        if self._on_progress is not None:
            self._on_progress(self.what.namespace or "", version)


def key_of(raw: RawObject | Unreadable) -> Key:
    """Return the key of a raw object, of which parts are empty if they are missing."""
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
