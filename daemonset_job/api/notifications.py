"""Notifications of a run: what a Job asks for, and what its report says has been sent.

A report says when its run started, and has the run's history. So which notifications are still to
be sent follows from the report alone, also once the Job is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.reasons import HistoryReason
from daemonset_job.api.shape import NUMBER, STRING, TIME, fields, list_of
from daemonset_job.api.states import TextEnum
from daemonset_job.api.times import format_time, parse_whole_seconds


class NotifyEvent(TextEnum):
    """What a Job can have a receiver be notified of: `spec.notify[].events`."""

    STARTED = "Started"
    PAUSED = "Paused"
    WAITING_FOR_APPROVAL = "WaitingForApproval"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    ROLLED_BACK = "RolledBack"
    ROLLBACK_FAILED = "RollbackFailed"


# Entries of a run's history that are notified. Others, such as a retry, are requests of users.
_NOTIFIED: Final[Mapping[str, NotifyEvent]] = {
    HistoryReason.PAUSED: NotifyEvent.PAUSED,
    HistoryReason.WAITING_FOR_APPROVAL: NotifyEvent.WAITING_FOR_APPROVAL,
    HistoryReason.COMPLETED: NotifyEvent.SUCCEEDED,
    HistoryReason.FAILED: NotifyEvent.FAILED,
    HistoryReason.CANCELLED: NotifyEvent.CANCELLED,
    HistoryReason.ROLLED_BACK: NotifyEvent.ROLLED_BACK,
    HistoryReason.ROLLBACK_FAILED: NotifyEvent.ROLLBACK_FAILED,
}
ALL_EVENTS: Final = tuple(NotifyEvent)
# A notification that could not be delivered for an hour is given up: it would only confuse.
DELIVERY_LIMIT_SECONDS: Final = 3600.0

NOTIFY_SHAPE: Final = list_of(fields(receiver=STRING, events=list_of(STRING)))
DELIVERY_SHAPE: Final = fields(
    events=list_of(STRING), event=STRING, time=TIME, sent=NUMBER, failed=NUMBER, message=STRING
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """That a receiver is to be notified of these events of a run; `receiver` is its name."""

    receiver: str
    events: tuple[str, ...] = ALL_EVENTS


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One event of a run that may be notified: which one, when, and the sentence that says it."""

    event: NotifyEvent
    time: datetime
    message: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a receiver has been notified of in one run: a value of `status.notifications`.

    `events` are those that the Job asks for. `event` and `time` are the last occurrence that needs
    no further try, "" and None for none. `sent` and `failed` count notifications that the receiver
    took, and those that were given up. `message` says why the last one failed, "" if it did not.
    """

    events: tuple[str, ...] = ()
    event: str = ""
    time: datetime | None = None
    sent: int = 0
    failed: int = 0
    message: str = ""

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out."""
        raw = {
            "events": [str(event) for event in self.events],
            "event": str(self.event),
            "time": format_time(self.time) if self.time is not None else "",
            "sent": self.sent,
            "failed": self.failed,
            "message": self.message,
        }
        return {key: value for key, value in raw.items() if value}


def parse_notify(raw: Iterable[Mapping[str, Any]] | None) -> tuple[Subscription, ...]:
    """Return `spec.notify`. Never raises for NOTIFY_SHAPE.

    Events that this version does not know never happen.
    """
    return tuple(
        Subscription(
            each.get("receiver") or "",
            tuple(ALL_EVENTS if each.get("events") is None else each["events"]),
        )
        for each in raw or ()
    )


def parse_delivery(raw: Mapping[str, Any]) -> Delivery:
    """Return one value of `status.notifications`. Never raises for DELIVERY_SHAPE."""
    return Delivery(
        events=tuple(raw.get("events") or ()),
        event=raw.get("event") or "",
        time=parse_whole_seconds(raw.get("time")),
        sent=raw.get("sent") or 0,
        failed=raw.get("failed") or 0,
        message=raw.get("message") or "",
    )


def find_occurrences(
    start_time: datetime | None, history: Iterable[HistoryEntry]
) -> list[Occurrence]:
    """Return what has happened in a run that may be notified, the oldest first."""
    found = [] if start_time is None else [Occurrence(NotifyEvent.STARTED, start_time)]
    for entry in history:
        event = _NOTIFIED.get(entry.reason)
        if event is not None and entry.time is not None:
            found.append(Occurrence(event, entry.time, entry.message))
    return found


def find_due(delivery: Delivery, occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    """Return the occurrences that a receiver is yet to be notified of, the oldest first.

    Those that come after the last one that was dealt with. A long history loses its middle; if that
    one is lost as well, those with a later time are left.
    """
    places = [
        place
        for place, each in enumerate(occurrences, 1)
        if (each.event, each.time) == (delivery.event, delivery.time)
    ]
    left = occurrences[places[-1] :] if places else occurrences
    since = None if places else delivery.time
    return [
        each
        for each in left
        if each.event in delivery.events and (since is None or each.time > since)
    ]
