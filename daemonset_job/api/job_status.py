"""The status of a Job: parsed once when the Job is read, made JSON once when it is written.

A status is compared with the next one as a parsed value, never as JSON. The write is a merge patch
of the known fields that differ. So a field that only another version knows causes no write, and
stays. Times have whole seconds, as in JSON: a status is equal to itself after it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.node_totals import TOTALS_SHAPE, NodeTotals, parse_totals
from daemonset_job.api.rollback_status import (
    ROLLBACK_SHAPE,
    RollbackStatus,
    parse_rollback_status,
)
from daemonset_job.api.rollout_progress import (
    PROGRESS_SHAPE,
    RolloutProgress,
    parse_rollout_progress,
)
from daemonset_job.api.shape import NUMBER, STRING, TIME, ShapeError, fields, list_of
from daemonset_job.api.states import ConditionType, Phase, parse_phase
from daemonset_job.api.times import format_time, parse_whole_seconds

_CONDITION: Final = fields(
    type=STRING,
    status=STRING,
    reason=STRING,
    message=STRING,
    lastTransitionTime=TIME,
    observedGeneration=NUMBER,
)


def _named_condition(value: Any) -> None:
    _CONDITION(value)
    if not value.get("type"):
        raise ShapeError(value.get("type"), "the type of a condition")


CONDITIONS_SHAPE: Final = list_of(_named_condition)
STATUS_SHAPE: Final = fields(
    phase=STRING,
    observedGeneration=NUMBER,
    startTime=TIME,
    completionTime=TIME,
    nodes=TOTALS_SHAPE,
    completionToken=STRING,
    revision=STRING,
    observedRetry=STRING,
    observedRerun=STRING,
    report=STRING,
    progress=STRING,
    lowestProgress=STRING,
    rollout=PROGRESS_SHAPE,
    rollback=ROLLBACK_SHAPE,
    conditions=CONDITIONS_SHAPE,
)
_TRUTHS: Final = {"True": True, "False": False}
_TRUTH_WORDS: Final = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One metav1.Condition of a Job or of a JobReport.

    `type` is a ConditionType, or the text of a type that another program wrote. `status` is None
    for `Unknown`. `last_transition_time` is None only before the condition is part of a status.
    """

    type: str
    status: bool | None
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out."""
        raw: dict[str, Any] = {
            "type": str(self.type),
            "status": _TRUTH_WORDS[self.status],
            "reason": str(self.reason),
            "message": self.message,
        }
        if self.observed_generation:
            raw["observedGeneration"] = self.observed_generation
        if self.last_transition_time is not None:
            raw["lastTransitionTime"] = format_time(self.last_transition_time)
        return raw


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What the controller last wrote about a Job.

    `phase` is None before the first write, `start_time` until the Job starts. `nodes` is None until
    the number of desired nodes is known. `observed_generation` is 0 before the first write.
    `progress` is the mean of the tasks at work that print progress, such as "40%", and
    `lowest_progress` the node that has done least, such as "node-a 1/10".
    `completion_token` is the default at the start of a Job that names no token, for policy
    Continuous at the start of its `revision`. The last requests are `observed_retry` and
    `observed_rerun`, and `report` is the name of the run's first JobReport. Each of these is "" for
    none. `rollout` is None without a rollout, and `rollback` while the run is not rolled back.
    """

    phase: Phase | None = None
    observed_generation: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    nodes: NodeTotals | None = None
    completion_token: str = ""
    revision: str = ""
    observed_retry: str = ""
    observed_rerun: str = ""
    report: str = ""
    progress: str = ""
    lowest_progress: str = ""
    rollout: RolloutProgress | None = None
    rollback: RollbackStatus | None = None
    conditions: tuple[Condition, ...] = ()

    def condition(self, type_: ConditionType) -> Condition | None:
        """Return the condition of that type, None when it was never written."""
        return next((found for found in self.conditions if found.type == type_), None)

    def is_true(self, type_: ConditionType) -> bool:
        """Return whether the condition of that type exists and is True."""
        found = self.condition(type_)
        return found is not None and found.status is True

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; empty fields are left out."""
        raw = {
            "phase": str(self.phase or ""),
            "observedGeneration": self.observed_generation,
            "startTime": format_time(self.start_time) if self.start_time else "",
            "report": self.report,
            "completionToken": self.completion_token,
            "revision": self.revision,
            "conditions": [condition.to_raw() for condition in self.conditions],
            "nodes": self.nodes.to_raw() if self.nodes is not None else None,
            "progress": self.progress,
            "lowestProgress": self.lowest_progress,
            "rollout": self.rollout.to_raw() if self.rollout is not None else None,
            "rollback": self.rollback.to_raw() if self.rollback is not None else None,
            "observedRetry": self.observed_retry,
            "observedRerun": self.observed_rerun,
            "completionTime": format_time(self.completion_time) if self.completion_time else "",
        }
        return {key: value for key, value in raw.items() if value}


def parse_job_status(raw: Mapping[str, Any]) -> JobStatus:
    """Return the status in its raw form. Raises ShapeError, or ValueError for a time, if it is odd.

    A phase that this version does not know counts as none: the next write replaces it.
    """
    STATUS_SHAPE(raw)
    return JobStatus(
        phase=parse_phase(raw.get("phase")),
        observed_generation=raw.get("observedGeneration") or 0,
        start_time=parse_whole_seconds(raw.get("startTime")),
        completion_time=parse_whole_seconds(raw.get("completionTime")),
        nodes=parse_totals(raw.get("nodes")),
        completion_token=raw.get("completionToken") or "",
        revision=raw.get("revision") or "",
        observed_retry=raw.get("observedRetry") or "",
        observed_rerun=raw.get("observedRerun") or "",
        report=raw.get("report") or "",
        progress=raw.get("progress") or "",
        lowest_progress=raw.get("lowestProgress") or "",
        rollout=parse_rollout_progress(raw.get("rollout")),
        rollback=parse_rollback_status(raw.get("rollback")),
        conditions=parse_conditions(raw.get("conditions")),
    )


def parse_conditions(raw: Iterable[Mapping[str, Any]] | None) -> tuple[Condition, ...]:
    """Return the conditions in their raw form. Raises ValueError for an odd time."""
    return tuple(_parse_condition(each) for each in raw or ())


def _parse_condition(raw: Mapping[str, Any]) -> Condition:
    return Condition(
        type=raw["type"],
        status=_TRUTHS.get(raw.get("status") or ""),
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        observed_generation=raw.get("observedGeneration") or 0,
        last_transition_time=parse_whole_seconds(raw.get("lastTransitionTime")),
    )
