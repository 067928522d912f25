"""The statuses of a Job whose start is taken back, from the first deletion to the next start."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import FailedReason, ProgressingReason, SuspendedReason
from daemonset_job.api.states import ConditionType, Phase
from daemonset_job.api.times import format_time
from job_controller.core.render.job_status import UNSTARTED_WORDS, set_conditions
from job_controller.core.render.kstatus import CONTINUED, IN_PROGRESS
from job_controller.core.render.suspension import TAKEN_BACK
from job_controller.core.state.begun import NAMES_LIMIT
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line

# Of what the condition `Failed` says once the start of a failed run is taken back.
_FAILURE_LIMIT: Final = 1000


def waiting_status(
    job: Job, pods: Sequence[Pod], unreachable: Collection[str], now: datetime
) -> JobStatus:
    """Return the status of a suspended run whose pods are about to go; it may have failed.

    `unreachable`: the nodes that are not Ready, and whose pods cannot finish terminating.
    """
    nodes = fold({pod.node_name or pod.name for pod in pods}, limit=NAMES_LIMIT)
    words = (
        "spec.suspend is true and no task has begun: as soon as the pods on these nodes are gone, "
        f"every field can be changed: {nodes}"
    )
    reason = ProgressingReason.PAUSED
    if unreachable:
        reason = ProgressingReason.NODES_UNREACHABLE
        words += (
            f"; {fold(unreachable, limit=NAMES_LIMIT)} cannot be reached: a pod there is gone only "
            "when the node is back, or its Node is deleted"
        )
    has_failed = job.is_true(ConditionType.FAILED)
    changes = [Condition(ConditionType.SUSPENDED, True, SuspendedReason.SUSPENDED, words)]
    if not has_failed:
        changes += [
            Condition(ConditionType.PROGRESSING, False, reason, words),
            IN_PROGRESS,
        ]
    return replace(
        job.status,
        phase=Phase.FAILED if has_failed else Phase.PAUSED,
        observed_generation=job.generation,
        conditions=set_conditions(job, changes, now),
    )


def taken_back_status(job: Job, now: datetime) -> JobStatus:
    """Return the status of a suspended Job whose start is taken back, as if it had never started.

    The reason of `Suspended` says that objects of that start may be left. `Failed` says how a start
    failed that was taken back: the report of the next one has that, too.
    """
    changes = [
        Condition(ConditionType.PROGRESSING, False, ProgressingReason.PAUSED, UNSTARTED_WORDS),
        TAKEN_BACK,
        IN_PROGRESS,
        *_failure_conditions(job),
    ]
    kept = {change.type for change in changes}
    return JobStatus(
        phase=Phase.PAUSED,
        observed_generation=job.generation,
        report=job.report_name,
        conditions=tuple(each for each in set_conditions(job, changes, now) if each.type in kept),
    )


def _failure_conditions(job: Job) -> list[Condition]:
    """Return that the run is not failed any more, and how it had failed; none if it never did."""
    failed = job.condition(ConditionType.FAILED)
    if failed is None:
        return []
    if failed.status:
        at = job.status.completion_time or failed.last_transition_time
        when = f" at {format_time(at)}" if at is not None else ""
        words = f"a start failed{when} before any task had begun, and was taken back: "
        words = single_line(f"{words}{failed.message}", _FAILURE_LIMIT)
        failed = Condition(ConditionType.FAILED, False, FailedReason.START_TAKEN_BACK, words)
    return [failed, *([CONTINUED] if job.condition(ConditionType.STALLED) is not None else [])]


def leftovers_status(job: Job, refused: str, now: datetime) -> JobStatus:
    """Return the status while objects of a start that was taken back are deleted.

    `refused` is the answer of the API server if it refuses that, "" if it does not.
    """
    words = "what the Job created before its start was taken back is being deleted"
    reason = ProgressingReason.POD_CHANGE_REFUSED if refused else ProgressingReason.PAUSED
    if refused:
        words = single_line(f"{words}, which the API server refuses: {refused}", REFUSAL_LIMIT)
    change = Condition(ConditionType.PROGRESSING, False, reason, words)
    return replace(
        job.status,
        observed_generation=job.generation,
        conditions=set_conditions(job, [change], now),
    )
