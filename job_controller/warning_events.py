"""The newest event of some reasons about one object, for causes that no status has.

A DaemonSet has no condition for pods that the API server refuses (quota, Pod Security, webhooks).
A pod has none for a volume or a sandbox that cannot be made. Events are listed while a cause
is looked for, at growing intervals. None are cached for the cluster: a client that may write events
would decide how much memory that takes.

Layer: beside the reconciler. It is kept in memory only: a restart lists again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loguru import logger

from daemonset_job.api.job import JobKey
from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.cache.resource_version import is_newer
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import EVENTS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable
from daemonset_job.runtime.backoff import exponential_seconds
from daemonset_job.runtime.clock import Clock
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line
from job_controller.read_pace import ReadPaces

# Pods take a moment to be created, so the first list is made that long after a cause was found to
# be lacking. The pauses double; after the longest one a changed reason is in the status.
PAUSE_SECONDS = (2.0, 15.0)
# Events of one object and reason are aggregated by their recorder: there are about 10 of them. More
# are of other writers; they are read page by page, one page at a time.
PAGE_EVENTS = 200
PAGE_BYTES = 1024 * 1024
# etcd has to read all events of the namespace to find those of one object.
READ_SECONDS = 10.0


@dataclass(slots=True)
class _Search:
    """What is known about one object; `version` is the resourceVersion of the newest event.

    `completed` counts the searches that have read all pages. `message` is that of the last one,
    None before it. `newest` is what the one under way has found.
    """

    uid: str
    pager: Pager
    until: float
    has_slot: bool = False
    rounds: int = 0
    completed: int = 0
    message: str | None = None
    newest: str = ""
    version: str = ""
    continue_: str = ""

    def restart(self) -> None:
        """Begin the next search with the first page; what this one has found is not lost."""
        self.message = self.newest or self.message
        self.newest = self.version = self.continue_ = ""
        self.rounds += 1


class WarningEvents:
    """The newest event of some reasons about one object of each Job that lacks a cause, by Job."""

    def __init__(
        self, client: KubeClient, clock: Clock, reasons: Sequence[str], paces: ReadPaces
    ) -> None:
        """Begin without any; `reasons` are those of the events, `paces` those of all readers."""
        self._reasons = frozenset(reasons)
        # A field selector takes one value.
        self._which = f"reason={reasons[0]}" if len(reasons) == 1 else "type=Warning"
        self._client = client
        self._clock = clock
        self._searches: dict[JobKey, _Search] = {}
        self._paces = paces

    def __len__(self) -> int:
        """Return the number of Jobs whose events are read."""
        return len(self._searches)

    def forget(self, key: JobKey) -> None:
        """Drop what is known of a Job that is gone, or that lacks no cause."""
        self._searches.pop(key, None)

    def message(self, key: JobKey, uid: str) -> str | None:
        """Return the newest message about the object of that UID.

        "" if there is none, None before the events were listed.
        """
        known = self._searches.get(key)
        return known.message if known is not None and known.uid == uid else None

    def newest(self, key: JobKey) -> tuple[str, str]:
        """Return the UID of the Job's object and the newest message about it, "" without any."""
        known = self._searches.get(key)
        return (known.uid, known.message or "") if known is not None else ("", "")

    def completed(self, key: JobKey, uid: str) -> int:
        """Return how often all events about the object of that UID were read."""
        known = self._searches.get(key)
        return known.completed if known is not None and known.uid == uid else 0

    async def look(self, key: JobKey, uid: str) -> float:
        """List the events about an object if it is time; return the seconds until the next look.

        That is 0 if `message` has changed. A list that fails leaves it as it was.
        """
        now = self._clock.monotonic()
        known = self._searches.get(key)
        if known is None or known.uid != uid:
            known = self._searches[key] = self._begin(key[0], uid, now)
        if (wait := self._wait(key[0], known, now)) > 0.0:
            return wait
        before = known.message
        pace = self._paces.of(key[0], now)
        pace.start(now)
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._read(known)
        except (KubeError, TimeoutError) as error:
            logger.warning("cannot list events", reasons=sorted(self._reasons), error=repr(error))
            known.restart()
        finally:
            after = self._clock.monotonic()
            pace.end(after)
        # The rest of a search does not wait longer and longer: its resourceVersion expires.
        rounds = 0 if known.continue_ else known.rounds
        pause = exponential_seconds(rounds, *PAUSE_SECONDS)
        known.until, known.has_slot = after + pause, False
        return 0.0 if known.message != before else pause

    def _begin(self, namespace: str, uid: str, now: float) -> _Search:
        about = f"involvedObject.uid={uid},{self._which}"
        what = Selection(EVENTS, namespace, field_selector=about)
        pager = Pager(self._client, what, size=PAGE_EVENTS, limit_bytes=PAGE_BYTES)
        return _Search(uid, pager, until=now + PAUSE_SECONDS[0])

    def _wait(self, namespace: str, known: _Search, now: float) -> float:
        """Return the seconds until a list may be made; once it is due, a slot is kept for it."""
        pace = self._paces.of(namespace, now)
        if now >= known.until and not (known.has_slot and pace.is_free(now)):
            # A slot that came while a list took longer than those before is lost.
            known.until, known.has_slot = pace.next_slot(now), True
        return max(known.until - now, 0.0)

    async def _read(self, known: _Search) -> None:
        """Read the next page of a search; the newest event of all its pages is the one that counts.

        Newest by resourceVersion, because the writer of an event chooses its times. So an event
        of another writer hides those of Kubernetes only until its next one.
        """
        page = await known.pager.page(known.continue_)
        for raw in page.items:
            if isinstance(raw, Unreadable) or _text(raw, "reason") not in self._reasons:
                continue
            version = _text(_mapping(raw.get("metadata")), "resourceVersion")
            if is_newer(version, known.version):
                known.version = version
                known.newest = single_line(_text(raw, "message"), REFUSAL_LIMIT)
        known.continue_ = page.continue_
        if not page.continue_:
            known.message = known.newest
            known.completed += 1
            known.restart()
        elif known.newest and not known.message:
            known.message = known.newest


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(raw: Mapping[str, Any], field: str) -> str:
    value = raw.get(field)
    return value if isinstance(value, str) else ""
