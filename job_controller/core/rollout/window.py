"""Windows: the times in which nodes may begin their turn.

A window is a start, a duration and a time zone. So one that starts on Saturday at 22:00 and lasts
six hours is open on Sunday until 04:00. The duration is time that passes, whatever the clocks show.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from daemonset_job.process.durations import parse_duration
from job_controller.core.cron.cron_schedule import CronSchedule, cron_problem
from job_controller.core.cron.time_zones import printable, time_zone_problem

SHORTEST_SECONDS = 60.0
# A year: a longer window is one that is always open.
LONGEST_SECONDS = 366 * 86400.0
_DURATION_TEXT_LIMIT = 32
# Windows that follow each other without a pause are one. Each step of the search begins where the
# one before ended: this is a day and a half of windows of ten minutes, and some 10 ms.
_SEARCHED_WINDOWS = 200


@dataclass(frozen=True, slots=True)
class Window:
    """When turns may begin: a start as cron, how long, by the clocks of which zone."""

    start: str
    duration_seconds: float
    time_zone: str

    @property
    def schedule(self) -> CronSchedule:
        """The starts."""
        return CronSchedule(self.start, self.time_zone)

    @property
    def duration(self) -> timedelta:
        """How long the window is open after each start."""
        return timedelta(seconds=self.duration_seconds)


@dataclass(frozen=True, slots=True)
class WindowState:
    """Whether a window is open, and when that changes, in UTC.

    `changes_at` is None for a window that is open longer than the search goes, and for one that
    has no start in the next 50 years.
    """

    is_open: bool
    changes_at: datetime | None


def read_window(start: str, duration: str, time_zone: str, *, field: str) -> Window | str:
    """Return the window that three texts of a spec describe, or what is wrong with one of them.

    The message names the field, for example "spec.rollout.window.start", and what to write.
    """
    if problem := cron_problem(start):
        return f"{field}.start: {problem}"
    seconds = _read_duration(duration)
    if seconds is None or not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        return (
            f'{field}.duration: "{printable(duration[:_DURATION_TEXT_LIMIT])}" is no time from 1m '
            "to 8784h; write a duration such as 4h, 90m or 1h30m"
        )
    if problem := time_zone_problem(time_zone):
        return f"{field}.timeZone: {problem}"
    return Window(start, seconds, time_zone)


def _read_duration(text: str) -> float | None:
    """Return the seconds of a duration such as 1h30m, None for any other text."""
    if len(text) > _DURATION_TEXT_LIMIT or not text.endswith(("s", "m", "h")):
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def window_state(window: Window, moment: datetime) -> WindowState:
    """Return whether a window is open at a moment, and when that changes next.

    A window is open at its start, and closed at its end.
    """
    begun = window.schedule.latest_start(moment)
    if begun is not None and moment < begun + window.duration:
        return WindowState(is_open=True, changes_at=_find_end(window, begun))
    return WindowState(is_open=False, changes_at=window.schedule.next_start(moment))


def _find_end(window: Window, begun: datetime) -> datetime | None:
    """Return when a window closes that began at a start; it stays open if another one begins."""
    for _ in range(_SEARCHED_WINDOWS):
        end = begun + window.duration
        latest = window.schedule.latest_start(end)
        if latest is None or latest == begun:
            return end
        begun = latest
    return None
