"""Messages about the run for conditions, events and the report."""

from __future__ import annotations

from dataclasses import replace

from daemonset_job.api.job import Job
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.states import NodeState
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunState
from job_controller.core.state.skipped_nodes import describe_skipped
from job_controller.core.text.fold_names import fold

# Failed nodes that are listed one by one; the report has all of them.
_LISTED_NODES = 3
# metav1.Condition takes 32,768 characters; this much is readable.
_MESSAGE_LIMIT = 900


def with_message(run: RunState, counts: NodeCounts, job: Job) -> RunState:
    """Return the run state with the message for its reason, unless it is recorded already."""
    if not run.reason or run.message:
        return run
    if run.reason == FailedReason.MAX_FAILED_NODES_EXCEEDED:  # the same text if it is paused
        message = failure_message(counts, run.allowed)
    elif run.reason == FailedReason.DEADLINE_EXCEEDED:
        message = _deadline_message(counts, job)
    else:
        message = progress_message(counts)
    return replace(run, message=message)


def progress_message(counts: NodeCounts) -> str:
    """Return "2 of 3 nodes completed", and the failed, unreachable and skipped nodes."""
    text = f"{len(counts.names(NodeState.COMPLETED))} of {counts.desired} nodes completed"
    skipped = f"; {describe_skipped(counts.skipped)}" if counts.skipped else ""
    return text + _problem_suffix(counts) + skipped


def completed_message(counts: NodeCounts, run: RunState, blocker: str) -> str:
    """Return the message of a run that has succeeded: the counts as they are now.

    A Job that is kept serves nodes that join later. Its condition `Complete` says how the run
    ended. `blocker` is what keeps a later node from its work, "" for nothing.
    """
    if not counts.is_exact and not blocker:
        return run.message
    words = progress_message(counts)
    return f"{words}; {blocker}" if blocker and not counts.is_complete else words


def failure_message(counts: NodeCounts, allowed: int) -> str:
    """Return the message of a run that failed or is paused because of its nodes."""
    failed, unreachable = counts.names(NodeState.FAILED), counts.names(NodeState.UNREACHABLE)
    parts = []
    if failed:
        listed = failed[:_LISTED_NODES]
        problems = "; ".join(f"{name} {counts.record(name).message}" for name in listed)
        more = (
            f"; and {fold(failed[_LISTED_NODES:], limit=200)}"
            if len(failed) > _LISTED_NODES
            else ""
        )
        parts.append(f"{len(failed)} of {counts.desired} nodes failed: {problems}{more}")
    if unreachable:
        parts.append(f"{len(unreachable)} unreachable ({fold(unreachable, limit=200)})")
    limit = f" (maxFailedNodes allows {allowed})" if allowed else ""
    return "; ".join(parts)[:_MESSAGE_LIMIT] + limit


def _deadline_message(counts: NodeCounts, job: Job) -> str:
    done, seconds = len(counts.names(NodeState.COMPLETED)), job.spec.active_deadline_seconds
    return f"{done} of {counts.desired} nodes completed within activeDeadlineSeconds ({seconds} s)"


def _problem_suffix(counts: NodeCounts) -> str:
    text = ""
    for state, words in ((NodeState.FAILED, "failed"), (NodeState.UNREACHABLE, "unreachable")):
        if found := counts.names(state):
            text += f", {len(found)} {words} ({fold(found, limit=200)})"
    return text
