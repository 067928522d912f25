"""The screen of `kubectl dsjob status`: one run as plain lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from textwrap import wrap
from typing import Final

from daemonset_job.api.fold_names import fold
from daemonset_job.api.reasons import FailedReason, SuspendedReason
from daemonset_job.api.states import NodeState, Phase
from kubectl_dsjob.hints import hint_lines
from kubectl_dsjob.rollback_view import rollback_lines, rollback_step
from kubectl_dsjob.run_view import NodeView, RunView
from kubectl_dsjob.tables import age, duration, shorten

FAILURES_SHOWN: Final = 10
_LEAST_WIDTH: Final = 20
_MESSAGE_LINES: Final = 6
# Characters of the names of nodes that have failed alike.
_NAMES_LIMIT: Final = 30


def status_screen(view: RunView, now: datetime, *, width: int, flags: str = "") -> str:
    """Return the state of a run, at most `width` columns wide; `flags` repeat the user's options.

    Commands are never cut: a line that is to be copied may be wider.
    """
    width = max(width, _LEAST_WIDTH)
    lines = [
        shorten(f"{view.name}: {view.phase_text}{time_text(view, now)}", width),
        shorten(counts_text(view), width),
        *([shorten(view.batch, width)] if view.batch else []),
    ]
    if view.message or view.reason:
        text = ": ".join(filter(None, (view.reason, view.message)))
        lines += [shorten(line, width) for line in wrap(text, width)[:_MESSAGE_LINES]]
    lines += failure_lines(view.failed, width)
    lines += set_aside_lines(view.set_aside, width)
    lines += rollback_lines(view.rollback, width)
    lines += next_step(view, flags)
    return "\n".join(lines)


def progress_line(view: RunView) -> str:
    """Return the progress of a run in one line, for output that is not a terminal."""
    unseen = "waits for the controller" if view.is_unseen else ""
    asked = view.pause or view.waits_for or view.trouble or unseen
    waits = f": {asked}" if asked else ""
    rollback = f"; rollback: {view.rollback.line}" if view.rollback else ""
    return f"{view.name}: {view.phase_text}, {counts_text(view)}{waits}{rollback}"


def failure_lines(nodes: Sequence[NodeView], width: int) -> list[str]:
    """Return the failures with their last line; equal ones once, with the names of their nodes."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(_failure(node), []).append(node.name)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0]))
    lines = [
        shorten(f"  {_fold(found, min(_NAMES_LIMIT, width // 3), width // 2)}: {text}", width)
        for text, found in ordered[:FAILURES_SHOWN]
    ]
    left = sum(len(found) for _, found in ordered[FAILURES_SHOWN:])
    return [
        *(["failed nodes:"] if lines else []),
        *lines,
        *([f"  and {left} more"] if left else []),
    ]


def set_aside_lines(names: Sequence[str], width: int) -> list[str]:
    """Return which unreachable nodes the run does not wait for."""
    if not names:
        return []
    them = "it" if len(names) == 1 else "them"
    end = f": unreachable, the run does not wait for {them}"
    limit = max(width - len(end) - 11, _NAMES_LIMIT)
    found = _fold(names, limit, limit)
    return [shorten(f"set aside: {found}{end}", width)]


def _fold(names: Sequence[str], limit: int, first_limit: int) -> str:
    """Return the names folded, in `limit` characters, or the first one in up to `first_limit`.

    Names of nodes may be long, as `ip-10-0-123-45.eu-central-1.compute.internal`.
    """
    folded = fold(names, limit=limit)
    if folded != f"{len(names)} nodes":
        return folded
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return shorten(min(names), max(first_limit, limit) - len(more)) + more


def next_step(view: RunView, flags: str = "") -> list[str]:
    """Return what mostly helps, what the run waits for, and the command that answers."""
    return [*hint_lines(view), *_asked_step(view, flags)]


def _asked_step(view: RunView, flags: str) -> list[str]:
    """Return what the run waits for, and the command that answers; nothing if it goes on."""
    if view.is_going or not (view.exists or view.is_ended):
        is_deleted = "the Job is deleted, and the controller has not yet recorded how the run ended"
        is_going = "the Job is being deleted: no request is acted on any more"
        return [is_going if view.exists else is_deleted]
    command = f"kubectl dsjob {{}} {{}} -n {view.namespace}{flags}"
    if view.exists and view.rollback and view.rollback.is_possible:
        return rollback_step(view.rollback, command, view.name)
    if view.exists and view.is_aborted:
        return _aborted_step(view, command, flags)
    is_checked = view.phase == Phase.FAILED and view.reason == FailedReason.CHECK_FAILED
    if view.exists and is_checked and not view.is_suspended:
        return _retry_step(view, command, "a retry, which checks the step again")
    is_limit = view.reason == FailedReason.MAX_FAILED_NODES_EXCEEDED
    is_away = view.exists and view.phase == Phase.FAILED and is_limit
    if (found := _open_step(view, command, flags)) or not is_away:
        return found
    words = "a retry, once the nodes that were unreachable are back"
    return _retry_step(view, command, words)


