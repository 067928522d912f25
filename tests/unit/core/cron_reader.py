"""A second reader of cron: it looks at the clock each minute, and knows no library for cron."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Field:
    """One field of a schedule: its text, and the numbers that it names."""

    text: str
    numbers: frozenset[int]

    @property
    def is_star(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True)
class Schedule:
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        fields = (self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in fields)

    def names(self, shown: datetime) -> bool:
        """Return whether the schedule names what a clock shows."""
        is_day = shown.day in self.day.numbers
        is_weekday = shown.isoweekday() % 7 in self.weekday.numbers
        either = not (self.day.is_star or self.weekday.is_star)
        return (
            shown.minute in self.minute.numbers
            and shown.hour in self.hour.numbers
            and shown.month in self.month.numbers
            and ((is_day or is_weekday) if either else (is_day and is_weekday))
        )

    def starts(self, zone: ZoneInfo, begin: datetime, end: datetime) -> list[datetime]:
        """Return the starts from one moment to another, by looking at the clock each minute."""
        follows_clock = self.minute.is_star or self.hour.is_star
        found = []
        for moment, shown, skipped in clock(zone, begin, end):
            if follows_clock:
                is_start = self.names(shown)
            else:
                # Each time of day once: not the second time, and late if the clock skipped it.
                is_start = (self.names(shown) and not shown.fold) or any(map(self.names, skipped))
            if is_start:
                found.append(moment)
        return found


@lru_cache(maxsize=64)
def clock(
    zone: ZoneInfo, begin: datetime, end: datetime
) -> tuple[tuple[datetime, datetime, list[datetime]], ...]:
    """Return what `_clock` yields; many schedules are read by one clock."""
    return tuple(_clock(zone, begin, end))


def _clock(
    zone: ZoneInfo, begin: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime, list[datetime]]]:
    """Yield each minute: the moment, what the clock shows, and what it skipped just before."""
    moment = begin.astimezone(UTC)
    before = (moment - MINUTE).astimezone(zone).replace(tzinfo=None, fold=0)
    while moment < end:
        shown = moment.astimezone(zone).replace(tzinfo=None)
        skipped = []
        while (before := before + MINUTE) < shown.replace(fold=0):
            skipped.append(before)
        yield moment, shown, skipped
        before = shown.replace(fold=0)
        moment += MINUTE
