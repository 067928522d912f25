"""The timeline of a run: the last part of `kubectl describe` of a JobReport.

It is made from the records alone, never from the clock, so that making it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from daemonset_job.api.fold_names import fold
from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.job_status import Condition
from daemonset_job.api.names import shorten
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import HistoryReason
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import ConditionType, NodeState, Phase
from daemonset_job.api.times import format_time
from job_controller.core.render.node_failures import RETRY_LIMIT
from job_controller.core.state.due_again import has_left
from job_controller.core.text.sanitize import single_line

# Kinds of problems that are listed one by one; `status.nodeStates` has every node.
_PROBLEMS_LIMIT = 8
# Entries of the history that are listed; `status.history` has all that are kept.
_FIRST_ENTRIES, _NEWEST_ENTRIES = 2, 8
_NAMES_LIMIT = 160
_LINE_LIMIT = 400
_NOW = "now: "
_COMPLETED = "completed"
_END_WORDS: Mapping[str, str] = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed"}
_END_VERBS: Mapping[str, str] = {
    HistoryReason.COMPLETED: "succeeded",
    HistoryReason.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A sentence and its time; without a time it is about the present."""

    moment: datetime | None
    text: str


def build_timeline(
    summary: ReportStatus,
    records: Mapping[str, NodeRecord],
    conditions: Iterable[Condition] = (),
    before: ReportStatus | None = None,
) -> list[str]:
    """Return the timeline of a run, a sentence each: "+8s node-7 failed: exit 2 after 4 attempts".

    `summary` is a report's status without its nodes, `conditions` are those of the Job. `before` is
    the report's present status: on how many nodes the run started does not change. Times count
    from the start of the run, whose date is in the first sentence. Clocks of nodes and of the
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
            *_change_lines(records),
            *_problem_lines(records),
            *_set_aside_lines(records),
            *_history_lines(summary),
            *_alteration_lines(summary, conditions),
            *_end_lines(summary),
        )
    ]
    lines.sort(key=lambda line: (line.moment is None, line.moment or began))
    first = _first_line(summary, began, before)
    return [first, *(single_line(_with_time(line, began), _LINE_LIMIT) for line in lines)]


def _first_line(summary: ReportStatus, began: datetime, before: ReportStatus | None) -> str:
    """Return when the run started, and on how many nodes; nodes that join later do not count."""
    start = f"{format_time(began)} started"
    for line in before.timeline[:1] if before is not None else ():
        if line.startswith(f"{start} on "):
            return line
    desired = summary.nodes.desired if summary.nodes is not None else 0
    return f"{start} on {_nodes(desired)}" if desired else start


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


def _change_lines(records: Mapping[str, NodeRecord]) -> list[_Line]:
    """Return when the last completed node was changed, and how many were."""
    times = [r.node_changed_at for r in records.values() if r.node_changed_at is not None]
    if not times:
        return []
    return [_Line(max(times), f"{_nodes(len(times))} changed as spec.onSuccess and results say")]


def _problem_lines(records: Mapping[str, NodeRecord]) -> list[_Line]:
    """Return the problems, nodes with the same outcome of one try together, the earliest first."""
    groups: dict[tuple[str, str, str], list[tuple[str, datetime | None]]] = {}
    for name, record in records.items():
        for failure in record.failures:
            key = "failed", failure.message, failure.retry
            groups.setdefault(key, []).append((name, failure.finished_at))
        if outcome := _outcome(record):
            is_over = record.state in {NodeState.COMPLETED, NodeState.FAILED}
            has_time = is_over and not has_left(record)
            retry = shorten(record.retry, RETRY_LIMIT) if record.state == NodeState.FAILED else ""
            moment = record.finished_at if has_time else None
            groups.setdefault((*outcome, retry), []).append((name, moment))
    lines = []
    for (words, message, _), found in groups.items():
        times = [at for _, at in found if at is not None]
        # Nodes fail from the first one on, and have completed with the last one.
        moment = (max if words.startswith(_COMPLETED) else min)(times, default=None)
        detail = f": {message}" if message else ""
        nodes = fold((name for name, _ in found), limit=_NAMES_LIMIT)
        lines.append(_Line(moment, f"{nodes} {words}{detail}"))
    lines.sort(key=lambda line: (line.moment is None, str(line.moment), line.text))
    if len(lines) > _PROBLEMS_LIMIT:
        rest = len(lines) - _PROBLEMS_LIMIT
        lines[_PROBLEMS_LIMIT:] = [
            _Line(lines[_PROBLEMS_LIMIT].moment, f"and {rest} more, see nodeStates")
        ]
    return lines


def _set_aside_lines(records: Mapping[str, NodeRecord]) -> list[_Line]:
    """Return which nodes are set aside, with the time of the last one."""
    found = {
        name: record.set_aside_at
        for name, record in records.items()
        if record.set_aside_at is not None and record.state == NodeState.UNREACHABLE
    }
    if not found:
        return []
    them = "it" if len(found) == 1 else "them"
    words = f"{fold(found, limit=_NAMES_LIMIT)} set aside: the run does not wait for {them}"
    return [_Line(max(found.values()), words)]


def _history_lines(summary: ReportStatus) -> list[_Line]:
    """Return what happened to the run, but for its present end, which has a line of its own."""
    entries = list(summary.history)
    if summary.completion_time is not None:
        ends = [n for n, entry in enumerate(entries) if entry.reason in _END_VERBS]
        if ends:
            del entries[ends[-1]]
    lines = [_Line(entry.time, _entry_words(entry)) for entry in entries]
    excess = len(lines) - _FIRST_ENTRIES - _NEWEST_ENTRIES
    if excess > 0:
        count = excess + summary.omitted_history
        words = f"{count} more {'entry' if count == 1 else 'entries'}, see history"
        left_out = slice(_FIRST_ENTRIES, _FIRST_ENTRIES + excess)
        lines[left_out] = [_Line(lines[_FIRST_ENTRIES].moment, words)]
    return lines


def _entry_words(entry: HistoryEntry) -> str:
    by = f" (by {entry.by})" if entry.by else ""
    verb = _END_VERBS.get(entry.reason)
    if verb is not None:
        return f"the run {verb}: {entry.message}"
    if entry.reason in {HistoryReason.PAUSED, HistoryReason.WAITING_FOR_APPROVAL}:
        return f"paused{by}: {entry.message}"
    return f"{entry.message}{by}"


def _alteration_lines(summary: ReportStatus, conditions: Iterable[Condition]) -> list[_Line]:
    """Return that another client changed the DaemonSet, for a report that had no history then."""
    if any(entry.reason == HistoryReason.DAEMON_SET_ALTERED for entry in summary.history):
        return []
    return [
        _Line(condition.last_transition_time, condition.message)
        for condition in conditions
        if condition.type == ConditionType.ALTERED
    ]


def _outcome(record: NodeRecord) -> tuple[str, str] | None:
    """Return the outcome of a node and its message, None for a node without problems."""
    match record.state:
        case NodeState.COMPLETED if has_left(record):
            return "left the selection, still counted as completed", record.message
        case NodeState.FAILED | NodeState.REMOVED | NodeState.UNREACHABLE:
            return record.state.lower(), record.message
        case NodeState.COMPLETED if record.reason or record.attempts > 1:
            words = (
                f"{_COMPLETED} at attempt {record.attempts}" if not record.reason else _COMPLETED
            )
            return words, record.message
        case NodeState.WAITING | NodeState.ACTIVE if record.reason:
            return "not completed", record.message
    return None


def _end_lines(summary: ReportStatus) -> list[_Line]:
    phase, message, ended = summary.phase or "", summary.message, summary.completion_time
    if ended is None:
        return [_Line(None, f"{phase}: {message}")] if message else []
    words = _END_WORDS.get(phase, phase)
    if phase == Phase.SUCCEEDED:
        # What happens to nodes after that has lines of its own. A failed run's message, in
        # contrast, counts the nodes that were still at work.
        ends = [each for each in summary.history if each.reason == HistoryReason.COMPLETED]
        message = ends[-1].message if ends else message
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
