"""What a decision about a ScheduledJob is made from, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from daemonset_job.api.reasons import Reason
from daemonset_job.api.scheduled_job import ScheduledJob, ScheduleStatus
from daemonset_job.api.states import Phase


@dataclass(frozen=True, slots=True)
class Run:
    """A Job of a ScheduledJob that exists. `ended_at` is None while it has not ended.

    A run that is being rolled back has not ended. `is_due_again`: it has ended, and a person wants
    more of it, on which the controller has yet to act. `deletes_itself`: it has succeeded, and the
    terminator deletes its Job as soon as it has all of the run. `is_being_deleted`: a finalizer
    keeps the Job, such as that of a deletion in the foreground, and its tasks may be at work.
    """

    name: str
    uid: str
    phase: Phase | None = None
    ended_at: datetime | None = None
    is_rolling_back: bool = False
    is_due_again: bool = False
    deletes_itself: bool = False
    is_being_deleted: bool = False
    resource_version: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the run has succeeded or failed; a Job that is being deleted may be at work."""
        return self.ended_at is not None


class StartResult(Enum):
    """What became of a start that was tried in this reconcile."""

    STARTED = "started"
    # By an earlier reconcile: its Job exists, or a report of it.
    WAS_STARTED = "was started"
    REFUSED = "refused"
    NAME_TAKEN = "name taken"


@dataclass(frozen=True, slots=True)
class TriedStart:
    """A start that was tried in this reconcile; `message` is that of a refusal."""

    moment: datetime
    result: StartResult
    message: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleSnapshot:
    """A ScheduledJob and its Jobs, as the API server has them.

    `successes`: when runs whose Job is deleted succeeded, by their reports. `stop_message` says
    that all Jobs of the cluster are stopped, "" if they are not.
    """

    scheduled: ScheduledJob
    runs: tuple[Run, ...] = ()
    successes: tuple[datetime, ...] = ()
    stop_message: str = ""
    tried: TriedStart | None = None


@dataclass(frozen=True, slots=True)
class StartRun:
    """Create the Job for a start."""

    moment: datetime
    name: str


@dataclass(frozen=True, slots=True)
class DeleteRun:
    """Delete a Job unless it has changed since it was read; `is_replaced`: it has not ended."""

    name: str
    uid: str
    resource_version: str = ""
    is_replaced: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """An event on the ScheduledJob."""

    is_warning: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """What to do, in this order: delete, start, and then write the status and send the events.

    After a start was tried, it is decided again: the status says what became of it.
    """

    deletions: tuple[DeleteRun, ...] = ()
    start: StartRun | None = None
    status: ScheduleStatus = field(default_factory=ScheduleStatus)
    events: tuple[ScheduleEvent, ...] = ()
    requeue_after: float | None = None
