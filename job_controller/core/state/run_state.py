"""The state of the run as a whole: in progress, paused, succeeded or failed, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Final

from daemonset_job.api.choices import FAST_ACTIONS, FailureAction
from daemonset_job.api.job import Job
from daemonset_job.api.reasons import (
    CompleteReason,
    FailedReason,
    HistoryReason,
    SuspendedReason,
)
from daemonset_job.api.rollback import is_rollback_requested
from daemonset_job.api.states import ConditionType, NodeState, Phase
from daemonset_job.api.times import add_seconds
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.added_nodes import adds_nodes
from job_controller.core.state.failure_budget import count_failures, has_share, is_within_budget
from job_controller.core.state.joined_nodes import find_failed_without_pod, has_joined
from job_controller.core.state.node_changes import has_pending_changes
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, find_unrecorded
from job_controller.core.state.success_policy import find_sufficiency
from job_controller.core.state.unchosen_nodes import count_chosen
from job_controller.core.text.sanitize import single_line

# Of the text of an abort.
_ABORT_LIMIT: Final = 200
# While one of these is True, activeDeadlineSeconds does not count.
_STOPS_THE_CLOCK: Final = frozenset(
    {ConditionType.SUSPENDED, ConditionType.FAILED, ConditionType.COMPLETE}
)


class RunOutcome(Enum):
    """What nodes, limits and deadline decide about the run.

    It is not the phase that the status shows. `PAUSED` is by `failurePolicy` or by a step of the
    rollout that waits for a person, not by suspension. A run in progress is shown as Pending,
    Running or Paused.
    """

    IN_PROGRESS = auto()
    PAUSED = auto()
    SUCCEEDED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of the run, with the reason for its condition.

    `message` is the recorded one; `render.messages` fills in an empty one. `allowed` is how many
    nodes may fail. `wake_at` is when the state may change without an event. `waits_for` is what
    remains to be done when all nodes have finished, "" for nothing. `is_enough`: no further node
    starts, because `successPolicy.minCompleted` nodes are completed. `is_done`: nothing is left but
    to record the success, or to change completed nodes.
    """

    outcome: RunOutcome
    reason: str = ""
    message: str = ""
    allowed: int = 0
    wake_at: datetime | None = None
    waits_for: str = ""
    is_enough: bool = False
    is_done: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nodes may start: the run is not paused, and has not failed."""
        return self.outcome not in {RunOutcome.PAUSED, RunOutcome.FAILED}

    @property
    def has_ended(self) -> bool:
        """Whether the run has succeeded or failed."""
        return self.outcome in {RunOutcome.SUCCEEDED, RunOutcome.FAILED}


def evaluate_run(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> RunState:
    """Return the state of the run.

    Succeeded and failed are final, but for two requests. A retry opens a failed run again, unless
    it was aborted, and a change of `spec.nodes` that adds nodes opens a completed one. Neither
    opens a run that is rolled back. A run never fails because it lacks nodes or pods: it waits,
    and its status says for what.
    """
    job = snapshot.job
    if (by_person := _by_rollback(snapshot, counts) or _by_abort(snapshot, counts)) is not None:
        return by_person
    if job.spec.is_continuous:
        return _once_recorded(snapshot, _evaluate_continuous(snapshot, counts))
    if job.is_true(ConditionType.COMPLETE):
        if adds_nodes(snapshot):
            return RunState(RunOutcome.IN_PROGRESS)
        return _recorded_state(job, ConditionType.COMPLETE, RunOutcome.SUCCEEDED)
    if job.is_true(ConditionType.FAILED) and job.status.observed_retry == job.retry_request:
        recorded = _recorded_state(job, ConditionType.FAILED, RunOutcome.FAILED)
        return _by_nodes_since(recorded, job, counts)
    return _once_recorded(snapshot, _evaluate_unfinished(snapshot, counts, now))


def _once_recorded(snapshot: Snapshot, run: RunState) -> RunState:
    """Return the state of the run, which is not over before its report and its nodes are.

    The report outlives the Job, so it has to be complete before the Job is. Completed nodes are
    changed before, because the Job says how.
    """
    if run.outcome == RunOutcome.SUCCEEDED and RefusedWrite.REPORT in snapshot.refusals:
        return RunState(RunOutcome.IN_PROGRESS, run.reason, is_done=True)
    # A success that is on record is not taken back.
    is_new = run.outcome == RunOutcome.SUCCEEDED and _by_report(snapshot) is None
    if is_new and has_pending_changes(snapshot):
        words = "completed nodes have yet to be changed (spec.onSuccess)"
        return RunState(RunOutcome.IN_PROGRESS, run.reason, waits_for=words, is_done=True)
    return run


def is_recorded(snapshot: Snapshot) -> bool:
    """Return whether the success of the run is on record, in the Job or in its report."""
    return snapshot.job.is_true(ConditionType.COMPLETE) or _by_report(snapshot) is not None


def _evaluate_continuous(snapshot: Snapshot, counts: NodeCounts) -> RunState:
    """Return the state of a run that never ends: whether all present nodes are done.

    Nodes never fail it: whatever becomes of some, others and those that join are served. A count
    that is inexact for a moment, as while a pod is created again, takes nothing back. A node that
    is due and lacks its pod does.
    """
    job = snapshot.job
    is_known = counts.desired_is_known and counts.nodes_spec_is_applied
    allowed, over = count_failures(job, counts)
    if is_known and over and job.spec.failure_policy.action == FailureAction.PAUSE:
        return RunState(
            RunOutcome.PAUSED, SuspendedReason.MAX_FAILED_NODES_EXCEEDED, allowed=allowed
        )
    # One that is back and skipped is not desired, also while the report does not have that.
    may_end = find_unrecorded(snapshot) <= counts.skipped.keys()
    if counts.is_complete and may_end:
        return RunState(RunOutcome.SUCCEEDED, CompleteReason.ALL_NODES_COMPLETED)
    may_end = may_end and not over
    if is_known and may_end and counts.is_settled(NodeState.COMPLETED, NodeState.FAILED):
        return RunState(RunOutcome.SUCCEEDED, CompleteReason.COMPLETED_WITHIN_FAILURE_LIMIT)
    if not (may_end and job.is_true(ConditionType.COMPLETE)) or adds_nodes(snapshot):
        return RunState(RunOutcome.IN_PROGRESS)
    is_due = counts.names(NodeState.WAITING, NodeState.ACTIVE, NodeState.UNREACHABLE)
    # The end that is on record says nothing of a newer revision.
    if is_due or job.has_new_revision or has_joined(snapshot, counts):
        return RunState(RunOutcome.IN_PROGRESS)
    return _recorded_state(job, ConditionType.COMPLETE, RunOutcome.SUCCEEDED)


def find_excess_failures(job: Job, counts: NodeCounts) -> int | None:
    """Return how many nodes may fail if more have, and all others are done; None if not.

    Only for policy Continuous: any other run has failed then.
    """
    if not job.spec.is_continuous or not counts.is_settled(NodeState.COMPLETED, NodeState.FAILED):
        return None
    allowed, over = count_failures(job, counts)
    return allowed if over else None


def _evaluate_unfinished(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> RunState:
    """Return the state of a run whose end is not recorded."""
    if counts.is_complete:
        return RunState(RunOutcome.SUCCEEDED, CompleteReason.ALL_NODES_COMPLETED)
    return (
        _by_report(snapshot)
        or _by_min_completed(snapshot.job, counts)
        or _by_nodes(snapshot, counts)
        or _keep_pause(snapshot, counts)
        or _by_deadline(snapshot, now)
        or RunState(RunOutcome.IN_PROGRESS, wake_at=_deadline_after_retry(snapshot, now))
    )


def _keep_pause(snapshot: Snapshot, counts: NodeCounts) -> RunState | None:
    """Return that a paused run stays paused while the pod of a failed node is replaced.

    The pod of a failed node is deleted, and until there is the next one, the node is not counted.
    """
    job = snapshot.job
    condition = job.condition(ConditionType.SUSPENDED)
    if counts.is_exact or condition is None or not condition.status:
        return None
    if condition.reason != SuspendedReason.MAX_FAILED_NODES_EXCEEDED:
        return None
    if job.spec.failure_policy.action != FailureAction.PAUSE:
        return None
    if any(find_failed_without_pod(snapshot, counts)):
        return RunState(RunOutcome.PAUSED, condition.reason, condition.message)
    return None


def _recorded_state(job: Job, type_: ConditionType, outcome: RunOutcome) -> RunState:
    condition = job.condition(type_)
    assert condition is not None
    is_enough = condition.reason == CompleteReason.MIN_COMPLETED_REACHED
    return RunState(outcome, condition.reason, condition.message, is_enough=is_enough)


def _by_nodes_since(recorded: RunState, job: Job, counts: NodeCounts) -> RunState:
    """Return a failed run's state, without its message if that has to count further nodes.

    A run that stops after the first failure has other nodes that are still at work.
    """
    if recorded.reason != FailedReason.MAX_FAILED_NODES_EXCEEDED or not counts.is_exact:
        return recorded
    allowed, over = count_failures(job, counts)
    return replace(recorded, message="", allowed=allowed) if over else recorded


def _by_report(snapshot: Snapshot) -> RunState | None:
    """Return that the run has succeeded if its report says so, for the current spec.

    The report is written before the Job's status. After a crash between the two, or a lost
    response, the recorded success must not be taken back. A report about an older spec does not
    count: the Job was changed in between.
    """
    first = snapshot.first_report
    if first is None or first.status.phase != Phase.SUCCEEDED:
        return None
    if first.status.job_generation not in {None, snapshot.job.generation}:
        return None
    known = next((c for c in first.status.conditions if c.type == ConditionType.COMPLETE), None)
    nodes = first.status.nodes
    has_failures = nodes is not None and nodes.failed + nodes.unreachable > 0
    reason = (
        CompleteReason.COMPLETED_WITHIN_FAILURE_LIMIT
        if has_failures
        else CompleteReason.ALL_NODES_COMPLETED
    )
    is_enough = known is not None and known.reason == CompleteReason.MIN_COMPLETED_REACHED
    if is_enough:
        reason = CompleteReason.MIN_COMPLETED_REACHED
    return RunState(RunOutcome.SUCCEEDED, reason, first.status.message, is_enough=is_enough)


def _by_min_completed(job: Job, counts: NodeCounts) -> RunState | None:
    found = find_sufficiency(job, counts)
    if found is None:
        return None
    if found.waits_for:
        return RunState(RunOutcome.IN_PROGRESS, waits_for=found.waits_for, is_enough=True)
    return RunState(RunOutcome.SUCCEEDED, CompleteReason.MIN_COMPLETED_REACHED, is_enough=True)


def _by_nodes(snapshot: Snapshot, counts: NodeCounts) -> RunState | None:
    """Return what failed and unreachable nodes mean for the run, None when nothing yet.

    While the DaemonSet is created again, the number of desired nodes is unknown, and so is a
    percentage of it. The newest limit does not apply to the nodes of an older `spec.nodes`.
    """
    if not counts.desired_is_known or not counts.nodes_spec_is_applied:
        return None
    job = snapshot.job
    policy = job.spec.failure_policy
    allowed, over = count_failures(job, counts)
    if policy.action in FAST_ACTIONS and over and _stays_over(snapshot, counts):
        return RunState(RunOutcome.FAILED, FailedReason.MAX_FAILED_NODES_EXCEEDED, allowed=allowed)
    if policy.action == FailureAction.PAUSE and over:
        return RunState(
            RunOutcome.PAUSED, SuspendedReason.MAX_FAILED_NODES_EXCEEDED, allowed=allowed
        )
    if not counts.is_over:
        return None
    if over:
        return RunState(RunOutcome.FAILED, FailedReason.MAX_FAILED_NODES_EXCEEDED, allowed=allowed)
    return RunState(RunOutcome.SUCCEEDED, CompleteReason.COMPLETED_WITHIN_FAILURE_LIMIT)


def _stays_over(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether more nodes have failed than may, also by the newest number of nodes.

    A run does not fail by a percentage of a number that the DaemonSet controller is about to
    correct. That may take long, if it is away or a webhook changes each DaemonSet, and further
    nodes are not to fail meanwhile.
    """
    job = snapshot.job
    if counts.desired_is_current or not has_share(job):
        return True
    chosen = count_chosen(snapshot)
    if chosen is None:
        return False
    return not is_within_budget(job, replace(counts, desired=max(counts.desired, chosen)))


