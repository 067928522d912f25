"""Whether a Job may be deleted: it is complete by both counts, or failed, and its TTL is over.

Pure. The terminator's own count is in ``node_count``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.reasons import CompleteReason
from daemonset_job.api.states import ConditionType
from daemonset_job.api.times import add_seconds, format_time
from terminator.node_count import Count

# A complete Job whose TTL is over is deleted when this count agrees. While no task is running (a
# node joined later and cannot get its pod), a disagreement delays the deletion for this long only.
OVERDUE_SECONDS = 600

# With these a run succeeds although nodes have not completed: its Job is kept, unless it has a TTL.
_WITH_UNFINISHED_NODES: Final = frozenset(
    {CompleteReason.COMPLETED_WITHIN_FAILURE_LIMIT, CompleteReason.MIN_COMPLETED_REACHED}
)


@dataclass(frozen=True, slots=True)
class DeletionDecision:
    """Whether the Job may be deleted now.

    Attributes:
        blocked_by: Why it may not be deleted, "" if it may.
        wake_at: When time alone changes the decision, None if it does not.
        is_overdue: Whether its TTL is over, so that the reason delays it for a limited time only.
    """

    blocked_by: str = ""
    wake_at: datetime | None = None
    is_overdue: bool = False

    @property
    def may_delete(self) -> bool:
        """Return whether the Job may be deleted."""
        return not self.blocked_by


def decide_deletion(
    job: Job, count: Callable[[], Count], now: datetime, overdue_since: datetime | None = None
) -> DeletionDecision:
    """Return whether the Job may be deleted; calls `count` only if the decision depends on it.

    A complete Job is deleted when both counts agree and its TTL (default 0) has passed. A Job with
    failed nodes is deleted only if a TTL is set, even if the failures are within maxFailedNodes. So
    is a Job that was rolled back; its TTL begins then.
    `overdue_since` is the time since which every decision was overdue, None if the last was not.
    """
    if job.is_terminating:
        return DeletionDecision("the Job is being deleted")
    if job.spec.is_continuous:
        return DeletionDecision("spec.completion.policy is Continuous: the Job is kept")
    if blocked_by := _find_change(job):
        return DeletionDecision(blocked_by)
    if job.is_true(ConditionType.COMPLETE):
        return _decide_for_complete(job, count(), now, overdue_since or now)
    if job.is_true(ConditionType.FAILED):
        return _decide_for_failed(job, now)
    return DeletionDecision("the controller has not marked the Job complete yet")


def _find_change(job: Job) -> str:
    """Return what is about to happen to a Job, so that it may not be deleted, "" for nothing."""
    if job.status.observed_generation != job.generation:
        return "the controller has not observed the newest spec yet"
    if job.has_open_rollback:
        return "the run is to be rolled back, or is being rolled back"
    return ""


def _decide_for_complete(
    job: Job, count: Count, now: datetime, overdue_since: datetime
) -> DeletionDecision:
    ttl_seconds = job.spec.ttl_seconds_after_finished
    is_undone = job.status.rollback is not None
    if ttl_seconds is None and (count.has_failures or is_undone):
        words = "the run was rolled back" if is_undone else "nodes failed"
        return DeletionDecision(f"{words} and ttlSecondsAfterFinished is not set: the Job is kept")
    decision = _decide_by_ttl(job, ttl_seconds or 0, now)
    if not decision.may_delete:
        return decision
    blocked_by = _find_disagreement(job, count)
    if not blocked_by:
        return DeletionDecision()
    if count.running or not (count.desired or count.has_completions or count.has_failures):
        return DeletionDecision(blocked_by)
    found = job.condition(ConditionType.COMPLETE)
    if ttl_seconds is None and found is not None and found.reason in _WITH_UNFINISHED_NODES:
        # Nodes are set aside, or did not have to run. Or a failed node is being retried, and does
        # not count as failed meanwhile.
        return DeletionDecision(blocked_by)
    # The controller has counted it as complete. Nodes that joined later run the task, but delay the
    # deletion for a limited time only.
    limit = overdue_since + timedelta(seconds=OVERDUE_SECONDS)
    return (
        DeletionDecision() if now >= limit else DeletionDecision(blocked_by, limit, is_overdue=True)
    )


def _decide_for_failed(job: Job, now: datetime) -> DeletionDecision:
    ttl_seconds = job.spec.ttl_seconds_after_finished
    if ttl_seconds is None:
        return DeletionDecision("the Job failed and ttlSecondsAfterFinished is not set: it is kept")
    if job.status.observed_retry != job.retry_request:
        return DeletionDecision("its failed nodes are about to be retried")
    return _decide_by_ttl(job, ttl_seconds, now)


def _find_disagreement(job: Job, count: Count) -> str:
    """Return why this count does not agree that the Job is complete, "" if it does."""
    if count.inexact:
        return count.inexact
    if count.unfinished:
        done, desired = len(count.completed), len(count.desired)
        return f"{done} of {desired} nodes are completed"
    is_empty = not (count.desired or count.has_completions or count.has_failures)
    # Both counts may agree that nothing is left to do: a failed node was to be retried, and has got
    # a taint. A time to live that was given holds then, too.
    if is_empty and (job.spec.ttl_seconds_after_finished is None or job.reported_desired != 0):
        return "no node is desired, and none has completed or failed"
    return _record_incomplete(job, count)


def _record_incomplete(job: Job, count: Count) -> str:
    """Return which part of the report is missing, "" for none: the report outlives the Job."""
    missing = len(count.desired - count.recorded)
    if missing:
        return f"the JobReport lacks the final state of {missing} nodes"
    totals = job.status.nodes
    if totals is not None and (unfinished := totals.waiting + totals.active + totals.unreachable):
        # These have left since. The numbers may agree, because as many nodes ended without a pod.
        return f"status reports {unfinished} nodes that have not finished"
    reported, least = job.reported_desired, len(count.desired)
    if reported is not None and not least <= reported <= least + len(count.ended_without_pod):
        # Nodes joined or left since the controller's last count, which is also the report's.
        return f"status reports {reported} desired nodes, but there are {least}"
    return ""


def _decide_by_ttl(job: Job, seconds: int, now: datetime) -> DeletionDecision:
    if seconds <= 0:
        return DeletionDecision()
    finished = job.status.completion_time
    if finished is None:
        return DeletionDecision("its status has no completionTime yet")
    undone = job.status.rollback
    if undone is not None and undone.completion_time is not None:
        finished = max(finished, undone.completion_time)
    end = add_seconds(finished, seconds)
    if now >= end:
        return DeletionDecision()
    return DeletionDecision(f"ttlSecondsAfterFinished ends at {format_time(end)}", wake_at=end)
