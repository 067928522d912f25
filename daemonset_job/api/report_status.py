"""The controller's half of a JobReport: parsed once when it is read, made JSON once when written.

As with the status of a Job, two of them are compared as parsed values: see `job_status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.history_entry import ENTRY_SHAPE, HistoryEntry, parse_entry
from daemonset_job.api.job_status import CONDITIONS_SHAPE, Condition, parse_conditions
from daemonset_job.api.node_record import RECORD_SHAPE, NodeRecord, parse_record
from daemonset_job.api.node_row import ROW_SHAPE, NodeRow, parse_row
from daemonset_job.api.node_totals import TOTALS_SHAPE, NodeTotals, parse_totals
from daemonset_job.api.notifications import (
    DELIVERY_SHAPE,
    Delivery,
    Occurrence,
    find_due,
    find_occurrences,
    parse_delivery,
)
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
from daemonset_job.api.shape import NUMBER, STRING, TIME, fields, list_of, map_of
from daemonset_job.api.states import Phase, parse_phase
from daemonset_job.api.times import format_time, parse_whole_seconds

REPORT_STATUS_SHAPE: Final = fields(
    phase=STRING,
    jobGeneration=NUMBER,
    observedRetry=STRING,
    observedRerun=STRING,
    startTime=TIME,
    completionTime=TIME,
    nodes=TOTALS_SHAPE,
    durationSeconds=NUMBER,
    message=STRING,
    timeline=list_of(STRING),
    history=list_of(ENTRY_SHAPE),
    omittedHistory=NUMBER,
    mayHaveBegunOn=STRING,
    conditions=CONDITIONS_SHAPE,
    notifications=map_of(DELIVERY_SHAPE),
    rollout=PROGRESS_SHAPE,
    rollback=ROLLBACK_SHAPE,
    nodeList=list_of(ROW_SHAPE),
    nodeStates=map_of(RECORD_SHAPE),
)


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """The record of a run, or of one shard's part of it.

    Only the first shard has more than `node_states` and `node_list`. `job_generation` is None in a
    report that does not say it. `observed_retry` and `observed_rerun` are the Job's last requests,
    "" for none. `history` is what happened to the run, the newest last; `omitted_history` counts
    the entries that were left out of its middle. `notifications` has what each receiver was
    notified of, by its name. `rollout` and `rollback` are as in the Job's status. `node_list` is
    that of an ended run, for tables. `may_have_begun_on` is the node of a pod that is gone and may
    have started its task, "" while nothing depends on it. Times have whole seconds.
    """

    phase: Phase | None = None
    job_generation: int | None = None
    observed_retry: str = ""
    observed_rerun: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    nodes: NodeTotals | None = None
    message: str = ""
    timeline: tuple[str, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    omitted_history: int = 0
    may_have_begun_on: str = ""
    conditions: tuple[Condition, ...] = ()
    notifications: Mapping[str, Delivery] = field(default_factory=dict)
    rollout: RolloutProgress | None = None
    rollback: RollbackStatus | None = None
    node_list: tuple[NodeRow, ...] = ()
    node_states: Mapping[str, NodeRecord] = field(default_factory=dict)

    @property
    def duration_seconds(self) -> int | None:
        """Whole seconds from start to end, None before the end."""
        if self.start_time is None or self.completion_time is None:
            return None
        return max(int((self.completion_time - self.start_time).total_seconds()), 0)

    def due_notifications(self, receiver: str) -> list[Occurrence]:
        """Return what a receiver is yet to be notified of, the oldest first."""
        delivery = self.notifications.get(receiver)
        if delivery is None:
            return []
        return find_due(delivery, find_occurrences(self.start_time, self.history))

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out, nodes are in order of their names."""
        raw = {
            "phase": self.phase,
            "jobGeneration": self.job_generation,
            "observedRetry": self.observed_retry or None,
            "observedRerun": self.observed_rerun or None,
            "startTime": self.start_time and format_time(self.start_time),
            "completionTime": self.completion_time and format_time(self.completion_time),
            "nodes": self.nodes and self.nodes.to_raw(),
            "durationSeconds": self.duration_seconds,
            "message": self.message or None,
            "timeline": list(self.timeline) or None,
            "history": [entry.to_raw() for entry in self.history] or None,
            "omittedHistory": self.omitted_history or None,
            "mayHaveBegunOn": self.may_have_begun_on or None,
            "conditions": [condition.to_raw() for condition in self.conditions] or None,
            "notifications": {
                name: self.notifications[name].to_raw() for name in sorted(self.notifications)
            }
            or None,
            "rollout": self.rollout and self.rollout.to_raw(),
            "rollback": self.rollback and self.rollback.to_raw(),
            "nodeList": [row.to_raw() for row in self.node_list] or None,
            "nodeStates": {
                name: self.node_states[name].to_raw() for name in sorted(self.node_states)
            }
            or None,
        }
        return {key: value for key, value in raw.items() if value is not None}


def parse_report_status(raw: Mapping[str, Any]) -> ReportStatus:
    """Return the status in its raw form. Raises ShapeError, or ValueError for a time, if it is odd.

    A phase that this version does not know counts as none.
    """
    REPORT_STATUS_SHAPE(raw)
    return ReportStatus(
        phase=parse_phase(raw.get("phase")),
        job_generation=raw.get("jobGeneration"),
        start_time=parse_whole_seconds(raw.get("startTime")),
        completion_time=parse_whole_seconds(raw.get("completionTime")),
        nodes=parse_totals(raw.get("nodes")),
        message=raw.get("message") or "",
        observed_retry=raw.get("observedRetry") or "",
        observed_rerun=raw.get("observedRerun") or "",
        timeline=tuple(raw.get("timeline") or ()),
        history=tuple(parse_entry(entry) for entry in raw.get("history") or ()),
        omitted_history=raw.get("omittedHistory") or 0,
        may_have_begun_on=raw.get("mayHaveBegunOn") or "",
        conditions=parse_conditions(raw.get("conditions")),
        notifications={
            name: parse_delivery(entry) for name, entry in (raw.get("notifications") or {}).items()
        },
        rollout=parse_rollout_progress(raw.get("rollout")),
        rollback=parse_rollback_status(raw.get("rollback")),
        node_list=tuple(parse_row(row) for row in raw.get("nodeList") or ()),
        node_states={
            name: parse_record(entry) for name, entry in (raw.get("nodeStates") or {}).items()
        },
    )
