"""The specs that a ScheduledJob has had, and from when on each of its schedules asks for starts.

A change of the schedule asks for the starts after it. The API server has the time of the last write
of the spec, by its own clock, and the controller learns no other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, isinf

from tests.simulation.schedule import moments_of
from tests.simulation.server import Raw


@dataclass(slots=True)
class Specs:
    """The specs of one ScheduledJob, each with its time, and the schedules that were recorded.

    The clock of the API server that the user talks to is `skew` seconds ahead.
    """

    skew: float
    specs: list[tuple[float, Raw]] = field(default_factory=list)
    _recorded: list[tuple[float, str]] = field(default_factory=list)

    def note(self, at: float, raw: Raw) -> None:
        """Note the spec of the object as it is, and which schedule its status says it has."""
        if not self.specs or self.specs[-1][1] != raw["spec"]:
            self.specs.append((at, raw["spec"]))
        text = (raw.get("status") or {}).get("observedSchedule", "").rpartition(" ")[0]
        if text and (not self._recorded or self._recorded[-1][1] != text):
            self._recorded.append((at, text))

    @property
    def newest(self) -> Raw:
        """The spec as it is."""
        return self.specs[-1][1]

    def known(self, since: float) -> list[int]:
        """Return which specs a reconcile may have read that has read it after `since`."""
        older = [i for i, (at, _) in enumerate(self.specs) if at <= since][-1:]
        return [*older, *(i for i, (at, _) in enumerate(self.specs) if at > since)]

    def begin(self, number: int) -> float:
        """Return since when the schedule of a spec has been that without a break."""
        while number and self._text(number - 1) == self._text(number):
            number -= 1
        return self.specs[number][0]

    def origin(self, number: int) -> float:
        """Return since when the schedule of a spec was that, but for what was not recorded."""
        while self.is_undone(number):
            begin, text = self.begin(number), self._text(number)
            before = [i for i, (at, _) in enumerate(self.specs) if at < begin]
            number = max((i for i in before if self._text(i) == text), default=0)
        return self.begin(number)

    def is_undone(self, number: int) -> bool:
        """Return whether a schedule came back before the one in between was recorded."""
        begin = self.begin(number)
        before = [text for at, text in self._recorded if at <= begin]
        return number > 0 and before[-1:] == [self._text(number)]

    def read_by(self, number: int) -> float:
        """Return when the schedule of a spec had been recorded, infinity for not yet."""
        if self.is_undone(number):
            return self.begin(number)
        begin, text = self.begin(number), self._text(number)
        return min(
            (at for at, each in self._recorded if at >= begin and each == text),
            default=float("inf"),
        )

    def last_write(self, number: int) -> float:
        """Return when the spec was last written before the schedule of a spec was recorded.

        From then on that schedule counts: of the writes before, no time is known.
        """
        begin, end = self.begin(number), self.read_by(number)
        return max(at for at, _ in self.specs if at == begin or begin < at < end)

    def moments(self, number: int, *, after: float) -> list[float]:
        """Return the starts by the schedule of a spec after a time, of which seconds are known."""
        whole = after if isinf(after) else floor(after)
        return [each for each in moments_of(self._text(number)) if each > whole]

    def _text(self, number: int) -> str:
        return str(self.specs[number][1]["schedule"])
