"""Finds rollbacks that are stuck, with the cause that the Job's status has. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.reasons import RolledBackReason
from daemonset_job.api.states import ConditionType
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.tables import duration

# A person has to act: nothing goes on by itself.
_NEEDS_A_PERSON: Final = frozenset(
    {
        RolledBackReason.ROLLBACK_WAITING,
        RolledBackReason.ROLLBACK_FAILED,
        RolledBackReason.ROLLBACK_CANCELLED,
        RolledBackReason.ROLLBACK_NAME_TAKEN,
        RolledBackReason.ROLLBACK_REFUSED,
        RolledBackReason.ROLLBACK_NOT_POSSIBLE,
    }
)


def judge_rollback(job: Job, now: datetime, limit: timedelta) -> Finding | None:
    """Return why a rollback is stuck for longer than `limit`, None if it is not."""
    found = job.status.condition(ConditionType.ROLLED_BACK)
    if found is None or found.status is not False or found.reason not in _NEEDS_A_PERSON:
        return None
    since = found.last_transition_time
    if since is None or now - since <= limit:
        return None
    text = (
        f"{job.namespace}/{job.name} is not rolled back for "
        f"{duration((now - since).total_seconds())}: {found.reason}: {found.message}"
    )
    status = f"kubectl dsjob status {at_job(job.name, job.namespace)}"
    way = f"Correct what the message names. Then: {status}"
    return Finding(Area.JOBS, Level.PROBLEM, text, way)
