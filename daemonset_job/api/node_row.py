"""One node in `status.nodeList` of the report of a run that has ended: the list for tables.

`evidence` and `status.nodeStates` are maps, because each program changes single nodes in them.
`kubectl -o jsonpath` can only print a list as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.shape import NUMBER, STRING, STRINGS, TIME, fields
from daemonset_job.api.states import NodeState, parse_node_state
from daemonset_job.api.times import format_time, parse_whole_seconds

ROW_SHAPE: Final = fields(
    name=STRING,
    state=STRING,
    reason=STRING,
    attempts=NUMBER,
    exitCode=NUMBER,
    finishedAt=TIME,
    results=STRINGS,
)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """What a table shows of one node: its end as recorded, and the results of its task."""

    name: str
    state: NodeState
    reason: str = ""
    attempts: int = 0
    exit_code: int | None = None
    finished_at: datetime | None = None
    results: Mapping[str, str] = field(default_factory=dict)

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out."""
        raw = {
            "reason": self.reason,
            "attempts": self.attempts,
            "finishedAt": self.finished_at and format_time(self.finished_at),
            "results": dict(self.results),
        }
        row: dict[str, Any] = {"name": self.name, "state": str(self.state)}
        row.update({key: value for key, value in raw.items() if value})
        if self.exit_code is not None:
            row["exitCode"] = self.exit_code
        return row


def parse_row(raw: Mapping[str, Any]) -> NodeRow:
    """Return one node of the list. Never raises for ROW_SHAPE."""
    return NodeRow(
        name=raw.get("name") or "",
        state=parse_node_state(raw.get("state")),
        reason=raw.get("reason") or "",
        attempts=raw.get("attempts") or 0,
        exit_code=raw.get("exitCode"),
        finished_at=parse_whole_seconds(raw.get("finishedAt")),
        results=raw.get("results") or {},
    )
