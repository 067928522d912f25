"""The rollback of a run: when its Jobs are created, and what has become of it.

It follows from the status and the report of the run, and from the Jobs of the rollback that there
are. First the status says that the run is to be rolled back; from then on the run is final. When
nothing of the task runs any more, one Job after the other undoes the work, each on at most
BATCH_NODES nodes. What is on record as rolled back stays so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition
from daemonset_job.api.reasons import CompleteReason, FailedReason, RolledBackReason
from daemonset_job.api.rollback import can_roll_back, ignores_retry, is_rollback_requested
from daemonset_job.api.rollback_status import RollbackStatus
from daemonset_job.api.states import ConditionType
from daemonset_job.api.times import whole_seconds
from job_controller.core.desired.owned_job import BATCH_NODES
from job_controller.core.desired.rollback_job import (
    build_rollback_job,
    rollback_name,
)
from job_controller.core.job_actions import CreateJob
from job_controller.core.owned_jobs.outcome import OwnedOutcome, owned_outcome
from job_controller.core.owned_jobs.rollback_jobs import (
    BATCHES_LIMIT,
    RollbackJobs,
    find_rollback_jobs,
)
from job_controller.core.owned_jobs.rollback_messages import (
    NAMES_LIMIT,
    describe_end,
    describe_failure,
    describe_loss,
    describe_work,
)
from job_controller.core.owned_jobs.rollback_targets import (
    Targets,
    find_targets,
    is_end_recorded,
    may_lack_pods,
)
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line

# How often to look at nodes that are waited for: none of their changes may show that they are away.
_WAIT_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class RollbackState:
    """What the Job's status says of the rollback, and the Job that is created for it now.

    `status` and `condition` are None without a rollback. `wake_seconds` is when to look again.
    """

    status: RollbackStatus | None = None
    condition: Condition | None = None
    action: CreateJob | None = None
    wake_seconds: float | None = None


def evaluate_rollback(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, now: datetime
) -> RollbackState:
    """Return the state of the rollback. Pure, and the same until something changes."""
    job, before = snapshot.job, snapshot.job.status.rollback
    if before is None and not _is_due(job, run):
        return _not_possible(job)
    if job.is_true(ConditionType.ROLLED_BACK):
        return RollbackState(
            before, _with_retry_hint(job, job.condition(ConditionType.ROLLED_BACK))
        )
    targets, found = find_targets(snapshot, counts, now), find_rollback_jobs(snapshot)
    reason, words, action = _next_step(snapshot, counts, targets, found)
    is_over, has_stopped = reason in _ENDS, reason in _STOPS
    status = _with_numbers(before or RollbackStatus(), targets, found, is_over=is_over)
    if status.start_time is None and (found.jobs or action is not None):
        status = replace(status, start_time=whole_seconds(now))
    ended = status.completion_time or whole_seconds(now)
    status = replace(
        status,
        completion_time=ended if is_over or has_stopped else None,
        message=words,
        requested_by=status.requested_by or _requested_by(job),
    )
    condition = Condition(ConditionType.ROLLED_BACK, is_over, reason, words)
    waits = reason == RolledBackReason.ROLLBACK_WAITING or (
        reason == RolledBackReason.ROLLING_BACK and _may_lose_nodes(targets, found)
    )
    return RollbackState(
        status, _with_retry_hint(job, condition), action, _WAIT_SECONDS if waits else None
    )


def _may_lose_nodes(targets: Targets, found: RollbackJobs) -> bool:
    """Return whether time alone may show that the rollback does not wait for a node any more."""
    longest = max(map(_patience, found.jobs), default=timedelta())
    return any(time < longest for time in targets.away_for.values())


_ENDS: Final = frozenset({RolledBackReason.ROLLED_BACK, RolledBackReason.ROLLED_BACK_PARTLY})
# A retry of its Job lets the first one go on.
_STOPS: Final = frozenset({RolledBackReason.ROLLBACK_FAILED, RolledBackReason.ROLLBACK_CANCELLED})
_Step = tuple[RolledBackReason, str, CreateJob | None]


def _is_due(job: Job, run: RunState) -> bool:
    """Return whether the run has ended, and its policy or a person asks for a rollback.

    An abort ends a run as it is: only a person has it rolled back after that.
    """
    if not can_roll_back(job) or not run.has_ended:
        return False
    if is_rollback_requested(job):
        return True
    is_by_policy = job.spec.failure_policy.action == FailureAction.ROLLBACK
    return is_by_policy and run.outcome == RunOutcome.FAILED and run.reason != FailedReason.ABORTED


def _not_possible(job: Job) -> RollbackState:
    """Return that a person asks for a rollback that is not possible, or nothing."""
    if not job.requests.rollback or can_roll_back(job):
        return RollbackState()
    words = "spec.rollback does not say how to undo the work: set it, or remove the annotation"
    if job.spec.is_continuous:
        words = (
            "a run of policy Continuous has no end, and is not rolled back: remove the annotation"
        )
    reason = RolledBackReason.ROLLBACK_NOT_POSSIBLE
    return RollbackState(None, Condition(ConditionType.ROLLED_BACK, False, reason, words))


def _next_step(
    snapshot: Snapshot, counts: NodeCounts, targets: Targets, found: RollbackJobs
) -> _Step:
    """Return how far the rollback is, in words, and the Job that is created now, None for none."""
    if (step := _by_jobs(snapshot.job.status.rollback, targets, found)) is not None:
        return step
    if words := _what_it_waits_for(snapshot, counts, targets):
        return RolledBackReason.ROLLBACK_WAITING, words, None
    if found.other:
        words = (
            f"Job {found.other} does not run what spec.rollback says, so it is not that of the "
            "rollback: delete it, and the rollback goes on"
        )
        return RolledBackReason.ROLLBACK_NAME_TAKEN, words, None
    left = sorted(targets.started - found.taken - targets.out_of_reach)
    number = len(found.jobs) + 1
    if not left or number > BATCHES_LIMIT:
        return *describe_end(targets, found, left), None
    return _create(snapshot, number, left)


def _what_it_waits_for(snapshot: Snapshot, counts: NodeCounts, targets: Targets) -> str:
    """Return why the next nodes cannot be rolled back yet, "" if they can."""
    if not _is_recorded(snapshot):
        return "the rollback begins when the end of the run is on record"
    if targets.at_work:
        nodes = fold(targets.at_work, limit=NAMES_LIMIT)
        return f"the rollback waits for the tasks that are at work on {nodes}"
    if not may_lack_pods(snapshot, counts):
        return ""
    words = "the rollback waits until no further pod of the run can start"
    refusal = snapshot.refusals.get(RefusedWrite.DAEMON_SET, "")
    if not refusal or counts.new_pods_are_gated:
        return words
    cause = single_line(refusal, REFUSAL_LIMIT)
    return f"{words}; the API server refuses the change of the DaemonSet: {cause}"


def _by_jobs(before: RollbackStatus | None, targets: Targets, found: RollbackJobs) -> _Step | None:
    """Return what the Jobs that there are say of the rollback, None if they all have succeeded."""
    if before is not None and (lost := found.lost(before)):
        return RolledBackReason.ROLLBACK_CANCELLED, describe_loss(lost), None
    for owned in reversed(found.jobs):
        if owned_outcome(owned) == OwnedOutcome.FAILED:
            reason = RolledBackReason.ROLLBACK_FAILED
            if owned.is_aborted:
                reason = RolledBackReason.ROLLBACK_CANCELLED
            return reason, describe_failure(owned), None
    # An earlier one whose nodes were all out of reach goes on when one of them is back.
    for owned in reversed(found.jobs):
        is_over = owned_outcome(owned) == OwnedOutcome.SUCCEEDED
        if not is_over and not _has_lost_its_nodes(owned, targets, found):
            return RolledBackReason.ROLLING_BACK, describe_work(owned, targets, found), None
    # A Job that has ended serves its nodes that are back.
    for owned in reversed(found.jobs):
        if _serves(owned) and targets.ready.intersection(found.unserved(owned)):
            return RolledBackReason.ROLLING_BACK, describe_work(owned, targets, found), None
    return None


def _serves(owned: Job) -> bool:
    """Return whether a Job that has succeeded starts further nodes: a person may limit them."""
    complete = owned.condition(ConditionType.COMPLETE)
    return complete is None or complete.reason != CompleteReason.MIN_COMPLETED_REACHED


def _has_lost_its_nodes(owned: Job, targets: Targets, found: RollbackJobs) -> bool:
    """Return whether a Job of the rollback runs nowhere, because its nodes are out of reach.

    It has no end, and keeps no other node from being rolled back. One that is back later is rolled
    back by it. On a machine that is down, a deleted pod cannot end. Its Job may set the node aside
    later than the rollback leaves it out.
    """
    nodes, included = owned.status.nodes, frozenset(owned.spec.nodes.include)
    if nodes is None or nodes.desired == 0:
        return targets.out_of_reach.issuperset(included)
    left = included - found.completed
    away = {name for name, time in targets.away_for.items() if time >= _patience(owned)}
    return bool(left) and nodes.active == 0 and away.issuperset(left)


def _patience(owned: Job) -> timedelta:
    """Return for how long a Job of the rollback waits for a node that is away."""
    return timedelta(seconds=owned.spec.failure_policy.unreachable_seconds or 0)


def _create(snapshot: Snapshot, number: int, left: list[str]) -> _Step:
    """Return the Job that is created for the next nodes, and what keeps it from being created."""
    name = rollback_name(snapshot.job, number)
    action = CreateJob(build_rollback_job(snapshot.job, number, left[:BATCH_NODES]))
    if RefusedWrite.OWNED_JOB_NAME in snapshot.refusals:
        words = f"a Job {name} exists that is not of this Job: delete it, and the rollback goes on"
        return RolledBackReason.ROLLBACK_NAME_TAKEN, words, action
    if (refusal := snapshot.refusals.get(RefusedWrite.OWNED_JOB)) is not None:
        words = f"the API server refuses Job {name}: {single_line(refusal, REFUSAL_LIMIT)}"
        return RolledBackReason.ROLLBACK_REFUSED, words, action
    words = f"Job {name} rolls back {fold(left[:BATCH_NODES], limit=NAMES_LIMIT)}"
    return RolledBackReason.ROLLING_BACK, words, action


def _is_recorded(snapshot: Snapshot) -> bool:
    """Return whether Job and report both say how the run ended, and that it is rolled back.

    The nodes of the rollback are those of the report: no task starts after that.
    """
    return snapshot.job.status.rollback is not None and is_end_recorded(snapshot)


def _with_numbers(
    status: RollbackStatus, targets: Targets, found: RollbackJobs, *, is_over: bool
) -> RollbackStatus:
    """Return the status with its Jobs and the numbers of nodes; those of lost Jobs stay."""
    if found.lost(status):
        return status
    done = targets.started & found.completed
    failed = (targets.started & found.failed) - done
    # Which nodes are away is not on record, and a restart of the controller looks for it again.
    away = targets.started - done - failed if is_over else frozenset()
    return replace(
        status,
        jobs=tuple(owned.name for owned in found.jobs),
        reports=tuple(owned.report_name for owned in found.jobs if owned.status.report),
        desired=len(targets.started),
        completed=len(done),
        failed=len(failed),
        unreachable=len(away),
        completed_names=fold(done),
        failed_names=fold(failed),
        unreachable_names=fold(away),
    )


def _requested_by(job: Job) -> str:
    return single_line(job.requests.rollback_by) if is_rollback_requested(job) else ""


def _with_retry_hint(job: Job, condition: Condition | None) -> Condition | None:
    """Return the condition, which says so if a person asks for a retry: it is not acted on."""
    if condition is None or not ignores_retry(job):
        return condition
    hint = "; no retry is acted on after a rollback: apply a new Job"
    message = condition.message.removesuffix(hint)
    return replace(condition, message=message + hint)
