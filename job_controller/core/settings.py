"""What the administrator chose for all Jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from daemonset_job.api import names


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the controller waits before a lasting condition is a failure, by its own clock.

    `start_seconds`: for a task that cannot start (its image cannot be pulled, no room for the pod).
    Without a known cause it is three times as long. `unreachable_seconds`: for a node that is not
    Ready, until it counts as unreachable.
    """

    start_seconds: float = 300.0
    unreachable_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the administrator chose for all Jobs.

    `token` is the default completion token. `pause_image` is the image of the container that keeps
    the pod of a task in Exit mode after its end. `task_image` is that of Jobs with a script and
    without an image. `history_limit` finished reports are kept for each Job name, none longer than
    `history_max_age_seconds` (None: no limit).
    `history_namespace_limit` is their number in each namespace (None: no limit). `node_name` is the
    node that runs the controller, "" if it is not known.
    """

    token: str = names.DEFAULT_TOKEN
    timeouts: Timeouts = field(default_factory=Timeouts)
    pause_image: str = names.DEFAULT_PAUSE_IMAGE
    task_image: str = names.DEFAULT_TASK_IMAGE
    history_limit: int = 10
    history_max_age_seconds: float | None = None
    history_namespace_limit: int | None = None
    node_name: str = ""
