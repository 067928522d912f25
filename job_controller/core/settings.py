"""What the administrator chose for all Jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from daemonset_job.api import names


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long what may heal by itself is given, in seconds, from when the controller saw it.

    `start_seconds`: a task that cannot start (its image cannot be pulled, the pod finds no room); three
    times as long where nothing says why. `unreachable_seconds`: a node that is not Ready, before it counts
    as unreachable.
    """

    start_seconds: float = 300.0
    unreachable_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the administrator chose for all Jobs.

    `token`: the word of Jobs that name none. `pause_image`: what holds the pod of a task in Exit
    mode once the task has ended. `history_limit` finished reports are kept for each Job name,
    none longer than `history_max_age_seconds` (None: no limit), and `history_namespace_limit` in
    each namespace (None: no limit).
    """

    token: str = names.DEFAULT_TOKEN
    timeouts: Timeouts = field(default_factory=Timeouts)
    pause_image: str = names.DEFAULT_PAUSE_IMAGE
    history_limit: int = 10
    history_max_age_seconds: float | None = None
    history_namespace_limit: int | None = None
