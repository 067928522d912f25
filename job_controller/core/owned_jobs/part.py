"""A Job that a rollout needs for a while: to pull images, or to run the script of a check.

It is known by its purpose, an annotation of its pods. That has a hash of what it runs and of what
asked for it. So one of an earlier try, or of an earlier spec, is never taken for the present one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.json_text import json_hash
from daemonset_job.api.states import TextEnum
from job_controller.core.desired.manifest import child
from job_controller.core.job_actions import CreateJob, DeleteJob, OwnedJobAction
from job_controller.core.owned_jobs.manifest import build_owned_job, owned_name
from job_controller.core.state.snapshot import Snapshot


class PartKind(TextEnum):
    """What such a Job is for."""

    IMAGE_PULL = "image-pull"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class Part:
    """A Job that is wanted: the end of its name, its purpose, and its spec."""

    suffix: str
    purpose: str
    spec: Mapping[str, Any]


def make_part(kind: PartKind, suffix: str, spec: Mapping[str, Any], *asked_by: str) -> Part:
    """Return the Job of a kind that runs `spec`; `asked_by` tells one try from another."""
    purpose = f"{kind.value}/{json_hash([spec, *asked_by])}"
    template = child(spec, "template")
    metadata = child(template, "metadata")
    annotations = {**child(metadata, "annotations"), names.ANNOTATION_PURPOSE: purpose}
    marked = {**template, "metadata": {**metadata, "annotations": annotations}}
    return Part(suffix, purpose, {**spec, "template": marked})


def purpose_of(job: Job) -> str:
    """Return the purpose of a Job, "" for one that is no such part."""
    value = child(job.spec.template, "metadata", "annotations").get(names.ANNOTATION_PURPOSE)
    return value if isinstance(value, str) else ""


def find_part(jobs: Iterable[Job], part: Part) -> Job | None:
    """Return the Job that is this part, None if there is none or it is being deleted."""
    found = (job for job in jobs if not job.is_terminating and purpose_of(job) == part.purpose)
    return next(found, None)


def find_kind(jobs: Iterable[Job], kind: PartKind) -> Job | None:
    """Return a part of that kind, None if there is none."""
    prefix = f"{kind.value}/"
    return next((job for job in jobs if purpose_of(job).startswith(prefix)), None)


def part_actions(
    snapshot: Snapshot, parts: Iterable[Part], *, may_create: bool
) -> list[OwnedJobAction]:
    """Return what to do so that these parts exist and no others.

    A part is created once those before it are gone, of which one may have its name.
    """
    wanted = {part.purpose: part for part in parts}
    there = {purpose: job for job in snapshot.owned_jobs if (purpose := purpose_of(job))}
    actions: list[OwnedJobAction] = [
        DeleteJob(job.name, job.uid)
        for purpose, job in there.items()
        if purpose not in wanted and not job.is_terminating
    ]
    taken = {job.name for job in snapshot.owned_jobs}
    if may_create:
        actions += [
            CreateJob(build_owned_job(snapshot.job, part.suffix, part.spec))
            for part in wanted.values()
            if owned_name(snapshot.job.name, part.suffix) not in taken
        ]
    return actions
