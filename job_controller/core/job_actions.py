"""The requests of a plan that concern the Jobs which a Job owns, see `job_controller.core.plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create a Job that this Job owns; one of the name that it owns already counts as created.

    If a Job that it does not own has the name, the write is refused as `OWNED_JOB_NAME`.
    """

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job that this Job owns, if it is still the one with this `uid`."""

    name: str
    uid: str


OwnedJobAction = CreateJob | DeleteJob
