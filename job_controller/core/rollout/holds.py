"""Why no further node of a Job may start now, although the run goes on.

This is the place for conditions that are about the whole Job. What a node waits for that has its
turn already is in `core/preparation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.times import format_time
from job_controller.core.rollout.image_pull import find_pull_hold
from job_controller.core.rollout.window import Window, read_window, window_state
from job_controller.core.state.snapshot import Snapshot

# The time zone of a window that names none.
_UTC: Final = "UTC"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why no further node may start; tasks at work continue.

    `message` is for the condition Progressing: what is waited for, and what ends it. `wake_at` is
    when it may end without an event, None if only an event ends it.
    """

    reason: ProgressingReason
    message: str
    wake_at: datetime | None = None


def find_hold(snapshot: Snapshot, now: datetime) -> Hold | None:
    """Return the first hold of a Job, None if nodes may start.

    Images are pulled while the window is closed, too: that changes nothing on the nodes.
    """
    if (pull := find_pull_hold(snapshot)) is not None:
        return Hold(*pull)
    return _closed_window(snapshot.job, now)


def find_window_problem(job: Job) -> str:
    """Return what is wrong with the window of the rollout, "" for nothing."""
    window = _read_window(job)
    return window if isinstance(window, str) else ""


def _read_window(job: Job) -> Window | str | None:
    rollout = job.spec.rollout
    if rollout is None or rollout.window is None:
        return None
    spec = rollout.window
    return read_window(
        spec.start, spec.duration, spec.time_zone or _UTC, field="spec.rollout.window"
    )


def _closed_window(job: Job, now: datetime) -> Hold | None:
    """Return that the window is closed, or cannot be read: then no further node starts either."""
    window = _read_window(job)
    if window is None:
        return None
    if isinstance(window, str):
        return Hold(ProgressingReason.INVALID_WINDOW, window)
    state = window_state(window, now)
    if state.is_open:
        return None
    when = f"opens at {format_time(state.changes_at)}" if state.changes_at else "never opens"
    words = f"the window is closed and {when}: no further node starts, tasks at work finish"
    return Hold(ProgressingReason.OUTSIDE_WINDOW, words, state.changes_at)


def window_closes_at(job: Job, now: datetime) -> datetime | None:
    """Return when the window closes, None for none, and while it is closed."""
    window = _read_window(job)
    if window is None or isinstance(window, str):
        return None
    state = window_state(window, now)
    return state.changes_at if state.is_open else None