def _by_deadline(snapshot: Snapshot, now: datetime) -> RunState | None:
    limit = _deadline_after_retry(snapshot, now)
    if limit is None or now < limit:
        return None
    return RunState(RunOutcome.FAILED, FailedReason.DEADLINE_EXCEEDED)


def _deadline_after_retry(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return the run's deadline, which a retry gives the whole time, also while the run goes on.

    Then no condition has the time of the retry, but the report does.
    """
    job, limit, first = snapshot.job, deadline(snapshot.job, now), snapshot.first_report
    seconds = job.spec.active_deadline_seconds
    if limit is None or seconds is None or first is None:
        return limit
    times = [
        entry.time
        for entry in first.status.history
        if entry.reason == HistoryReason.RETRY_REQUESTED and entry.time is not None
    ]
    if job.status.observed_retry != job.retry_request:
        times.append(now)
    return max([limit, *(add_seconds(time, seconds) for time in times)])


def deadline(job: Job, now: datetime) -> datetime | None:
    """Return the run's deadline, None without one and while the run is suspended.

    Time spent suspended, before a retry, or before nodes are added, does not count. The clock
    starts again when one of these conditions becomes False. While one of them is True and the run
    is about to continue, it starts now.
    """
    seconds = job.spec.active_deadline_seconds
    began = job.status.start_time
    if seconds is None or began is None or job.is_suspended:
        return None
    for condition in job.status.conditions:
        if condition.type in _STOPS_THE_CLOCK:
            moved = condition.last_transition_time
            if condition.status:
                began = now
            elif moved is not None:
                began = max(began, moved)
    return add_seconds(began, seconds)


def _by_rollback(snapshot: Snapshot, counts: NodeCounts) -> RunState | None:
    """Return the end of a run that is rolled back, or is to be; None if it is not.

    A person ends a run in progress by the request, for good, as by an abort.
    """
    job = snapshot.job
    if job.status.rollback is None and not is_rollback_requested(job):
        return None
    if job.is_true(ConditionType.COMPLETE):
        return _recorded_state(job, ConditionType.COMPLETE, RunOutcome.SUCCEEDED)
    if job.is_true(ConditionType.FAILED):
        recorded = _recorded_state(job, ConditionType.FAILED, RunOutcome.FAILED)
        return _by_nodes_since(recorded, job, counts)
    if (succeeded := _by_report(snapshot)) is not None:
        return succeeded
    why = single_line(job.requests.rollback, _ABORT_LIMIT)
    words = f"ended for a rollback after {_how_many(job, counts)}: {why}"
    return RunState(RunOutcome.FAILED, FailedReason.ROLLBACK_REQUESTED, words)


def _by_abort(snapshot: Snapshot, counts: NodeCounts) -> RunState | None:
    """Return that a person has aborted the run, for good; a run that has succeeded stays so."""
    job = snapshot.job
    if job.is_aborted:
        return _recorded_state(job, ConditionType.FAILED, RunOutcome.FAILED)
    if not job.requests.abort:
        return None
    if is_recorded(snapshot) and not job.spec.is_continuous:
        return None
    why = single_line(job.requests.abort, _ABORT_LIMIT)
    words = f"aborted after {_how_many(job, counts)}: {why}"
    return RunState(RunOutcome.FAILED, FailedReason.ABORTED, words)


def _how_many(job: Job, counts: NodeCounts) -> str:
    """Return how many nodes are completed, in words; as reported if there is no DaemonSet."""
    done, desired = len(counts.names(NodeState.COMPLETED)), counts.desired
    if not counts.desired_is_known and job.status.nodes is not None:
        done, desired = job.status.nodes.completed, job.status.nodes.desired
    return f"{done} of {desired} nodes"
