"""One event of a run, in `status.history` of the first shard of its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.shape import STRING, TIME, fields
from daemonset_job.api.times import format_time, parse_whole_seconds

ENTRY_SHAPE: Final = fields(time=TIME, reason=STRING, message=STRING, by=STRING)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What happened to a run, when, and which client requested it.

    `reason` is a HistoryReason, or the text of one that another version wrote. `time` is by the
    controller's clock, in whole seconds. `by` is the client's field manager, "" if none is known.
    """

    time: datetime | None
    reason: str
    message: str = ""
    by: str = ""

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out, but for the reason."""
        raw = {
            "time": self.time and format_time(self.time),
            "message": self.message,
            "by": self.by,
        }
        kept = {key: value for key, value in raw.items() if value}
        return {**kept, "reason": str(self.reason)}


def parse_entry(raw: Mapping[str, Any]) -> HistoryEntry:
    """Return one entry. Never raises for ENTRY_SHAPE."""
    return HistoryEntry(
        time=parse_whole_seconds(raw.get("time")),
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        by=raw.get("by") or "",
    )
