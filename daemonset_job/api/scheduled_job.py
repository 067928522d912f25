"""A ScheduledJob: a Job is created at each start of its schedule. Parsed once, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.job import DEPTH_LIMIT, is_deep
from daemonset_job.api.job_status import CONDITIONS_SHAPE, Condition, parse_conditions
from daemonset_job.api.managed_fields import find_spec_time
from daemonset_job.api.shape import (
    BOOLEAN,
    METADATA,
    NUMBER,
    OBJECT,
    STRING,
    TIME,
    fields,
    list_of,
)
from daemonset_job.api.states import TextEnum
from daemonset_job.api.times import format_time, parse_time, parse_whole_seconds

SCHEDULING: Final = "Scheduling"
"""The type of its only condition."""

DEFAULT_TIME_ZONE: Final = "UTC"
DEFAULT_SUCCESSFUL_LIMIT: Final = 3
DEFAULT_FAILED_LIMIT: Final = 1


class ConcurrencyPolicy(TextEnum):
    """What happens when a start is due and a run has not ended."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


_POLICIES: Final = {policy.value: policy for policy in ConcurrencyPolicy}
_SHAPE: Final = fields(
    metadata=METADATA,
    spec=fields(
        schedule=STRING,
        timeZone=STRING,
        concurrencyPolicy=STRING,
        startingDeadlineSeconds=NUMBER,
        suspend=BOOLEAN,
        successfulJobsHistoryLimit=NUMBER,
        failedJobsHistoryLimit=NUMBER,
        jobTemplate=fields(metadata=OBJECT, spec=OBJECT),
    ),
    status=fields(
        active=list_of(fields(name=STRING, uid=STRING)),
        observedGeneration=NUMBER,
        lastScheduleTime=TIME,
        lastSuccessfulTime=TIME,
        nextScheduleTime=TIME,
        observedSchedule=STRING,
        observedScheduleTime=TIME,
        conditions=CONDITIONS_SHAPE,
    ),
)


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """When runs start, and what a run is; `template` is the raw `jobTemplate`."""

    schedule: str = ""
    time_zone: str = DEFAULT_TIME_ZONE
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.ALLOW
    starting_deadline_seconds: int | None = None
    suspend: bool = False
    successful_limit: int = DEFAULT_SUCCESSFUL_LIMIT
    failed_limit: int = DEFAULT_FAILED_LIMIT
    template: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A Job that had not ended when the status was written."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """What the controller last wrote.

    `last_schedule_time` never goes back: no start until then happens again. `schedule` and its time
    say since when the spec has this schedule, because starts before that are not made up for.
    """

    active: tuple[ActiveRun, ...] = ()
    observed_generation: int = 0
    last_schedule_time: datetime | None = None
    last_successful_time: datetime | None = None
    next_schedule_time: datetime | None = None
    schedule: str = ""
    schedule_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def scheduling(self) -> Condition | None:
        """The condition, None before the first write."""
        return next((found for found in self.conditions if found.type == SCHEDULING), None)

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; empty fields are left out."""
        times = {
            "lastScheduleTime": self.last_schedule_time,
            "lastSuccessfulTime": self.last_successful_time,
            "nextScheduleTime": self.next_schedule_time,
            "observedScheduleTime": self.schedule_time,
        }
        raw: dict[str, Any] = {
            "active": [{"name": run.name, "uid": run.uid} for run in self.active],
            "observedGeneration": self.observed_generation,
            "observedSchedule": self.schedule,
            "conditions": [condition.to_raw() for condition in self.conditions],
            **{key: format_time(moment) for key, moment in times.items() if moment is not None},
        }
        return {key: value for key, value in raw.items() if value}


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A ScheduledJob: identity, spec and status.

    `spec_time` is when a client last wrote the spec, None if it is not known.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    spec: ScheduleSpec
    created_at: datetime | None = None
    is_terminating: bool = False
    status: ScheduleStatus = field(default_factory=ScheduleStatus)
    spec_time: datetime | None = None


def parse_scheduled_job(raw: Mapping[str, Any]) -> ScheduledJob:
    """Return the ScheduledJob in a raw object.

    Raises ValueError when it has no name or no UID, when its spec is nested too deep, or when a
    field has another type than the expected one.
    """
    _SHAPE(raw)
    meta = raw.get("metadata") or {}
    if not meta.get("name") or not meta.get("uid"):
        raise ValueError("a ScheduledJob without metadata.name or metadata.uid")
    if is_deep(raw.get("spec")):
        raise ValueError(f"its spec is nested more than {DEPTH_LIMIT} levels deep")
    return ScheduledJob(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta.get("resourceVersion") or "",
        generation=int(meta.get("generation") or 0),
        spec=_parse_spec(raw.get("spec") or {}),
        created_at=parse_time(meta.get("creationTimestamp")),
        is_terminating=bool(meta.get("deletionTimestamp")),
        status=_parse_status(raw.get("status") or {}),
        spec_time=find_spec_time(meta),
    )


def _parse_spec(raw: Mapping[str, Any]) -> ScheduleSpec:
    policy = raw.get("concurrencyPolicy") or ""
    successful, failed = raw.get("successfulJobsHistoryLimit"), raw.get("failedJobsHistoryLimit")
    return ScheduleSpec(
        schedule=raw.get("schedule") or "",
        time_zone=raw.get("timeZone") or DEFAULT_TIME_ZONE,
        concurrency_policy=_POLICIES.get(policy, ConcurrencyPolicy.ALLOW),
        starting_deadline_seconds=raw.get("startingDeadlineSeconds"),
        suspend=bool(raw.get("suspend")),
        successful_limit=DEFAULT_SUCCESSFUL_LIMIT if successful is None else successful,
        failed_limit=DEFAULT_FAILED_LIMIT if failed is None else failed,
        template=raw.get("jobTemplate") or {},
    )


def _parse_status(raw: Mapping[str, Any]) -> ScheduleStatus:
    return ScheduleStatus(
        active=tuple(
            ActiveRun(run.get("name") or "", run.get("uid") or "")
            for run in raw.get("active") or ()
        ),
        observed_generation=int(raw.get("observedGeneration") or 0),
        last_schedule_time=parse_whole_seconds(raw.get("lastScheduleTime")),
        last_successful_time=parse_whole_seconds(raw.get("lastSuccessfulTime")),
        next_schedule_time=parse_whole_seconds(raw.get("nextScheduleTime")),
        schedule=raw.get("observedSchedule") or "",
        schedule_time=parse_whole_seconds(raw.get("observedScheduleTime")),
        conditions=parse_conditions(raw.get("conditions") or ()),
    )
