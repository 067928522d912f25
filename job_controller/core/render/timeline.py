"""The timeline of a run: the last part of `kubectl describe` of a JobReport.

It is made from the records alone, never from the clock, so that making it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from daemonset_job.api.job_status import Condition
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import ConditionType, NodeState, Phase
from daemonset_job.api.times import format_time
from job_controller.core.text.fold_names import fold
from job_controller.core.text.sanitize import single_line

# Kinds of problems that are listed one by one; `status.nodeStates` has every node.
_PROBLEMS_LIMIT = 8
_NAMES_LIMIT = 160
_LINE_LIMIT = 400
_NOW = "now: "
_END_WORDS: Mapping[str, str] = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed"}


@dataclass(frozen=True, slots=True)
class _Line:
    """A sentence and its time; without a time it is about the present."""

    moment: datetime | None
    text: str


def build_timeline(
    summary: ReportStatus,
    records: Mapping[str, NodeRecord],
    conditions: Iterable[Condition] = (),
) -> list[str]:
    """Return the timeline of a run, a sentence each: "+8s node-7 failed: exit 2 after 4 attempts".

    `summary` is a report's status without its nodes, `conditions` are those of the Job. Times
    count from the start of the run, whose date is in the first sentence. Clocks of nodes and of the
    controller differ, so a time before the start is shown as the start. There are about twenty
    sentences at most, each of bounded length.
    """
    began, ended = summary.start_time, summary.completion_time
    if began is None:
        return []
    # A line about the present of a finished run gets the time of its end.
    lines = [
        _Line(max(line.moment, began), line.text) if line.moment else _Line(ended, line.text)
        for line in (
            *_progress_lines(records),
            *_problem_lines(records),
            *_alteration_lines(conditions),
            *_end_lines(summary),
        )
    ]
    lines.sort(key=lambda line: (line.moment is None, line.moment or began))
    desired = summary.nodes.desired if summary.nodes is not None else 0
    where = f" on {_nodes(desired)}" if desired else ""
    first = f"{format_time(began)} started{where}"
    return [first, *(single_line(_with_time(line, began), _LINE_LIMIT) for line in lines)]


def drop_current_lines(timeline: Iterable[str]) -> list[str]:
    """Return the timeline without its lines about the present."""
    return [line for line in timeline if not line.startswith(_NOW)]


def _with_time(line: _Line, began: datetime) -> str:
    if line.moment is None:
        return f"{_NOW}{line.text}"
    return f"+{_duration(int((line.moment - began).total_seconds()))} {line.text}"


def _progress_lines(records: Mapping[str, NodeRecord]) -> list[_Line]:
    done = sorted(
        (record.finished_at, name)
        for name, record in records.items()
        if record.state == NodeState.COMPLETED and record.finished_at
    )
    if not done:
        return []
    (first_at, first), (last_at, last) = done[0], done[-1]
    if len(done) == 1:
        return [_Line(first_at, f"{first} completed")]
    words = f"{last} completed, the last of {len(done)}"
    slowest = max(
        (r.duration_seconds, n) for n, r in records.items() if r.state == NodeState.COMPLETED
    )
    if slowest[0]:
        words += f"; the slowest was {slowest[1]}, {_duration(slowest[0])}"
    return [
        _Line(first_at, f"{first} completed, the first"),
        _Line(last_at, words),
    ]


def _problem_lines(records: Mapping[str, NodeRecord]) -> list[_Line]:
    """Return the problems, nodes with the same outcome together, the earliest first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, record in records.items():
        if outcome := _outcome(record):
            groups.setdefault(outcome, []).append(name)
    lines = []
    for (words, message), found in groups.items():
        finished = [at for name in found if (at := records[name].finished_at) is not None]
        has_time = records[found[0]].state in {NodeState.COMPLETED, NodeState.FAILED}
        moment = min(finished, default=None) if has_time else None
        detail = f": {message}" if message else ""
        lines.append(_Line(moment, f"{fold(found, limit=_NAMES_LIMIT)} {words}{detail}"))
    lines.sort(key=lambda line: (line.moment is None, str(line.moment), line.text))
    if len(lines) > _PROBLEMS_LIMIT:
        rest = len(lines) - _PROBLEMS_LIMIT
        lines[_PROBLEMS_LIMIT:] = [
            _Line(lines[_PROBLEMS_LIMIT].moment, f"and {rest} more, see nodeStates")
        ]
    return lines


def _alteration_lines(conditions: Iterable[Condition]) -> list[_Line]:
    """Return that another client changed the DaemonSet; the time is that of the first change."""
    return [
        _Line(condition.last_transition_time, condition.message)
        for condition in conditions
        if condition.type == ConditionType.ALTERED
    ]


def _outcome(record: NodeRecord) -> tuple[str, str] | None:
    """Return the outcome of a node and its message, None for a node without problems."""
    match record.state:
        case NodeState.FAILED:
            return "failed", record.message
        case NodeState.REMOVED:
            return "removed", record.message
        case NodeState.UNREACHABLE:
            return "unreachable", record.message
        case NodeState.COMPLETED if record.reason or record.attempts > 1:
            words = f"completed at attempt {record.attempts}" if not record.reason else "completed"
            return words, record.message
        case NodeState.WAITING | NodeState.ACTIVE if record.reason:
            return "not completed", record.message
    return None


def _end_lines(summary: ReportStatus) -> list[_Line]:
    phase, message, ended = summary.phase or "", summary.message, summary.completion_time
    if ended is None:
        return [_Line(None, f"{phase}: {message}")] if message else []
    words = _END_WORDS.get(phase, phase)
    return [_Line(ended, f"the run {words}: {message}")]


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _duration(seconds: int) -> str:
    """Return `seconds` as kubectl does: 45s, 12m30s, 3h5m."""
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 120:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if minutes else f"{hours}h"
