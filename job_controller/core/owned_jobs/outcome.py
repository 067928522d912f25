"""What has become of a Job that a Job owns."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from daemonset_job.api.job import Job
from daemonset_job.api.states import ConditionType, Phase


class OwnedOutcome(Enum):
    """How far an owned Job is. `MISSING`: it does not exist, or is being deleted."""

    MISSING = auto()
    IN_PROGRESS = auto()
    SUCCEEDED = auto()
    FAILED = auto()


def find_owned(jobs: Iterable[Job], name: str) -> Job | None:
    """Return the owned Job of that name, None if there is none or it is being deleted."""
    return next((job for job in jobs if job.name == name and not job.is_terminating), None)


def owned_outcome(owned: Job | None) -> OwnedOutcome:
    """Return how far an owned Job is, by its status."""
    if owned is None:
        return OwnedOutcome.MISSING
    if owned.status.phase == Phase.SUCCEEDED and owned.is_true(ConditionType.COMPLETE):
        return OwnedOutcome.SUCCEEDED
    if owned.status.phase == Phase.FAILED and owned.is_true(ConditionType.FAILED):
        return OwnedOutcome.FAILED
    return OwnedOutcome.IN_PROGRESS


def find_failed(jobs: Iterable[Job]) -> frozenset[str]:
    """Return the UIDs of the owned Jobs that have failed."""
    return frozenset(job.uid for job in jobs if owned_outcome(job) == OwnedOutcome.FAILED)
