"""A watch of one process on one resource: delayed, in order, sometimes broken and listed again.

Events go into the project's own reflector (its list and its event handling, not its HTTP), so that
stores, indexes, callbacks and progress are the real ones. A process that has ended gets no events.
Not modelled: bookmarks, expired history (a broken watch always lists), partial pages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.kube.client.answers import RawObject
from tests.simulation.server import NODES, REPORTS, Raw

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World


class Watch:
    """One watch. `reflector` is the real one; `labels` what objects must carry to be seen."""

    def __init__(
        self,
        world: World,
        process: Process,
        plural: str,
        reflector: Reflector[Any],
        labels: Raw | None,
    ) -> None:
        self._world = world
        self.name = f"{process.name}/{plural}"
        self.plural = plural
        self._program = process.name
        self.reflector = reflector
        self._labels = labels
        self._is_metadata_only = plural == NODES and process.name == "terminator"
        self._parse = reflector.writer.parse
        reflector.writer.parse = self._read
        self._pending: deque[tuple[float, str, Any, float]] = deque()
        self._timer: asyncio.Handle | None = None
        self._stalled_until = 0.0
        self._is_listing = True
        self._lost_at = 0.0
        self._is_closed = False
        self._last: tuple[str, Raw] | None = None
        # By namespace and name: when an object last reached the process.
        self.delivered_at: dict[tuple[str, str], float] = {}
        world.loop.call_later(world.lag(self.name, 0.005, 0.05), self._list)

    def _read(self, raw: Raw) -> Any:
        """Project once per version, however often a program asks for it.

        Not reports: what is kept of one depends on the Jobs that a process knows at the time.
        """
        if self.plural == REPORTS:
            return self._parse(cast("RawObject", raw))
        known = self._world.projections
        meta = raw["metadata"]
        key = (self._program, self.plural, meta["resourceVersion"], meta["uid"])
        found = known.get(key)
        if found is None:
            if self._is_metadata_only:
                found = self._parse({"metadata": raw["metadata"]})
            else:
                found = self._parse(cast("RawObject", raw))
            known[key] = found
        return found

    # --- the server's side ---------------------------------------------------------------

    def push(self, kind: str, raw: Raw) -> None:
        """Take an event on its way."""
        if self._is_listing or self._is_closed:
            return  # a list that is yet to come shows it
        labels = raw["metadata"].get("labels") or {}
        if self._labels and not self._labels.items() <= labels.items():
            return
        world = self._world
        due = world.loop.moment + world.lag(self.name, 0.005, 0.1)
        if self._pending:
            due = max(due, self._pending[-1][0])
        self._pending.append((max(due, self._stalled_until), kind, raw, world.loop.moment))
        self._arm()

    # --- the process's side --------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is None and self._pending:
            self._timer = self._world.loop.call_at(self._pending[0][0], self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        now = self._world.loop.moment
        while self._pending and self._pending[0][0] <= now:
            _, kind, raw, _ = self._pending.popleft()
            if kind == "LIST":
                self._replace(raw)
            else:
                self._take(kind, raw)
        self._arm()

    def _take(self, kind: str, raw: Raw) -> None:
        self._last = (kind, raw)
        meta = raw["metadata"]
        self.delivered_at[meta["namespace"], meta["name"]] = self._world.loop.moment
        self.reflector.writer.apply_event({"type": kind, "object": raw})

    @property
    def is_behind(self) -> bool:
        """Whether something that has happened is not known here yet."""
        return self._is_listing or bool(self._pending)

    @property
    def known_until(self) -> float:
        """The moment before which everything that happened is known here."""
        if self._is_listing:
            return self._lost_at
        return self._pending[0][3] if self._pending else self._world.loop.moment

    def stall(self, seconds: float) -> None:
        """Deliver nothing for `seconds`; what is on its way comes afterwards."""
        self._stalled_until = max(self._stalled_until, self._world.loop.moment + seconds)
        self._pending = deque(
            (max(due, self._stalled_until), *rest) for due, *rest in self._pending
        )
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm()

    def relist(self, seconds: float) -> None:
        """Lose the watch and everything on its way; list after `seconds`."""
        if self._is_listing:
            return
        self._lost_at = self.known_until
        self._is_listing = True
        self._pending.clear()
        self._world.loop.call_later(seconds, self._list)

    def list_late(self, seconds: float) -> None:
        """Lose the watch; list at once, and get the answer, which is old then, after `seconds`."""
        if self._is_listing or self._is_closed:
            return
        now, snapshot = self._world.loop.moment, self._snapshot()
        self._lost_at = self.known_until
        self._pending.clear()
        # What was on its way when the watch was lost is known only by the list.
        self._pending.append((now + seconds, "LIST", snapshot, self._lost_at))
        self._stalled_until = max(self._stalled_until, now + seconds)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm()

    def repeat(self) -> None:
        """Deliver the last event once more."""
        if self._last and not self._is_closed:
            self._take(*self._last)

    def _list(self) -> None:
        if self._is_closed:
            return
        if self._is_listing:
            self._is_listing = False
            self._replace(self._snapshot())

    def _snapshot(self) -> tuple[int, list[Raw]]:
        """Return what a list answers now: its version and its items."""
        server = self._world.server
        return server.version, server.select(self.plural, self._labels)

    def _replace(self, snapshot: tuple[int, list[Raw]]) -> None:
        """Take the answer of a list."""
        version, items = snapshot
        found = {}
        for raw in items:
            meta = raw["metadata"]
            key = (meta["namespace"], meta["name"])
            found[key] = self.reflector.writer.read(cast("RawObject", raw))
            self.delivered_at[key] = self._world.loop.moment
        self.reflector.replace(found, str(version))

    def close(self) -> None:
        self._is_closed = True
        self._pending.clear()
        watches = self._world.server.watches[self.plural]
        if self in watches:
            watches.remove(self)
