"""What a person reads about a run that makes no progress."""

from __future__ import annotations

from dataclasses import dataclass

from daemonset_job.api.reasons import ProgressingReason


@dataclass(frozen=True, slots=True)
class Blocker:
    """The reason and the message of `Progressing=False`."""

    reason: ProgressingReason
    message: str
