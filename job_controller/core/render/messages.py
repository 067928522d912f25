"""Messages about the run for conditions, events and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.reasons import CompleteReason, FailedReason, ProgressingReason
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import add_seconds
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.failure_budget import allowed_unreachable
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.core.state.skipped_nodes import describe_skipped
from job_controller.core.text.commands import plugin_command
from job_controller.core.text.sanitize import single_line

# Reasons of failures that are listed; the report has that of each node.
_LISTED_PROBLEMS = 3
_TOKEN_HINT_SECONDS = 60
# metav1.Condition takes 32,768 characters; this much is readable.
_MESSAGE_LIMIT = 900


def with_message(run: RunState, counts: NodeCounts, job: Job) -> RunState:
    """Return the run state with the message for its reason, unless it is recorded already."""
    if not run.reason or run.message:
        return run
    if run.reason == FailedReason.MAX_FAILED_NODES_EXCEEDED:
        away = allowed_unreachable(job, counts)
        message = failure_message(counts, run.allowed, away)
        if run.outcome == RunOutcome.PAUSED:
            message += f"; {_pause_answer(counts, job, run.allowed, away)}"
    elif run.reason == FailedReason.DEADLINE_EXCEEDED:
        message = _deadline_message(counts, job)
    elif run.reason == CompleteReason.MIN_COMPLETED_REACHED:
        rest = counts.names(NodeState.WAITING, NodeState.ACTIVE)
        named = [fold(rest, limit=200)] if rest else []
        unnamed = [f"{counts.missing} without a pod"] if counts.missing else []
        words = f"; not started, since minCompleted is reached: {', '.join(named + unnamed)}"
        message = progress_message(counts) + (words if named or unnamed else "")
    else:
        message = progress_message(counts)
    return replace(run, message=message)


def progress_message(counts: NodeCounts) -> str:
    """Return "2 of 3 nodes completed", and the failed, unreachable and skipped nodes."""
    text = f"{len(counts.names(NodeState.COMPLETED))} of {counts.desired} nodes completed"
    skipped = f"; {describe_skipped(counts.skipped)}" if counts.skipped else ""
    return text + _problem_suffix(counts) + skipped


def active_message(counts: NodeCounts, job: Job, now: datetime) -> str:
    """Return the message of a run at work; after a minute without a token also what it waits for.

    The most common first mistake is a task that does its work and never prints the token.
    """
    words = progress_message(counts)
    due_at = token_hint_at(counts, job)
    if due_at is None or now < due_at:
        return words
    token = single_line(job.completion_token, 60)
    how = (
        f"prints the line '{token}'" if job.spec.completion.match == "Line" else "prints the token"
    )
    return f"{words}; a node is completed once its task {how} (spec.completion)"


def token_hint_at(counts: NodeCounts, job: Job) -> datetime | None:
    """Return when the message says what completes a node, None if it does not.

    A script prints no token: the task image does.
    """
    is_log = job.spec.completion.mode == CompletionMode.LOG
    if not is_log or job.spec.has_script or job.status.start_time is None:
        return None
    if counts.names(NodeState.COMPLETED) or not counts.names(NodeState.ACTIVE):
        return None
    return add_seconds(job.status.start_time, _TOKEN_HINT_SECONDS)


def completed_message(counts: NodeCounts, run: RunState, blocker: Blocker | None) -> str:
    """Return the message of a run that has succeeded: the counts as they are now.

    A Job that is kept serves nodes that join later. Its condition `Complete` says how the run
    ended. `blocker` is what keeps a later node from its work or its changes, None for nothing.
    """
    if not counts.is_exact and blocker is None:
        return run.message
    words = progress_message(counts)
    if failed := counts.names(NodeState.FAILED):
        words += f": {_describe_failures(counts, failed)}"
    if blocker is None or (
        counts.is_complete and blocker.reason != ProgressingReason.NODE_CHANGE_REFUSED
    ):
        return words
    return f"{words}; {blocker.message}"


def failure_message(counts: NodeCounts, allowed: int, away: int | None = None) -> str:
    """Return the message of a run that failed or is paused because of its nodes.

    `allowed` nodes may fail, and `away` may be unreachable, None if these count as failed.
    """
    failed, unreachable = counts.names(NodeState.FAILED), counts.names(NodeState.UNREACHABLE)
    parts = []
    if failed:
        problems = _describe_failures(counts, failed)
        parts.append(f"{len(failed)} of {counts.desired} nodes failed: {problems}")
    if unreachable:
        parts.append(f"{len(unreachable)} unreachable ({fold(unreachable, limit=200)})")
    limits = [f"maxFailedNodes allows {allowed}"] if allowed else []
    if away is not None and unreachable:
        limits.append(f"maxUnreachableNodes allows {away}")
    limit = f" ({', '.join(limits)})" if limits else ""
    return "; ".join(parts)[:_MESSAGE_LIMIT] + limit


def _pause_answer(counts: NodeCounts, job: Job, allowed: int, away: int | None) -> str:
    """Return what lets a run go on that is paused because of its nodes; see `failure_message`.

    Only what is over its limit keeps it paused.
    """
    failed = len(counts.names(NodeState.FAILED))
    unreachable = len(counts.names(NodeState.UNREACHABLE))
    is_by_failed = failed > (0 if away is None else allowed)
    is_by_away = unreachable > (allowed if away is None else away)
    answers = []
    if is_by_failed:
        answers.append(f"{plugin_command('retry --failed', job)} tries the failed nodes again")
    if is_by_away:
        which = "the unreachable" if failed else "these"
        answers.append(f"it goes on when {which} nodes are back")
    limits = ["maxFailedNodes"] if away is None or is_by_failed else []
    limits += ["maxUnreachableNodes"] if away is not None and is_by_away else []
    a, verb = ("a ", "lets") if len(limits) == 1 else ("", "let")
    higher = f"{a}higher spec.failurePolicy.{' and '.join(limits)} {verb} the others go on"
    return f"{', '.join(answers)}, and {higher}"


def _describe_failures(counts: NodeCounts, failed: Sequence[str]) -> str:
    """Return why nodes failed, each reason once: "a,b exit 2 after 3 attempts; c not pulled"."""
    nodes_by_problem: dict[str, list[str]] = {}
    for name in failed:
        nodes_by_problem.setdefault(counts.record(name).message, []).append(name)
    groups = list(nodes_by_problem.items())
    problems = "; ".join(
        f"{fold(found, limit=200)} {problem}" for problem, found in groups[:_LISTED_PROBLEMS]
    )
    others = [name for _, found in groups[_LISTED_PROBLEMS:] for name in found]
    return f"{problems}; and {fold(others, limit=200)}" if others else problems


def _deadline_message(counts: NodeCounts, job: Job) -> str:
    done, seconds = len(counts.names(NodeState.COMPLETED)), job.spec.active_deadline_seconds
    return f"{done} of {counts.desired} nodes completed within activeDeadlineSeconds ({seconds} s)"


def _problem_suffix(counts: NodeCounts) -> str:
    text = ""
    for state, words in ((NodeState.FAILED, "failed"), (NodeState.UNREACHABLE, "unreachable")):
        if found := counts.names(state):
            text += f", {len(found)} {words} ({fold(found, limit=200)})"
    return text
