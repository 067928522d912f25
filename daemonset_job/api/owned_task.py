"""What a Job runs on its nodes beside its own task, in a Job that it owns: a check, for example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api.script_source import (
    SCRIPT_SOURCE_SHAPE,
    ScriptSource,
    parse_script_source,
)
from daemonset_job.api.shape import STRING, fields, list_of

OWNED_TASK_SHAPE: Final = fields(
    image=STRING,
    script=STRING,
    scriptFrom=SCRIPT_SOURCE_SHAPE,
    command=list_of(STRING),
    args=list_of(STRING),
)


@dataclass(frozen=True, slots=True)
class OwnedTask:
    """A script, or a command with arguments, or arguments of the image; exit 0 is success.

    `image` "" is the task image for a script, and otherwise that of the Job.
    """

    image: str = ""
    script: str | None = None
    script_from: ScriptSource | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()

    @property
    def has_script(self) -> bool:
        """Whether a script runs, and not the command of an image."""
        return self.script is not None or self.script_from is not None


def parse_owned_task(raw: Mapping[str, Any] | None) -> OwnedTask | None:
    """Return the task in its raw form, None without one. Never raises for OWNED_TASK_SHAPE."""
    if raw is None:
        return None
    return OwnedTask(
        image=raw.get("image") or "",
        script=raw.get("script") or None,
        script_from=parse_script_source(raw.get("scriptFrom") or {}),
        command=tuple(raw.get("command") or ()),
        args=tuple(raw.get("args") or ()),
    )
