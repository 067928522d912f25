"""A watch of one process on one resource: delayed, in order, sometimes broken and listed again.

Events go into the project's own reflector (its list and its event handling, not its HTTP), so that
stores, indexes, callbacks and progress are the real ones. A process that has ended gets no events.
Not modelled: bookmarks, expired history (a broken watch always lists), partial pages.
"""

from collections import deque

from tests.simulation.server import NODES, REPORTS


class Feed:
    """One watch. `reflector` is the real one; `labels` what objects must carry to be seen."""

    def __init__(self, world, process, plural, reflector, labels):
        self._world = world
        self.name = f"{process.name}/{plural}"
        self.plural = plural
        self._program = process.name
        self.reflector = reflector
        self._labels = labels
        self._is_metadata_only = plural == NODES and process.name == "terminator"
        self._parse = reflector.writer.parse
        reflector.writer.parse = self._read
        self._pending = deque()
        self._timer = None
        self._stalled_until = 0.0
        self._is_listing = True
        self._lost_at = 0.0
        self._is_closed = False
        self._last = ()
        self.delivered_at = {}
        world.loop.call_later(world.lag(self.name, 0.005, 0.05), self._list)

    def _read(self, raw):
        """Project once per version, however often a program asks for it.

        Not reports: what is kept of one depends on the Jobs that a process knows at the time.
        """
        if self.plural == REPORTS:
            return self._parse(raw)
        known = self._world.projections
        meta = raw["metadata"]
        key = (self._program, self.plural, meta["resourceVersion"], meta["uid"])
        found = known.get(key)
        if found is None:
            if self._is_metadata_only:
                found = self._parse({"metadata": raw["metadata"]})
            else:
                found = self._parse(raw)
            known[key] = found
        return found

    # --- the server's side ---------------------------------------------------------------

    def push(self, kind, raw):
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

    def _arm(self):
        if self._timer is None and self._pending:
            self._timer = self._world.loop.call_at(self._pending[0][0], self._deliver)

    def _deliver(self):
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

    def _take(self, kind, raw):
        self._last = (kind, raw)
        meta = raw["metadata"]
        self.delivered_at[meta["namespace"], meta["name"]] = self._world.loop.moment
        self.reflector.writer.apply_event({"type": kind, "object": raw})

    @property
    def is_behind(self):
        """Whether something that has happened is not known here yet."""
        return self._is_listing or bool(self._pending)

    @property
    def known_until(self):
        """The moment before which everything that happened is known here."""
        if self._is_listing:
            return self._lost_at
        return self._pending[0][3] if self._pending else self._world.loop.moment

    def stall(self, seconds):
        """Deliver nothing for so long; what is on its way comes afterwards."""
        self._stalled_until = max(self._stalled_until, self._world.loop.moment + seconds)
        self._pending = deque(
            (max(due, self._stalled_until), *rest) for due, *rest in self._pending
        )
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm()

    def relist(self, seconds):
        """Lose the watch and everything on its way; list after so long."""
        if self._is_listing:
            return
        self._lost_at = self.known_until
        self._is_listing = True
        self._pending.clear()
        self._world.loop.call_later(seconds, self._list)

    def list_late(self, seconds):
        """Lose the watch; list at once, and get the answer, which is old by then, after so long."""
        if self._is_listing or self._is_closed:
            return
        now, snapshot = self._world.loop.moment, self._snapshot()
        self._lost_at = self.known_until
        self._pending.clear()
        self._pending.append((now + seconds, "LIST", snapshot, now))
        self._stalled_until = max(self._stalled_until, now + seconds)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm()

    def repeat(self):
        """Deliver the last event once more."""
        if self._last and not self._is_closed:
            self._take(*self._last)

    def _list(self):
        if self._is_closed:
            return
        if self._is_listing:
            self._is_listing = False
            self._replace(self._snapshot())

    def _snapshot(self):
        """Return what a list answers now: its version and its items."""
        server = self._world.server
        return server.version, server.select(self.plural, self._labels)

    def _replace(self, snapshot):
        """Take the answer of a list."""
        version, items = snapshot
        found = {}
        for raw in items:
            meta = raw["metadata"]
            key = (meta["namespace"], meta["name"])
            found[key] = self.reflector.writer.read(raw)
            self.delivered_at[key] = self._world.loop.moment
        self.reflector.replace(found, str(version))

    def close(self):
        self._is_closed = True
        self._pending.clear()
        feeds = self._world.server.feeds[self.plural]
        if self in feeds:
            feeds.remove(self)
