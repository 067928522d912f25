"""How far the task on one node has come, as it prints it: an entry of the ledger has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api.shape import NUMBER, STRING, fields

PROGRESS_SHAPE: Final = fields(podUID=STRING, attempt=NUMBER, done=NUMBER, total=NUMBER)


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of one attempt, counted from 1, in one pod: 0 <= done <= total, total > 0."""

    pod_uid: str
    attempt: int
    done: int
    total: int

    def __str__(self) -> str:
        """Return it as the task printed it: "3/10"."""
        return f"{self.done}/{self.total}"

    @property
    def share(self) -> float:
        """The part that is done, from 0 to 1."""
        return self.done / self.total

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; all fields are there, so that a merge patch replaces all."""
        return {
            "podUID": self.pod_uid,
            "attempt": self.attempt,
            "done": self.done,
            "total": self.total,
        }


def parse_progress(raw: Mapping[str, Any] | None) -> TaskProgress | None:
    """Return the progress in its raw form, None without one that makes sense."""
    if not raw:
        return None
    done, total = raw.get("done") or 0, raw.get("total") or 0
    if not 0 <= done <= total or not total:
        return None
    return TaskProgress(raw.get("podUID") or "", raw.get("attempt") or 0, done, total)
