"""How many nodes of a run are in each state: `status.nodes` of a Job and of a JobReport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api.shape import NUMBER, STRING, fields

TOTALS_SHAPE: Final = fields(
    desired=NUMBER,
    waiting=NUMBER,
    active=NUMBER,
    completed=NUMBER,
    failed=NUMBER,
    unreachable=NUMBER,
    skipped=NUMBER,
    completedNames=STRING,
    failedNames=STRING,
    unreachableNames=STRING,
    skippedNames=STRING,
)


@dataclass(frozen=True, slots=True)
class NodeTotals:
    """The numbers of nodes, and the folded names of those that a person may look for.

    `skipped` nodes are selected and not desired: a taint keeps them out, they run Windows, or
    `spec.nodes.include` has their name and they do not exist.
    """

    desired: int = 0
    waiting: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    unreachable: int = 0
    skipped: int = 0
    completed_names: str = ""
    failed_names: str = ""
    unreachable_names: str = ""
    skipped_names: str = ""

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form: all numbers, and the names that there are."""
        names = {
            "completedNames": self.completed_names,
            "failedNames": self.failed_names,
            "unreachableNames": self.unreachable_names,
            "skippedNames": self.skipped_names,
        }
        return {
            "desired": self.desired,
            "waiting": self.waiting,
            "active": self.active,
            "completed": self.completed,
            "failed": self.failed,
            "unreachable": self.unreachable,
            **({"skipped": self.skipped} if self.skipped else {}),
            **{key: text for key, text in names.items() if text},
        }


def parse_totals(raw: Mapping[str, Any] | None) -> NodeTotals | None:
    """Return the numbers in a raw status, None without any. Never raises for TOTALS_SHAPE."""
    if raw is None:
        return None
    return NodeTotals(
        desired=raw.get("desired") or 0,
        waiting=raw.get("waiting") or 0,
        active=raw.get("active") or 0,
        completed=raw.get("completed") or 0,
        failed=raw.get("failed") or 0,
        unreachable=raw.get("unreachable") or 0,
        skipped=raw.get("skipped") or 0,
        completed_names=raw.get("completedNames") or "",
        failed_names=raw.get("failedNames") or "",
        unreachable_names=raw.get("unreachableNames") or "",
        skipped_names=raw.get("skippedNames") or "",
    )
