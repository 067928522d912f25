"""How far the rollback of a run is: `status.rollback` of a Job and of its first JobReport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.shape import NUMBER, STRING, TIME, fields, list_of
from daemonset_job.api.times import format_time, parse_whole_seconds

ROLLBACK_SHAPE: Final = fields(
    jobs=list_of(STRING),
    reports=list_of(STRING),
    desired=NUMBER,
    completed=NUMBER,
    failed=NUMBER,
    unreachable=NUMBER,
    completedNames=STRING,
    failedNames=STRING,
    unreachableNames=STRING,
    startTime=TIME,
    completionTime=TIME,
    message=STRING,
    requestedBy=STRING,
)


@dataclass(frozen=True, slots=True)
class RollbackStatus:
    """The Jobs that roll a run back, with their reports, and what became of the nodes.

    `desired` nodes are those whose task has started. `unreachable` are those that are not rolled
    back because no pod can be there: away, tainted, or gone. Names are folded. `start_time` is None
    until the first of the Jobs can be created, and `completion_time` until the rollback has ended.
    `requested_by` is the client that asked for it, "" if the failure policy did.
    """

    jobs: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    desired: int = 0
    completed: int = 0
    failed: int = 0
    unreachable: int = 0
    completed_names: str = ""
    failed_names: str = ""
    unreachable_names: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    message: str = ""
    requested_by: str = ""

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form: all numbers, and what else there is."""
        raw = {
            "jobs": list(self.jobs),
            "reports": list(self.reports),
            "completedNames": self.completed_names,
            "failedNames": self.failed_names,
            "unreachableNames": self.unreachable_names,
            "startTime": self.start_time and format_time(self.start_time),
            "completionTime": self.completion_time and format_time(self.completion_time),
            "message": self.message,
            "requestedBy": self.requested_by,
        }
        return {
            "desired": self.desired,
            "completed": self.completed,
            "failed": self.failed,
            "unreachable": self.unreachable,
            **{key: value for key, value in raw.items() if value},
        }


def parse_rollback_status(raw: Mapping[str, Any] | None) -> RollbackStatus | None:
    """Return it from its raw form, None without one. Never raises for ROLLBACK_SHAPE."""
    if raw is None:
        return None
    return RollbackStatus(
        jobs=tuple(raw.get("jobs") or ()),
        reports=tuple(raw.get("reports") or ()),
        desired=raw.get("desired") or 0,
        completed=raw.get("completed") or 0,
        failed=raw.get("failed") or 0,
        unreachable=raw.get("unreachable") or 0,
        completed_names=raw.get("completedNames") or "",
        failed_names=raw.get("failedNames") or "",
        unreachable_names=raw.get("unreachableNames") or "",
        start_time=parse_whole_seconds(raw.get("startTime")),
        completion_time=parse_whole_seconds(raw.get("completionTime")),
        message=raw.get("message") or "",
        requested_by=raw.get("requestedBy") or "",
    )
