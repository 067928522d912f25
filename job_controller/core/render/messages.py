"""The run in sentences: what a person reads in conditions, events and the report."""

from __future__ import annotations

from dataclasses import replace

from daemonset_job.api.job import Job
from job_controller.core.state.node_counts import Tally
from job_controller.core.state.node_state import COMPLETED, FAILED, UNREACHABLE
from job_controller.core.state.run_state import RunVerdict
from job_controller.core.text.fold_names import fold

# Failed nodes told one by one; the report has all of them.
_TOLD = 3
# metav1.Condition takes 32,768 characters; nobody reads more than this.
_LIMIT = 900


def with_message(run: RunVerdict, tally: Tally, job: Job) -> RunVerdict:
    """Return the verdict with the sentence of its reason, unless it is on record already."""
    if not run.reason or run.message:
        return run
    if run.reason == "MaxFailedNodesExceeded":
        message = tell_failed(tally, run.allowed)
    elif run.reason == "DeadlineExceeded":
        message = _tell_deadline(tally, job)
    else:
        message = tell_progress(tally)
    return replace(run, message=message)


def tell_progress(tally: Tally) -> str:
    """Return "2 of 3 nodes completed", with what else is to be said."""
    text = f"{len(tally.names(COMPLETED))} of {tally.desired} nodes completed"
    return text + _others(tally)


def tell_failed(tally: Tally, allowed: int) -> str:
    """Return the sentence of a run that failed, or is held, for its nodes."""
    failed, lost = tally.names(FAILED), tally.names(UNREACHABLE)
    parts = []
    if failed:
        told = "; ".join(f"{name} {tally.record(name).message}" for name in failed[:_TOLD])
        more = f"; and {fold(failed[_TOLD:], limit=200)}" if len(failed) > _TOLD else ""
        parts.append(f"{len(failed)} of {tally.desired} nodes failed: {told}{more}")
    if lost:
        parts.append(f"{len(lost)} unreachable ({fold(lost, limit=200)})")
    limit = f" (maxFailedNodes allows {allowed})" if allowed else ""
    return "; ".join(parts)[:_LIMIT] + limit


def _tell_deadline(tally: Tally, job: Job) -> str:
    done, seconds = len(tally.names(COMPLETED)), job.spec.active_deadline_seconds
    return f"{done} of {tally.desired} nodes completed within activeDeadlineSeconds ({seconds} s)"


def _others(tally: Tally) -> str:
    text = ""
    for state, words in ((FAILED, "failed"), (UNREACHABLE, "unreachable")):
        if found := tally.names(state):
            text += f", {len(found)} {words} ({fold(found, limit=200)})"
    return text
