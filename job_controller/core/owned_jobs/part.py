"""The Jobs that a rollout needs for a while: which exist, and which to create or to delete."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from daemonset_job.api.job import Job
from job_controller.core.desired.owned_job import owned_name
from job_controller.core.desired.part import Part, PartKind, build_part, is_part, purpose_of
from job_controller.core.job_actions import CreateJob, DeleteJob, OwnedJobAction
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line


def find_part(snapshot: Snapshot, part: Part) -> Job | None:
    """Return the Job that is this part, None if there is none or it is being deleted."""
    found = (job for job in snapshot.owned_jobs if not job.is_terminating)
    return next((job for job in found if is_part(job, snapshot.job, part)), None)


def find_kind(jobs: Iterable[Job], kind: PartKind) -> Job | None:
    """Return a part of that kind, None if there is none."""
    prefix = f"{kind.value}/"
    return next((job for job in jobs if purpose_of(job).startswith(prefix)), None)


def describe_refusal(snapshot: Snapshot) -> str:
    """Return why a part cannot be created, "" if nothing is known to keep it from that."""
    refusals = snapshot.refusals
    if taken := refusals.get(RefusedWrite.OWNED_JOB_NAME):
        words = f"another Job has its name, which has to be deleted: {taken}"
        return single_line(words, REFUSAL_LIMIT)
    if refused := refusals.get(RefusedWrite.OWNED_JOB):
        return single_line(f"the API server refuses a Job of this Job: {refused}", REFUSAL_LIMIT)
    return ""


def part_actions(
    snapshot: Snapshot, parts: Collection[Part], *, may_create: bool, keeps_others: bool = False
) -> list[OwnedJobAction]:
    """Return what to do so that these parts exist and, unless `keeps_others`, no others.

    A part is created once those before it are gone, of which one may have its name. So is a Job
    that only looks like it.
    """
    needed = {owned_name(snapshot.job.name, part.suffix): part for part in parts}
    actions: list[OwnedJobAction] = [
        DeleteJob(job.name, job.uid)
        for job in snapshot.owned_jobs
        if (job.name in needed or (purpose_of(job) and not keeps_others))
        and not job.is_terminating
        and not any(is_part(job, snapshot.job, part) for part in parts)
    ]
    taken = {job.name for job in snapshot.owned_jobs}
    if may_create:
        actions += [
            CreateJob(build_part(snapshot.job, part))
            for name, part in needed.items()
            if name not in taken
        ]
    return actions
