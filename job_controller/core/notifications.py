"""Which notification of a run is sent next, to whom, and what becomes of one that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from daemonset_job.api.notifications import DELIVERY_LIMIT_SECONDS, Delivery, Occurrence
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_summary import FINAL_REPORT_PHASES
from daemonset_job.api.states import TextEnum
from daemonset_job.api.times import add_seconds
from job_controller.core.receivers import Receiver, find_receiver, unknown_message
from job_controller.core.text.sanitize import single_line

PROBLEM_LIMIT: Final = 300


class SendResult(TextEnum):
    """What became of one notification: `result` of dsj_notifications_total."""

    SENT = "sent"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNKNOWN_RECEIVER = "unknown_receiver"
    REPORT_DELETED = "report_deleted"


@dataclass(frozen=True, slots=True)
class Notification:
    """One event of a run of which one receiver is to be notified.

    `is_expired`: it happened more than an hour ago, and is given up.
    """

    receiver: Receiver
    occurrence: Occurrence
    is_expired: bool = False


def due_receivers(report: JobReport) -> Iterator[str]:
    """Return the names of the receivers that are yet to be notified of something of a run."""
    for name in report.status.notifications:
        if report.status.due_notifications(name):
            yield name


def next_notification(
    report: JobReport, delivery: Delivery, receiver: Receiver, now: datetime
) -> Notification | None:
    """Return what a receiver is to be notified of next, in the order in which it happened.

    `delivery` has what it was notified of, and may be newer than that of the report.
    """
    status = replace(report.status, notifications={receiver.name: delivery})
    due = status.due_notifications(receiver.name)
    if not due:
        return None
    is_expired = add_seconds(due[0].time, DELIVERY_LIMIT_SECONDS) <= now
    return Notification(receiver, due[0], is_expired)


def find_unusable(
    report: JobReport, receivers: Iterable[Receiver]
) -> Iterator[tuple[str, Delivery, int]]:
    """Return the receivers that the Job may not use and that the report does not name as such.

    With each is its next delivery, in which nothing is due, and how many notifications were lost.
    """
    known = tuple(receivers)
    for name, delivery in report.status.notifications.items():
        if find_receiver(known, name, report.namespace) is not None:
            continue
        due = report.status.due_notifications(name)
        message = single_line(unknown_message(name, report.namespace), PROBLEM_LIMIT)
        has_ended = report.status.phase in FINAL_REPORT_PHASES
        if not due and (has_ended or delivery.message == message):
            continue
        after = replace(delivery, failed=delivery.failed + len(due), message=message)
        if due:
            after = replace(after, event=due[-1].event, time=due[-1].time)
        yield name, after, len(due)


def after_sending(delivery: Delivery, occurrence: Occurrence) -> Delivery:
    """Return the delivery after the receiver took a notification."""
    return replace(
        delivery,
        event=occurrence.event,
        time=occurrence.time,
        sent=delivery.sent + 1,
        message="",
    )


def after_giving_up(delivery: Delivery, occurrence: Occurrence, why: str) -> Delivery:
    """Return the delivery after a notification was given up; `why` is for the user."""
    return replace(
        delivery,
        event=occurrence.event,
        time=occurrence.time,
        failed=delivery.failed + 1,
        message=single_line(f"{occurrence.event}: {why}", PROBLEM_LIMIT),
    )
