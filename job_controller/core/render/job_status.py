"""The status of a Job: phase, counts, conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.job import Condition, Job
from daemonset_job.api.reasons import (
    AlteredReason,
    FailedReason,
    ProgressingReason,
    SuspendedReason,
)
from daemonset_job.api.states import ConditionType, NodeState, Phase
from daemonset_job.api.times import format_time
from job_controller.core.render.messages import progress_message
from job_controller.core.state.blockers import Blocker
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.core.text.fold_names import fold
from job_controller.core.text.sanitize import single_line

_UNSTARTED_WORDS = "the Job has not started"
_SUSPENDED_WORDS = "spec.suspend is true: no further node starts; running tasks continue"
_RESUMED = Condition(ConditionType.SUSPENDED, False, SuspendedReason.RESUMED, "run resumed")


def first_status(job: Job, now: datetime, token: str = "") -> dict[str, Any]:
    """Return the status of a Job that starts: from now on what it runs cannot change.

    `token` is the default completion token. It is recorded for a Job without a token of its own.
    """
    changes = [
        Condition(
            ConditionType.PROGRESSING, True, ProgressingReason.STARTING, "creating the DaemonSet"
        )
    ]
    if job.condition(ConditionType.SUSPENDED) is not None:
        changes.append(_RESUMED)
    return {
        "phase": Phase.PENDING,
        "observedGeneration": job.generation,
        "startTime": format_time(now),
        "report": names.report_name(job.name, job.uid),
        **({"completionToken": token} if token and not job.spec.completion.token else {}),
        "conditions": set_conditions(job, changes, now),
    }


def unstarted_status(job: Job, start_blocker: Blocker | None, now: datetime) -> dict[str, Any]:
    """Return the status of a Job that has not started: suspended, or with a blocker."""
    is_suspended = job.spec.suspend
    changes = []
    if start_blocker is not None:
        words = start_blocker.message
        changes.append(Condition(ConditionType.PROGRESSING, False, start_blocker.reason, words))
    elif job.condition(ConditionType.PROGRESSING) is not None:
        changes.append(
            Condition(ConditionType.PROGRESSING, False, ProgressingReason.PAUSED, _UNSTARTED_WORDS)
        )
    if is_suspended:
        suspended = Condition(
            ConditionType.SUSPENDED, True, SuspendedReason.SUSPENDED, _SUSPENDED_WORDS
        )
        changes.append(suspended)
    elif job.condition(ConditionType.SUSPENDED) is not None:
        changes.append(_RESUMED)
    return {
        **job.status,
        "phase": Phase.PAUSED if is_suspended else Phase.PENDING,
        "observedGeneration": job.generation,
        "conditions": set_conditions(job, changes, now),
    }


def unreadable_status(job: Job, error: str, now: datetime) -> dict[str, Any]:
    """Return the status of a Job that cannot be read, of which `job` holds the known parts.

    Its other conditions stay. It is written once for each generation: each write makes another
    version that cannot be read, and the error may be worded differently each time.
    """
    found = job.condition(ConditionType.PROGRESSING)
    is_told = found is not None and found.reason == ProgressingReason.UNREADABLE
    if is_told and job.status.get("observedGeneration") == job.generation:
        return dict(job.status)
    words = (
        f"the controller cannot read this Job and ignores it: {single_line(error)}; "
        "shorten what is nested too deep or too large in it, or delete it and create it again"
    )
    unread = Condition(ConditionType.PROGRESSING, False, ProgressingReason.UNREADABLE, words)
    return {
        "phase": Phase.PENDING,
        **job.status,
        "observedGeneration": job.generation,
        "conditions": set_conditions(job, (unread,), now),
    }


def next_status(  # noqa: PLR0913 - one argument for each thing that it tells
    job: Job,
    counts: NodeCounts,
    run: RunState,
    blocker: Blocker | None,
    now: datetime,
    *,
    ended_at: str = "",
    alteration: str = "",
) -> dict[str, Any]:
    """Return the status that follows; equal to the old one when nothing changed.

    `ended_at` is the end of the run in its report, "" without one. `alteration` is what other
    clients changed in the DaemonSet, "" for nothing.
    """
    status: dict[str, Any] = {
        **job.status,
        "phase": _phase(job, counts, run),
        "observedGeneration": job.generation,
        "report": names.report_name(job.name, job.uid),
        "nodes": _reported_nodes(job, counts),
        "conditions": set_conditions(
            job, [*_conditions(job, counts, run, blocker), *_altered_conditions(alteration)], now
        ),
    }
    if job.retry_request:
        status["observedRetry"] = job.retry_request
    if not run.has_ended:
        # A failed run that is tried again has not ended.
        status.pop("completionTime", None)
    elif "completionTime" not in status or _has_ended_again(job, run):
        # By the controller's clock: the nodes' clocks may be wrong, and the TTL counts from here.
        # The report has it first, so that all reconciles agree, before and after a crash.
        status["completionTime"] = ended_at or format_time(now)
    return status


def _has_ended_again(job: Job, run: RunState) -> bool:
    """Return whether a run that is recorded as failed has ended again after a retry.

    The retry found every node completed, or nothing to try now. The recorded time is that of the
    earlier failure, but the TTL counts from the newest end.
    """
    if not job.is_true(ConditionType.FAILED):
        return False
    return (
        run.state == RunOutcome.SUCCEEDED
        or job.status.get("observedRetry", "") != job.retry_request
    )


def _altered_conditions(alteration: str) -> list[Condition]:
    """Return the condition that another client changed the DaemonSet.

    It stays after the repair: it is not known which pods were created in between.
    """
    if not alteration:
        return []
    words = (
        "another client changed the spec of the DaemonSet "
        f"({single_line(alteration, 400)}); it is "
        "reverted, but pods created meanwhile may have run something other than the Job says"
    )
    return [Condition(ConditionType.ALTERED, True, AlteredReason.DAEMON_SET_ALTERED, words)]


def _conditions(
    job: Job, counts: NodeCounts, run: RunState, blocker: Blocker | None
) -> list[Condition]:
    changes = [_progressing(job, counts, run, blocker)]
    if run.state == RunOutcome.SUCCEEDED:
        changes.append(Condition(ConditionType.COMPLETE, True, run.reason, run.message))
    if run.state == RunOutcome.FAILED:
        changes.append(Condition(ConditionType.FAILED, True, run.reason, run.message))
    elif job.is_true(ConditionType.FAILED):
        words = "retrying failed nodes"
        changes.append(Condition(ConditionType.FAILED, False, FailedReason.RETRYING, words))
    is_paused = _is_paused(job, counts, run)
    if is_paused and job.spec.suspend:
        changes.append(
            Condition(ConditionType.SUSPENDED, True, SuspendedReason.SUSPENDED, _SUSPENDED_WORDS)
        )
    elif is_paused:
        changes.append(Condition(ConditionType.SUSPENDED, True, run.reason, run.message))
    elif job.is_true(ConditionType.SUSPENDED):
        changes.append(_RESUMED)
    return changes


def _progressing(job: Job, counts: NodeCounts, run: RunState, blocker: Blocker | None) -> Condition:
    type_ = ConditionType.PROGRESSING
    if run.state == RunOutcome.SUCCEEDED:
        return Condition(type_, False, ProgressingReason.COMPLETED, run.message)
    if run.state == RunOutcome.FAILED:
        is_refused = blocker is not None and blocker.reason == ProgressingReason.POD_CHANGE_REFUSED
        words = f"{run.message}; {blocker.message}" if blocker and is_refused else run.message
        return Condition(type_, False, ProgressingReason.FAILED, words)
    if blocker is not None:
        return Condition(type_, False, blocker.reason, blocker.message)
    if _is_paused(job, counts, run):
        return Condition(type_, False, ProgressingReason.PAUSED, progress_message(counts))
    if not counts.desired_is_known:
        return Condition(type_, True, ProgressingReason.STARTING, "creating the DaemonSet")
    return Condition(type_, True, ProgressingReason.NODES_ACTIVE, progress_message(counts))


def _reported_nodes(job: Job, counts: NodeCounts) -> Mapping[str, Any]:
    """Return the counts; the previous ones while a deleted DaemonSet is created again."""
    before: Mapping[str, Any] = job.status.get("nodes") or {}
    return before if before and not counts.desired_is_known else nodes_field(counts)


def nodes_field(counts: NodeCounts) -> dict[str, Any]:
    """Return `status.nodes`. Nodes whose pod does not exist yet count as waiting."""
    found = {
        state: counts.names(state)
        for state in (NodeState.COMPLETED, NodeState.FAILED, NodeState.UNREACHABLE)
    }
    fields: dict[str, Any] = {
        "desired": counts.desired,
        "waiting": len(counts.names(NodeState.WAITING)) + counts.missing,
        "active": len(counts.names(NodeState.ACTIVE)),
        "completed": len(found[NodeState.COMPLETED]),
        "failed": len(found[NodeState.FAILED]),
        "unreachable": len(found[NodeState.UNREACHABLE]),
    }
    for state, key in (
        (NodeState.COMPLETED, "completedNames"),
        (NodeState.FAILED, "failedNames"),
        (NodeState.UNREACHABLE, "unreachableNames"),
    ):
        if found[state]:
            fields[key] = fold(found[state])
    return fields


def set_conditions(
    job: Job, changes: Sequence[Condition], now: datetime
) -> list[Mapping[str, Any]]:
    """Return the Job's conditions with `changes` laid over them, in their old order.

    `lastTransitionTime` moves only when the status flips (Kubernetes API conventions).
    """
    merged: dict[str, Mapping[str, Any]] = {
        str(raw.get("type")): raw for raw in job.status.get("conditions") or ()
    }
    for change in changes:
        old = merged.get(change.type)
        status = "True" if change.status else "False"
        flipped = old is None or old.get("status") != status
        merged[change.type] = {
            "type": change.type,
            "status": status,
            "reason": change.reason,
            "message": change.message,
            "observedGeneration": job.generation,
            "lastTransitionTime": (
                format_time(now) if flipped or old is None else old.get("lastTransitionTime")
            ),
        }
    return list(merged.values())


def _is_paused(job: Job, counts: NodeCounts, run: RunState) -> bool:
    """Return whether the run is paused: a pause was requested, and no new pod can start.

    Users may add nodes once they read it. Until the DaemonSet controller has observed the gate, a
    new node would start its work.
    """
    if run.has_ended or (not job.spec.suspend and run.state != RunOutcome.PAUSED):
        return False
    return counts.new_pods_are_gated or job.is_true(ConditionType.SUSPENDED)


def _phase(job: Job, counts: NodeCounts, run: RunState) -> str:
    if run.state == RunOutcome.SUCCEEDED:
        return Phase.SUCCEEDED
    if run.state == RunOutcome.FAILED:
        return Phase.FAILED
    if _is_paused(job, counts, run):
        return Phase.PAUSED
    if counts.names(NodeState.ACTIVE, NodeState.COMPLETED, NodeState.FAILED):
        return Phase.RUNNING
    return Phase.PENDING
