"""Deliberate defects of ScheduledJobs; see `mutants`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

from daemonset_job.api.scheduled_job import ScheduledJob
from job_controller.core.scheduled import decide
from job_controller.core.scheduled.decide import decide_schedule
from job_controller.core.scheduled.snapshot import SchedulePlan, ScheduleSnapshot
from job_controller.core.scheduled.starts import Starts, find_starts
from job_controller.schedules import reconciler
from job_controller.schedules.reconciler import ScheduleReconciler
from tests.simulation.record_mutants import Mutant


@contextmanager
def starts_again() -> Iterator[None]:
    """What was started is forgotten once its Job is gone."""

    def find(scheduled: ScheduledJob, now: datetime) -> Starts:
        status = replace(scheduled.status, last_schedule_time=None)
        return find_starts(replace(scheduled, status=status), now)

    async def no_report(*_: Any) -> tuple[bool, None]:
        return False, None

    with (
        patch.object(decide, "find_starts", find),
        patch.object(ScheduleReconciler, "_find_report", no_report),
    ):
        yield


@contextmanager
def ignores_deadlines_of_starts() -> Iterator[None]:
    """A start is never too late."""

    def find(scheduled: ScheduledJob, now: datetime) -> Starts:
        spec = replace(scheduled.spec, starting_deadline_seconds=None)
        return find_starts(replace(scheduled, spec=spec), now)

    with patch.object(decide, "find_starts", find):
        yield


@contextmanager
def ignores_running_jobs() -> Iterator[None]:
    """A start waits for no Job that has not ended."""
    with patch.object(decide, "_wait", lambda *_: None):
        yield


@contextmanager
def ignores_suspended_schedules() -> Iterator[None]:
    """No ScheduledJob is suspended."""
    with patch.object(decide, "_hold", lambda _: None):
        yield


@contextmanager
def keeps_all_runs() -> Iterator[None]:
    """The limits of the history are not applied."""
    with patch.object(decide, "_excess", lambda *_: ((), None)):
        yield


@contextmanager
def forgets_starts() -> Iterator[None]:
    """Nothing looks at a ScheduledJob when its next start is due."""

    def decide_once(snapshot: ScheduleSnapshot, now: datetime) -> SchedulePlan:
        return replace(decide_schedule(snapshot, now), requeue_after=None)

    with patch.object(reconciler, "decide_schedule", decide_once):
        yield


@contextmanager
def trusts_the_time_of_creation() -> Iterator[None]:
    """No start is before the creation by the clock of the API server, which may be ahead."""

    def find(scheduled: ScheduledJob, now: datetime) -> Starts:
        times = (scheduled.created_at, scheduled.status.last_schedule_time)
        latest = max((each for each in times if each is not None), default=None)
        status = replace(scheduled.status, last_schedule_time=latest)
        return find_starts(replace(scheduled, status=status), now)

    with patch.object(decide, "find_starts", find):
        yield


@contextmanager
def makes_up_for_changed_schedules() -> Iterator[None]:
    """A schedule that was changed counts as if the ScheduledJob had had it from the beginning."""

    def find(scheduled: ScheduledJob, now: datetime) -> Starts:
        created = scheduled.created_at
        since = now if created is None else min(created, now)
        status = replace(scheduled.status, schedule_time=since)
        return find_starts(replace(scheduled, status=status), now)

    with patch.object(decide, "find_starts", find):
        yield


@contextmanager
def counts_changes_from_their_reading() -> Iterator[None]:
    """A change of the schedule counts from when it is read, and not from when it was written."""

    def decide_late(snapshot: ScheduleSnapshot, now: datetime) -> SchedulePlan:
        scheduled = replace(snapshot.scheduled, spec_time=None)
        return decide_schedule(replace(snapshot, scheduled=scheduled), now)

    with patch.object(reconciler, "decide_schedule", decide_late):
        yield


SCHEDULE_MUTANTS: tuple[Mutant, ...] = (
    starts_again,
    ignores_deadlines_of_starts,
    ignores_running_jobs,
    ignores_suspended_schedules,
    keeps_all_runs,
    forgets_starts,
    trusts_the_time_of_creation,
    makes_up_for_changed_schedules,
    counts_changes_from_their_reading,
)
