"""Starts that are written as cron: the next one after a moment, and the latest one before it.

The library cronsim reads the text and finds wall-clock times. Here they become moments, because
the clocks of a time zone are moved twice a year. The rules are those of cron in Debian:

- A schedule of fixed times, such as "30 2 * * *", starts once each day. If the clocks skip 02:30,
  it starts when they are moved, at 03:00. If 02:30 comes twice, it starts the first time.
- A schedule whose minute or hour begins with a star, such as "*/10 * * * *", follows the clock. It
  has no start in the hour that is skipped, and starts in both hours of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from cronsim import CronSim, CronSimError

from job_controller.core.cron.time_zones import find_zone, printable

# Enough for lists of minutes and hours; what is read costs its length.
TEXT_LIMIT = 128
_KEPT_PROBLEMS = 1024
# The names that CronJobs may use. "@every" has no times of day, and is refused.
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# What comes at all comes in these years: February 29 is in each eight of them.
_SEARCHED_FROM = datetime(2024, 1, 1)  # noqa: DTZ001  a wall-clock time, in any zone
_SEARCHED_UNTIL = datetime(2034, 1, 1)  # noqa: DTZ001
# No clock has been moved by more since 2012 (Antarctica/Troll: two hours).
_LARGEST_SHIFT = timedelta(hours=3)
_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=_KEPT_PROBLEMS)
def cron_problem(text: str) -> str:
    """Return why a text is no schedule that ever starts, and what to write; "" if it is one."""
    if len(text) > TEXT_LIMIT:
        return f"the schedule has more than {TEXT_LIMIT} characters; write a shorter one"
    fields = _as_fields(text).split()
    if len(fields) != 5:
        return (
            f'"{printable(text)}" does not have 5 fields; write minute, hour, day of the month, '
            'month and day of the week, such as "0 22 * * 6"'
        )
    try:
        first = next(CronSim(" ".join(fields), _SEARCHED_FROM - _SECOND), None)
    except CronSimError as error:
        return (
            f'"{printable(text)}" is no schedule: {_describe(error)}; '
            'write one such as "0 22 * * 6"'
        )
    if first is None or first >= _SEARCHED_UNTIL:
        return f'"{printable(text)}" has no start within ten years; write a day that exists'
    return ""


def _as_fields(text: str) -> str:
    """Return the five fields that a text means. A `?` is a star, as for a CronJob."""
    return _NAMED.get(text.strip().lower(), text).replace("?", "*")


def _describe(error: CronSimError) -> str:
    """Return what cronsim found, "Bad day-of-month", as "the field day-of-month is wrong"."""
    return f"the field {str(error).removeprefix('Bad ')} is wrong"


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Starts by the clocks of a time zone; `cron_problem` and `time_zone_problem` have none."""

    text: str
    time_zone: str

    def starts_after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the starts after a moment in their order, each in UTC; none after 50 years."""
        while (found := self.next_start(moment)) is not None:
            yield found
            moment = found

    def next_start(self, moment: datetime) -> datetime | None:
        """Return the first start after a moment, in UTC; None if there is none in 50 years."""
        wall = _Wall(self.time_zone, moment)
        found = self._first_after(wall, wall.local)
        if found is None or self._is_fixed:
            return found
        if wall.is_shifted_within(min(found - moment, _LARGEST_SHIFT)):
            # The clocks go back before that start, and show again what they have shown.
            again = self._first_after(wall, wall.local - _LARGEST_SHIFT)
            return min(found, again) if again else found
        return found

    def latest_start(self, moment: datetime) -> datetime | None:
        """Return the last start until a moment, in UTC; None if there was none in 50 years."""
        wall = _Wall(self.time_zone, moment)
        if not wall.is_second:
            return self._last_until(wall, wall.local)
        # In the second of two equal hours, the clocks have shown later times before.
        found = self._last_until(wall, wall.local + _LARGEST_SHIFT)
        if self._is_fixed:
            return found
        again = self._last_until(wall, wall.local)
        return max(found, again) if found and again else found or again

    def _first_after(self, wall: _Wall, local: datetime) -> datetime | None:
        """Return the first start after the moment, of those that clocks show after a time."""
        for shown in CronSim(self._fields, local):
            for start in self._moments(wall, shown):
                if start > wall.moment:
                    return start
        return None

    def _last_until(self, wall: _Wall, local: datetime) -> datetime | None:
        """Return the last start until the moment, of those that clocks show until a time."""
        for shown in CronSim(self._fields, local + _SECOND, reverse=True):
            for start in reversed(self._moments(wall, shown)):
                if start <= wall.moment:
                    return start
        return None

    @property
    def _fields(self) -> str:
        return _as_fields(self.text)

    @property
    def _is_fixed(self) -> bool:
        minute, hour = self._fields.split()[:2]
        return not minute.startswith("*") and not hour.startswith("*")

    def _moments(self, wall: _Wall, local: datetime) -> list[datetime]:
        """Return the moments of a start by the clock, in their order: none, one, or two."""
        moments = wall.moments(local)
        if not self._is_fixed:
            return moments
        return moments[:1] or [wall.end_of_gap(local)]


class _Wall:
    """What the clocks of a time zone show, without a zone, as cronsim is given it."""

    def __init__(self, time_zone: str, moment: datetime) -> None:
        self.zone = find_zone(time_zone)
        self.moment = moment.astimezone(UTC)
        shown = self.moment.astimezone(self.zone)
        self.is_second = bool(shown.fold)
        self.local = shown.replace(tzinfo=None, fold=0, microsecond=0)

    def is_shifted_within(self, span: timedelta) -> bool:
        """Return whether the clocks are moved between the moment and one that is a span away."""
        steps = (self.moment + span * part for part in (0, 0.25, 0.5, 0.75, 1))
        offsets = [step.astimezone(self.zone).utcoffset() for step in steps]
        return any(before != after for before, after in pairwise(offsets))

    def moments(self, local: datetime) -> list[datetime]:
        """Return when the clocks show a time: once, twice, or never."""
        both = (local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        return sorted({m for m in both if m.astimezone(self.zone).replace(tzinfo=None) == local})

    def end_of_gap(self, local: datetime) -> datetime:
        """Return when the clocks were moved past a time that they did not show."""
        while not (moments := self.moments(local)):
            local += _MINUTE
        return moments[0]