def _open_step(view: RunView, command: str, flags: str) -> list[str]:
    """Return the next step of a run that nobody has ended, or of its report."""
    if held := _holds(view, command, flags):
        return held
    asks = [f"waits for you: {view.waits_for}"] if view.waits_for and not view.is_ended else []
    if asks and not view.pause:
        return asks
    then = [f"then {line}" for line in asks]
    failed = [node for node in view.nodes if node.state == NodeState.FAILED] or view.totals.failed
    if view.exists and failed and _waits_for_retry(view):
        retry = command.format("retry --failed", view.name)
        undo = command.format("rollback", view.name) + " --reason TEXT"
        return [
            "waits for: a retry of the failed nodes" + (", or a rollback" if view.has_undo else ""),
            f"  {retry}",
            *([f"  {undo}"] if view.has_undo else []),
            *then,
        ]
    if view.pause:
        return [f"waits for you: {view.pause}", *then]
    if not view.exists and view.is_ended:
        way = command.format("report", view.name)
        return ["the Job is deleted, this is its report", f"  {way}"]
    return []


def _retry_step(view: RunView, command: str, retry: str) -> list[str]:
    """Return what is left to do after a failed run; `retry` says what a retry is for."""
    undo = command.format("rollback", view.name) + " --reason TEXT"
    return [
        f"waits for: {retry}" + (", or a rollback" if view.has_undo else ""),
        f"  {command.format('retry', view.name)}",
        *([f"  {undo}"] if view.has_undo else []),
    ]


def _holds(view: RunView, command: str, flags: str) -> list[str]:
    """Return what holds a run up, other than its nodes; [] for nothing.

    It is suspended, all Jobs are stopped, or no controller has seen it.
    """
    is_stopped = view.pause_reason == SuspendedReason.CLUSTER_STOPPED
    lines = [f"waits: {view.pause}"] if is_stopped else []
    # A run of policy Continuous, which has a revision, has no end.
    if view.is_suspended and (view.phase != Phase.SUCCEEDED or view.revision):
        way = command.format("resume", view.name)
        lines += ["waits for: you, because it is suspended", f"  {way}"]
    elif view.is_unseen:
        way = f"  kubectl dsjob doctor -n {view.namespace}{flags}"
        lines += ["waits for: the controller, which has not seen the Job yet", way]
    return lines


def _waits_for_retry(view: RunView) -> bool:
    """Return whether a retry of its failed nodes is what lets the run go on, and nothing else."""
    if view.phase != Phase.PAUSED:
        return view.phase == Phase.FAILED
    return view.pause_reason != SuspendedReason.CHECK_FAILED and not view.totals.unreachable


def _aborted_step(view: RunView, command: str, flags: str) -> list[str]:
    """Return what is left to do after an abort: a rollback, or to delete the Job."""
    undo = command.format("rollback", view.name) + " --reason TEXT"
    return [
        "no retry revives it: delete the Job" + (", or roll it back" if view.has_undo else ""),
        f"  kubectl delete dsj {view.name} -n {view.namespace}{flags}",
        *([f"  {undo}"] if view.has_undo else []),
    ]


def counts_text(view: RunView) -> str:
    """Return the numbers of nodes in each state."""
    totals = view.totals
    others = {
        "active": totals.active,
        "waiting": totals.waiting,
        "failed": totals.failed,
        "unreachable": totals.unreachable,
        "skipped": totals.skipped,
    }
    parts = [f"{totals.completed} of {totals.desired} nodes completed"]
    return ", ".join([*parts, *(f"{count} {word}" for word, count in others.items() if count)])


def time_text(view: RunView, now: datetime) -> str:
    """Return how long the run has taken, or is paused; "" before its start, or if unknown."""
    if view.started_at is None:
        return ""
    if view.phase == Phase.PAUSED:
        return f" since {age(view.paused_at, now)}" if view.paused_at is not None else ""
    if view.completed_at is not None:
        return f" after {duration((view.completed_at - view.started_at).total_seconds())}"
    return f" since {age(view.started_at, now)}"


def _failure(node: NodeView) -> str:
    code = f"exit {node.exit_code}: " if node.exit_code is not None and node.last_lines else ""
    return f"{code}{node.last_line or node.reason or 'no reason is known'}"
