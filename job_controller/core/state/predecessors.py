"""Whether a run may start after others: `spec.after`. What counts is the newest run of a name.

A Job that exists is the newest run of its name, whatever reports say. Of deleted Jobs the newest
report counts. Nothing is held while a run waits, so waiting runs block no other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.rollback import is_rollback_requested
from daemonset_job.api.states import ConditionType, Phase
from job_controller.core.state.blocker import Blocker
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line

# How many Jobs that wait for each other are looked at, to find one that waits for itself.
CHAIN_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The newest run of a name that `spec.after` has.

    `phase` is None if there is neither a Job nor a report. `waits_for` are the names in the
    `spec.after` of a Job that has not started. `is_undone`: the run is rolled back, or is to be.
    `is_aborted`: a person has ended it, and no retry revives it.
    """

    name: str
    phase: Phase | None = None
    waits_for: tuple[str, ...] = ()
    is_undone: bool = False
    is_aborted: bool = False

    @property
    def has_succeeded(self) -> bool:
        """Whether the run has succeeded, and its work is not undone."""
        return self.phase == Phase.SUCCEEDED and not self.is_undone


def newest_run(name: str, job: Job | None, reports: tuple[JobReport, ...]) -> Predecessor:
    """Return the newest run of a name: that of the Job, or of the newest report.

    A Job whose spec was changed after its success may have further nodes to serve. Until its status
    is about that change, it goes on.
    """
    if job is not None:
        is_undone = job.status.rollback is not None or is_rollback_requested(job)
        if job.is_true(ConditionType.COMPLETE):
            is_of_newest_spec = job.status.observed_generation == job.generation
            phase = Phase.SUCCEEDED if is_of_newest_spec else Phase.RUNNING
            return Predecessor(name, phase, is_undone=is_undone)
        if job.is_true(ConditionType.FAILED):
            return Predecessor(name, Phase.FAILED, is_undone=is_undone, is_aborted=job.is_aborted)
        has_started = job.status.start_time is not None
        shown = job.status.phase if has_started else Phase.PENDING
        return Predecessor(name, shown or Phase.PENDING, () if has_started else job.spec.after)
    first_shards = [report for report in reports if report.shard == 0]
    newest = max(first_shards, key=_creation, default=None)
    if newest is None:
        return Predecessor(name)
    phase = newest.status.phase or Phase.RUNNING
    return Predecessor(name, phase, is_undone=newest.status.rollback is not None)


def find_waiting(job: Job, known: Mapping[str, Predecessor]) -> Blocker | None:
    """Return for which run the start of a Job waits and why, None if it does not."""
    for name in job.spec.after:
        found = known.get(name) or Predecessor(name)
        if found.has_succeeded:
            continue
        words = f"the run starts after Job {name} has succeeded, {_state(job, found, known)}"
        return Blocker(ProgressingReason.WAITING_FOR_JOB, single_line(words, REFUSAL_LIMIT))
    return None


def _state(job: Job, found: Predecessor, known: Mapping[str, Predecessor]) -> str:
    """Return how the sentence about a run that has not succeeded goes on."""
    name = found.name
    if found.phase is None:
        return "and there is neither a Job nor a report of that name: create it, or correct after"
    if (chain := _chain_to(job.name, found, known)) is not None:
        path = " -> ".join((job.name, *chain))
        return f"and that Job waits for this one ({path}): change spec.after of one of them"
    match found.phase:
        case Phase.FAILED | Phase.SUCCEEDED:
            return _state_of_ended(found)
        case Phase.CANCELLED:
            return f"and Job {name} was deleted before its end: create it again"
        case Phase.PENDING if found.waits_for:
            return f"which itself waits for {', '.join(found.waits_for)}"
        case _:
            return f"which is {str(found.phase).lower()}"


def _state_of_ended(found: Predecessor) -> str:
    """Return the same of a run that has failed, or whose success is undone."""
    if found.is_undone:
        return f"and its newest run is rolled back, or is to be: create Job {found.name} again"
    if found.is_aborted:
        return f"and its newest run was aborted: create Job {found.name} again"
    return f"and its newest run has failed: retry Job {found.name}, or create it again"


def _chain_to(
    name: str, start: Predecessor, known: Mapping[str, Predecessor]
) -> tuple[str, ...] | None:
    """Return the names by which a Job waits for that name, None if it does not."""
    paths: list[tuple[str, ...]] = [(start.name,)]
    seen = {start.name}
    while paths:
        path = paths.pop(0)
        for following in known[path[-1]].waits_for if path[-1] in known else ():
            if following == name:
                return (*path, name)
            if following not in seen and len(seen) < CHAIN_LIMIT:
                seen.add(following)
                paths.append((*path, following))
    return None


def _creation(report: JobReport) -> tuple[str, str]:
    created = report.job_created_at
    return created.isoformat() if created is not None else "", report.name
