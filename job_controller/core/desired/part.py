"""A Job that a rollout needs for a while: to pull images, or to run the script of a check.

It is known by its purpose, an annotation. That has a hash of what it runs and of what asked for it.
So one of an earlier try, or of an earlier spec, is never taken for the present one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.json_text import json_hash
from daemonset_job.api.states import TextEnum
from job_controller.core.desired.owned_job import build_owned_job, owned_name, runs_as

IMAGE_PULL_SUFFIX: Final = "image-pull"


class PartKind(TextEnum):
    """What such a Job is for."""

    IMAGE_PULL = "image-pull"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class Part:
    """A Job that is needed: the end of its name, its purpose, and its spec."""

    suffix: str
    purpose: str
    spec: Mapping[str, Any]


def make_part(
    kind: PartKind,
    suffix: str,
    spec: Mapping[str, Any],
    *asked_for: str,
    varies: Collection[str] = (),
) -> Part:
    """Return the Job of a kind that runs `spec`; another `asked_for` makes another Job of it.

    So does another value in `spec`, but for the fields that `varies` names.
    """
    known_by = {field: value for field, value in spec.items() if field not in varies}
    return Part(suffix, f"{kind.value}/{json_hash([known_by, *asked_for])}", spec)


def part_suffixes(job: Job) -> tuple[str, ...]:
    """Return the ends of the names that the parts of a Job can have."""
    rollout = job.spec.rollout
    steps = len(rollout.steps) if rollout is not None else 0
    checks = (check_suffix(step) for step in range(1, steps + 1))
    return (IMAGE_PULL_SUFFIX, *checks)


def check_suffix(step: int) -> str:
    """Return the end of the name of the Job that checks the step of that number."""
    return f"check-{step}"


def build_part(parent: Job, part: Part) -> dict[str, Any]:
    """Return the raw Job of a part, which the parent owns."""
    body = build_owned_job(parent, part.suffix, part.spec)
    body["metadata"] |= {"annotations": {names.ANNOTATION_PURPOSE: part.purpose}}
    return body


def purpose_of(job: Job) -> str:
    """Return the purpose of a Job, "" for one that is no such part."""
    return job.annotations.get(names.ANNOTATION_PURPOSE) or ""


def is_part(job: Job, parent: Job, part: Part) -> bool:
    """Return whether a Job is what is rendered for a part.

    Its purpose is not enough: any client may copy it, and let the Job run something else.
    """
    policy, nodes = job.raw_spec.get("failurePolicy") or {}, job.raw_spec.get("nodes") or {}
    return (
        job.name == owned_name(parent.name, part.suffix)
        and purpose_of(job) == part.purpose
        and runs_as(job, part.spec)
        and nodes == part.spec.get("nodes", {})
        and policy.items() >= part.spec.get("failurePolicy", {}).items()
    )
