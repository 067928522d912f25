"""What a Job of a ScheduledJob, as the API server has it, says of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api.job import Job, parse_job
from daemonset_job.api.reasons import CompleteReason
from daemonset_job.api.rollback import has_open_rollback
from daemonset_job.api.states import ConditionType, Phase, parse_phase
from daemonset_job.api.times import parse_time
from job_controller.core.scheduled.snapshot import Run

_WITHIN_LIMIT = CompleteReason.COMPLETED_WITHIN_FAILURE_LIMIT


def read_run(raw: Mapping[str, Any]) -> Run:
    """Return what a raw Job says of its run. One that is being deleted may be at work.

    One that is being rolled back is at work, too.
    """
    meta, status = raw.get("metadata") or {}, raw.get("status") or {}
    phase = parse_phase(status.get("phase"))
    ended = None
    if phase in {Phase.SUCCEEDED, Phase.FAILED}:
        ended = parse_time(status.get("completionTime") or meta.get("creationTimestamp"))
    job = _readable(raw) if ended is not None else None
    is_undone = job is not None and has_open_rollback(job)
    return Run(
        name=meta.get("name") or "",
        uid=meta.get("uid") or "",
        phase=phase,
        ended_at=None if is_undone else ended,
        is_rolling_back=is_undone,
        is_due_again=job is not None and _is_due_again(job),
        deletes_itself=job is not None and _deletes_itself(job),
        resource_version=meta.get("resourceVersion") or "",
        is_being_deleted=bool(meta.get("deletionTimestamp")),
    )


def _is_due_again(job: Job) -> bool:
    """Return whether a person wants more of a run that has ended.

    Its spec was changed, a retry is asked for, or it has failed and is suspended to be corrected.
    One that has succeeded may have nodes at work: some that failed and are retried, or that joined.
    """
    status = job.status
    if status.observed_generation != job.generation:
        return True
    is_retried = status.observed_retry != job.retry_request
    if job.is_true(ConditionType.FAILED):
        return is_retried or job.spec.suspend
    if status.nodes is not None and status.nodes.active:
        return True
    complete = job.condition(ConditionType.COMPLETE)
    if complete is None or not complete.status or complete.reason != _WITHIN_LIMIT:
        return False
    return is_retried or (status.nodes is not None and status.nodes.waiting > 0)


def _deletes_itself(job: Job) -> bool:
    """Return whether the Job of an ended run is deleted without a time to live.

    It is not if nodes have not completed, or if the run was rolled back: see the terminator's
    deletion_decision.
    """
    complete = job.condition(ConditionType.COMPLETE)
    if complete is None or not complete.status or job.status.rollback is not None:
        return False
    is_whole = complete.reason == CompleteReason.ALL_NODES_COMPLETED
    return is_whole and not job.spec.is_continuous and not job.spec.ttl_seconds_after_finished


def _readable(raw: Mapping[str, Any]) -> Job | None:
    try:
        return parse_job(raw)
    except ValueError:
        return None  # the controller ignores it, too
