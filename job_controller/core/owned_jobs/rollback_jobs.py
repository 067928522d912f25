"""The Jobs of a rollback that there are, and what they have done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.report import merge_evidence, merge_records
from daemonset_job.api.rollback_status import RollbackStatus
from daemonset_job.api.states import NodeState
from job_controller.core.desired.rollback_job import is_of_rollback, rollback_name
from job_controller.core.owned_jobs.outcome import find_owned
from job_controller.core.state.snapshot import Snapshot

# Nodes that come back get further Jobs. With this number of them the rollback has ended.
BATCHES_LIMIT: Final = 32


@dataclass(frozen=True, slots=True)
class RollbackJobs:
    """What there is of the rollback: its Jobs in their order, and the nodes of each outcome.

    `other` is the next Job by name if it does something else than the rollback, "" if not.
    """

    jobs: tuple[Job, ...]
    taken: frozenset[str]
    completed: frozenset[str]
    failed: frozenset[str]
    other: str = ""

    def lost(self, before: RollbackStatus) -> str:
        """Return a Job of the rollback that was there and is not any more, "" for none."""
        there = {owned.name for owned in self.jobs} | {self.other}
        return next((name for name in before.jobs if name not in there), "")

    def unserved(self, owned: Job) -> frozenset[str]:
        """Return the nodes of one of the Jobs that are neither rolled back nor failed."""
        return frozenset(owned.spec.nodes.include) - self.completed - self.failed


def find_rollback_jobs(snapshot: Snapshot) -> RollbackJobs:
    """Return the Jobs of the rollback that there are, in their order, and what they have done."""
    jobs, other = list[Job](), ""
    for number in range(1, BATCHES_LIMIT + 1):
        owned = find_owned(snapshot.owned_jobs, rollback_name(snapshot.job, number))
        if owned is None:
            break
        if not is_of_rollback(snapshot.job, number, owned):
            other = owned.name
            break
        jobs.append(owned)
    completed: set[str] = set()
    failed: set[str] = set()
    for found in jobs:
        reports = [each for each in snapshot.owned_reports if each.job_uid == found.uid]
        done = {name for name, each in merge_evidence(reports).items() if each.is_completed}
        completed |= done
        failed |= {
            name
            for name, record in merge_records(reports).items()
            if record.state == NodeState.FAILED and name not in done
        }
    return RollbackJobs(
        tuple(jobs),
        frozenset(name for owned in jobs for name in owned.spec.nodes.include),
        frozenset(completed),
        frozenset(failed),
        other,
    )
