"""What the plugin shows of a rollback: of the one that undoes a run, or none. Pure.

All texts of the cluster are cleaned here, as those of a run are in `run_view`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition
from daemonset_job.api.reasons import RolledBackReason
from daemonset_job.api.rollback import is_rollback_requested
from daemonset_job.api.rollback_status import RollbackStatus
from daemonset_job.api.states import ConditionType
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.tables import shorten

_TEXT_LIMIT: Final = 1024
_NAME_LIMIT: Final = 253
# Names of rollback Jobs and of their reports: a Job of a rollback has 1,000 nodes.
NAMES_LIMIT: Final = 100
_MESSAGE_LINES: Final = 4
# The last one: the Job has no `spec.rollback`, so the run is as it was before the request.
_ENDS: Final = (
    RolledBackReason.ROLLBACK_FAILED,
    RolledBackReason.ROLLBACK_CANCELLED,
    RolledBackReason.ROLLBACK_NOT_POSSIBLE,
)


@dataclass(frozen=True, slots=True)
class RollbackView:
    """A rollback. `reason` is that of the condition, such as RollingBack.

    `jobs` are the Jobs that undo the change, and `reports` their reports. `desired` nodes are to be
    rolled back, `completed` of them are. The names of nodes are folded.
    """

    reason: str
    is_ended: bool = False
    has_succeeded: bool = False
    message: str = ""
    jobs: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    desired: int = 0
    completed: int = 0
    failed: int = 0
    unreachable: int = 0
    failed_names: str = ""
    unreachable_names: str = ""
    requested_by: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether the run is rolled back, or will be."""
        return self.reason != RolledBackReason.ROLLBACK_NOT_POSSIBLE

    @property
    def named_job(self) -> str:
        """The Job that the message is about, else the last one; "" without a Job.

        An earlier Job of the rollback goes on, or fails, when its nodes are back.
        """
        places = {job: self.message.find(f"Job {job} ") for job in self.jobs}
        named = [job for job, place in places.items() if place >= 0]
        return min(named, key=lambda job: places[job], default=self.jobs[-1] if self.jobs else "")

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that says how the rollback ended: PARTIAL if it left out nodes."""
        if not self.has_succeeded:
            return ExitCode.FAILURE
        return ExitCode.SUCCESS if self.completed >= self.desired else ExitCode.PARTIAL

    @property
    def counts(self) -> str:
        """The numbers of nodes, such as `2 of 3 nodes rolled back, 1 unreachable`."""
        others = {"failed": self.failed, "unreachable": self.unreachable}
        parts = [f"{self.completed} of {self.desired} nodes rolled back"]
        return ", ".join([*parts, *(f"{count} {word}" for word, count in others.items() if count)])

    @property
    def line(self) -> str:
        """The rollback in one line."""
        return f"{self.reason}: {self.counts}" if self.desired else self.reason


def view_rollback(
    status: RollbackStatus | None, conditions: Iterable[Condition]
) -> RollbackView | None:
    """Return the rollback that a Job or a report has on record, None if there is none."""
    found = next((each for each in conditions if each.type == ConditionType.ROLLED_BACK), None)
    if status is None and found is None:
        return None
    known = status or RollbackStatus()
    has_succeeded = found.status is True if found else _is_whole(known)
    reason = _text(found.reason) if found else _reason(known)
    return RollbackView(
        reason=reason,
        is_ended=has_succeeded or reason in _ENDS or known.completion_time is not None,
        has_succeeded=has_succeeded,
        message=_text((found.message if found else "") or known.message),
        jobs=tuple(map(_name, known.jobs[:NAMES_LIMIT])),
        reports=tuple(map(_name, known.reports[:NAMES_LIMIT])),
        desired=known.desired,
        completed=known.completed,
        failed=known.failed,
        unreachable=known.unreachable,
        failed_names=_text(known.failed_names),
        unreachable_names=_text(known.unreachable_names),
        requested_by=_text(known.requested_by),
    )


def is_rolled_back(job: Job) -> bool:
    """Return whether a Job is rolled back, or will be."""
    found = view_rollback(job.status.rollback, job.status.conditions)
    return is_rollback_requested(job) or (found is not None and found.is_possible)


def rollback_lines(rollback: RollbackView | None, width: int) -> list[str]:
    """Return the rollback as lines of at most `width` columns: how far it is, and what failed."""
    if rollback is None:
        return []
    lines = [f"rollback: {rollback.line}"]
    if rollback.requested_by:
        lines.append(f"  requested by {rollback.requested_by}")
    if rollback.message:
        lines += [f"  {line}" for line in wrap(rollback.message, width - 2)[:_MESSAGE_LINES]]
    if rollback.failed_names:
        lines.append(f"  failed: {rollback.failed_names}")
    if rollback.unreachable_names:
        lines.append(f"  not rolled back, unreachable: {rollback.unreachable_names}")
    return [shorten(line, width) for line in lines]


def rollback_step(rollback: RollbackView, command: str, name: str) -> list[str]:
    """Return what a rollback waits for, and the command about its Job; nothing after a success.

    `command` is the plugin's, with a place for a verb and the name of a Job. `name` is that of the
    Job that is rolled back.
    """
    if rollback.has_succeeded or not rollback.jobs:
        return []
    job = rollback.named_job
    if rollback.reason == RolledBackReason.ROLLBACK_CANCELLED:
        return [
            "waits for you: no retry revives the rollback, see which nodes it has not reached",
            "  " + command.format("report", name),
        ]
    if not rollback.is_ended:
        return [
            f"waits for: the rollback, which Job {job} does",
            "  " + command.format("status", job) + " --watch",
        ]
    return [
        f"waits for you: correct the node, then retry Job {job}, which does the rollback",
        "  " + command.format("logs", job) + " --failed",
        "  " + command.format("retry --failed", job),
    ]


def _is_whole(known: RollbackStatus) -> bool:
    return known.completion_time is not None and not known.failed


def _reason(known: RollbackStatus) -> str:
    """Return the reason as the condition has it, for a report that has no condition."""
    if known.completion_time is None:
        return RolledBackReason.ROLLING_BACK
    if known.failed:
        return RolledBackReason.ROLLBACK_FAILED
    if known.completed < known.desired:
        return RolledBackReason.ROLLED_BACK_PARTLY
    return RolledBackReason.ROLLED_BACK


def _text(text: str) -> str:
    return clean_text(text, _TEXT_LIMIT)


def _name(text: str) -> str:
    return clean_text(text, _NAME_LIMIT)
