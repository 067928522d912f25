"""Why no further node of a Job may start now, although the run goes on.

This is the place for conditions that are about the whole Job. What a node waits for that has its
turn already is in `preparation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from daemonset_job.api.reasons import ProgressingReason
from job_controller.core.state.snapshot import Snapshot


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
    """Return the first hold of a Job, None if nodes may start."""
    del snapshot, now
    return None
