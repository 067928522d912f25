"""An earlier failure of a node, in its record: an entry of `nodeStates.<node>.failures`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.shape import NUMBER, STRING, TIME, fields
from daemonset_job.api.times import format_time, parse_whole_seconds

FAILURE_SHAPE: Final = fields(
    finishedAt=TIME,
    reason=STRING,
    message=STRING,
    exitCode=NUMBER,
    attempts=NUMBER,
    observedRetry=STRING,
)


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """How a try of a node ended, before the node was retried or completed after all.

    `attempts` counts starts of the task up to then. `retry` is the retry request of that try.
    """

    finished_at: datetime | None = None
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    attempts: int = 0
    retry: str = ""

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out."""
        raw = {
            "finishedAt": self.finished_at and format_time(self.finished_at),
            "reason": self.reason,
            "message": self.message,
            "attempts": self.attempts,
            "observedRetry": self.retry,
        }
        kept: dict[str, Any] = {key: value for key, value in raw.items() if value}
        if self.exit_code is not None:
            kept["exitCode"] = self.exit_code
        return kept


def parse_failure(raw: Mapping[str, Any]) -> NodeFailure:
    """Return an earlier failure. Never raises for FAILURE_SHAPE."""
    return NodeFailure(
        finished_at=parse_whole_seconds(raw.get("finishedAt")),
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        exit_code=raw.get("exitCode"),
        attempts=raw.get("attempts") or 0,
        retry=raw.get("observedRetry") or "",
    )
