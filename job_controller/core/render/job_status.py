"""The status of a Job: phase, counts, conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.reasons import (
    AlteredReason,
    CompleteReason,
    FailedReason,
    ProgressingReason,
)
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import ConditionType, NodeState, Phase
from daemonset_job.api.times import whole_seconds
from job_controller.core.render.default_token import default_token
from job_controller.core.render.kstatus import IN_PROGRESS, kstatus_conditions
from job_controller.core.render.messages import (
    active_message,
    completed_message,
    progress_message,
)
from job_controller.core.render.suspension import RESUMED, suspended, unstarted_suspended
from job_controller.core.rollout.rollout_state import RolloutState
from job_controller.core.state.active_progress import NO_PROGRESS, ActiveProgress
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.core.text.sanitize import single_line

UNSTARTED_WORDS = "the Job has not started"
# Refused writes that a run needs after its failure, too, such as that of the scheduling gate.
_REFUSED_CHANGES = (
    ProgressingReason.DAEMON_SET_REFUSED,
    ProgressingReason.REPORT_REFUSED,
    ProgressingReason.POD_CHANGE_REFUSED,
    ProgressingReason.NODE_CHANGE_REFUSED,
)
# Nothing goes on before the spec is corrected.
_INVALID = (ProgressingReason.INVALID_WINDOW, ProgressingReason.TOO_MANY_IMAGES)


def first_status(job: Job, now: datetime, token: str = "") -> JobStatus:
    """Return the status of a Job that starts: from now on what it runs cannot change.

    `token` is the configured completion token.
    """
    changes = [
        Condition(
            ConditionType.PROGRESSING, True, ProgressingReason.STARTING, "creating the DaemonSet"
        ),
        IN_PROGRESS,
    ]
    if job.condition(ConditionType.SUSPENDED) is not None:
        changes.append(RESUMED)
    return JobStatus(
        phase=Phase.PENDING,
        observed_generation=job.generation,
        start_time=whole_seconds(now),
        report=job.report_name,
        completion_token=default_token(job, token),
        revision=job.revision,
        conditions=set_conditions(job, changes, now),
    )


def unstarted_status(
    job: Job, start_blocker: Blocker | None, now: datetime, preview: RolloutProgress | None = None
) -> JobStatus:
    """Return the status of a Job that has not started: suspended, or with a blocker.

    `preview` says which nodes its rollout would begin with.
    """
    is_suspended = job.is_suspended
    changes = []
    if start_blocker is not None:
        words = start_blocker.message
        changes.append(Condition(ConditionType.PROGRESSING, False, start_blocker.reason, words))
    elif job.condition(ConditionType.PROGRESSING) is not None:
        changes.append(
            Condition(ConditionType.PROGRESSING, False, ProgressingReason.PAUSED, UNSTARTED_WORDS)
        )
    if is_suspended:
        changes.append(unstarted_suspended(job))
    elif job.condition(ConditionType.SUSPENDED) is not None:
        changes.append(RESUMED)
    changes.append(IN_PROGRESS)
    return replace(
        job.status,
        phase=Phase.PAUSED if is_suspended else Phase.PENDING,
        observed_generation=job.generation,
        report=job.report_name,
        rollout=preview,
        conditions=set_conditions(job, changes, now),
    )


@dataclass(frozen=True, slots=True)
class Findings:
    """What a reconcile found out about a run that has started.

    `ended_at` is the end of the run in its report, None without one. `alteration` is what other
    clients changed in the DaemonSet, "" for nothing. `progress` is that of the tasks at work.
    `token` is the configured completion token. `rollout` says what its rollout waits for. `begun`
    says where a task has begun, if that keeps a suspended run from being corrected, "" if not.
    """

    counts: NodeCounts
    run: RunState
    blocker: Blocker | None = None
    ended_at: datetime | None = None
    alteration: str = ""
    progress: ActiveProgress = NO_PROGRESS
    token: str = ""
    rollout: RolloutState = field(default_factory=RolloutState)
    begun: str = ""


def next_status(job: Job, found: Findings, now: datetime) -> JobStatus:
    """Return the status that follows; equal to the old one when nothing changed."""
    counts, run = found.counts, found.run
    changes = [
        *_conditions(job, found, now),
        *_altered_conditions(found.alteration),
    ]
    token = job.status.completion_token
    # That of a script is always the same, so it is found again if the status has lost it.
    if job.has_new_revision or (not token and job.spec.has_script):
        token = default_token(job, found.token)
    return replace(
        job.status,
        phase=_phase(job, counts, run),
        observed_generation=job.generation,
        completion_time=_completion_time(job, found, now),
        report=job.report_name,
        revision=job.revision,
        completion_token=token,
        nodes=_reported_nodes(job, counts),
        progress=found.progress.percent,
        lowest_progress=found.progress.lowest,
        rollout=found.rollout.progress,
        observed_retry=job.retry_request,
        observed_rerun=job.rerun.id,
        conditions=set_conditions(job, changes, now),
    )


def _completion_time(job: Job, found: Findings, now: datetime) -> datetime | None:
    """Return the end of the run, None while it has not ended, or is tried again after a failure.

    It is by the controller's clock: the nodes' clocks may be wrong, and the TTL counts from here.
    The report has it first, so that all reconciles agree, before and after a crash.
    """
    if not found.run.has_ended:
        return None
    recorded = job.status.completion_time
    if recorded is not None and not _has_ended_again(job, found.run):
        return recorded
    return found.ended_at or whole_seconds(now)


def _has_ended_again(job: Job, run: RunState) -> bool:
    """Return whether a run that is recorded as failed has ended again after a retry.

    The retry found every node completed, or nothing to try now. The recorded time is that of the
    earlier failure, but the TTL counts from the newest end.
    """
    if not job.is_true(ConditionType.FAILED):
        return False
    return run.outcome == RunOutcome.SUCCEEDED or job.status.observed_retry != job.retry_request


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


def _conditions(job: Job, found: Findings, now: datetime) -> list[Condition]:
    counts, run = found.counts, found.run
    changes = [_progressing(job, found, now)]
    if run.outcome == RunOutcome.SUCCEEDED:
        changes.append(Condition(ConditionType.COMPLETE, True, run.reason, run.message))
    elif job.is_true(ConditionType.COMPLETE):
        changes.append(_reopened(job))
    if run.outcome == RunOutcome.FAILED:
        changes.append(Condition(ConditionType.FAILED, True, run.reason, run.message))
    elif job.is_true(ConditionType.FAILED):
        words = _why_continued(job)
        changes.append(Condition(ConditionType.FAILED, False, FailedReason.RETRYING, words))
    is_paused = _is_paused(job, counts, run)
    # A person may have suspended a failed run to correct it.
    is_uncorrectable = (
        run.outcome == RunOutcome.FAILED and bool(found.begun) and _may_be_paused(job, counts)
    )
    if is_uncorrectable or (is_paused and job.is_suspended):
        changes.append(suspended(job, found.begun))
    elif is_paused:
        changes.append(Condition(ConditionType.SUSPENDED, True, run.reason, run.message))
    elif job.is_true(ConditionType.SUSPENDED):
        changes.append(RESUMED)
    changes.extend(kstatus_conditions(job, run, found.blocker))
    return changes


def _why_continued(job: Job) -> str:
    """Return why a failed run goes on: what a person has requested or changed."""
    if job.status.observed_retry != job.retry_request:
        return "retrying failed nodes"
    if job.has_new_revision:
        return "what the Job runs was changed"
    if job.has_open_request:
        return "nodes run the task again, as requested"
    return "the Job was changed"


def _reopened(job: Job) -> Condition:
    """Return why a completed run goes on."""
    if job.spec.is_continuous:
        words = "a node has joined, or has to run the task again"
        return Condition(ConditionType.COMPLETE, False, CompleteReason.NODES_DUE, words)
    words = "spec.nodes was changed after the run had completed, and nodes were added"
    return Condition(ConditionType.COMPLETE, False, CompleteReason.NODES_ADDED, words)


def _progressing(job: Job, found: Findings, now: datetime) -> Condition:
    counts, run, blocker, type_ = found.counts, found.run, found.blocker, ConditionType.PROGRESSING
    if run.outcome == RunOutcome.SUCCEEDED:
        words = completed_message(counts, run, blocker)
        return Condition(type_, False, ProgressingReason.COMPLETED, words)
    if run.outcome == RunOutcome.FAILED:
        is_refused = blocker is not None and blocker.reason in _REFUSED_CHANGES
        words = f"{run.message}; {blocker.message}" if blocker and is_refused else run.message
        return Condition(type_, False, ProgressingReason.FAILED, words)
    if blocker is not None:
        return Condition(type_, False, blocker.reason, blocker.message)
    if _is_paused(job, counts, run):
        return Condition(type_, False, ProgressingReason.PAUSED, progress_message(counts))
    if not counts.desired_is_known:
        return Condition(type_, True, ProgressingReason.STARTING, "creating the DaemonSet")
    words = active_message(counts, job, now)
    if waits_for := run.waits_for or found.rollout.message:
        words += f"; {waits_for}"
    reason = found.rollout.reason or ProgressingReason.NODES_ACTIVE
    return Condition(type_, reason not in _INVALID, reason, words)


def _reported_nodes(job: Job, counts: NodeCounts) -> NodeTotals:
    """Return the totals; the previous ones while a deleted DaemonSet is created again."""
    before = job.status.nodes
    return before if before is not None and not counts.desired_is_known else node_totals(counts)


def node_totals(counts: NodeCounts) -> NodeTotals:
    """Return `status.nodes`. Nodes whose pod does not exist yet count as waiting."""
    completed = counts.names(NodeState.COMPLETED)
    failed = counts.names(NodeState.FAILED)
    unreachable = counts.names(NodeState.UNREACHABLE)
    without_pod = max(counts.missing - len(counts.failed_without_pod), 0)
    return NodeTotals(
        desired=counts.desired,
        waiting=len(counts.names(NodeState.WAITING)) + without_pod,
        active=len(counts.names(NodeState.ACTIVE)),
        completed=len(completed),
        failed=len(failed),
        unreachable=len(unreachable),
        completed_names=fold(completed),
        skipped=len(counts.skipped),
        failed_names=fold(failed),
        unreachable_names=fold(unreachable),
        skipped_names=fold(counts.skipped),
    )


def set_conditions(job: Job, changes: Sequence[Condition], now: datetime) -> tuple[Condition, ...]:
    """Return the Job's conditions with `changes` laid over them, in their old order.

    `lastTransitionTime` moves only when the status flips (Kubernetes API conventions).
    """
    merged = {condition.type: condition for condition in job.status.conditions}
    for change in changes:
        old = merged.get(change.type)
        is_flipped = old is None or old.status != change.status
        merged[change.type] = replace(
            change,
            observed_generation=job.generation,
            last_transition_time=(
                whole_seconds(now) if is_flipped or old is None else old.last_transition_time
            ),
        )
    return tuple(merged.values())


def _is_paused(job: Job, counts: NodeCounts, run: RunState) -> bool:
    """Return whether the run is paused: a pause was requested, and no new pod can start."""
    if run.has_ended or (not job.is_suspended and run.outcome != RunOutcome.PAUSED):
        return False
    return _may_be_paused(job, counts)


def _may_be_paused(job: Job, counts: NodeCounts) -> bool:
    """Return whether no new pod can start, if a pause was requested.

    Users may add nodes once they read it. Until the DaemonSet controller has observed the gate, a
    new node would start its work.
    """
    return counts.new_pods_are_gated or job.is_true(ConditionType.SUSPENDED)


def _phase(job: Job, counts: NodeCounts, run: RunState) -> Phase:
    if run.outcome == RunOutcome.SUCCEEDED:
        return Phase.SUCCEEDED
    if run.outcome == RunOutcome.FAILED:
        return Phase.FAILED
    if _is_paused(job, counts, run):
        return Phase.PAUSED
    if counts.names(NodeState.ACTIVE, NodeState.COMPLETED, NodeState.FAILED):
        return Phase.RUNNING
    return Phase.PENDING
