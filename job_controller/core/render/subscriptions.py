"""Which receivers are to be notified of a run, as its report has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from daemonset_job.api.notifications import (
    Delivery,
    Occurrence,
    Subscription,
    find_due,
    find_occurrences,
)
from daemonset_job.api.report_status import ReportStatus


def with_subscriptions(
    before: ReportStatus, after: ReportStatus, wanted: Iterable[Subscription]
) -> ReportStatus:
    """Return the status `after` with a delivery for each receiver that the Job names.

    What each was notified of stays. A receiver that is added during the run is not notified of what
    happened before. Nor is one of which the Job names more events than until now.
    """
    past = find_occurrences(before.start_time, before.history)
    rows = {
        each.receiver: _subscribed(before.notifications.get(each.receiver), each.events, past)
        for each in wanted
    }
    return replace(after, notifications=rows)


def _subscribed(
    known: Delivery | None, events: tuple[str, ...], past: list[Occurrence]
) -> Delivery:
    """Return the delivery of a receiver that is notified of these events from now on.

    While it is yet to be notified of something before, what follows that counts as well.
    """
    delivery = replace(known or Delivery(), events=events)
    has_more = known is None or not set(events) <= set(known.events)
    if not past or not has_more or (known is not None and find_due(known, past)):
        return delivery
    return replace(delivery, event=past[-1].event, time=past[-1].time)


def with_current_deliveries(
    status: ReportStatus, seen: ReportStatus, current: ReportStatus
) -> ReportStatus:
    """Return the status to be written, with what the receivers were notified of until now.

    It was decided on `seen`. Since then the notifier may have recorded in the report, which is now
    `current`, that a notification is sent. It would be sent again. Who is to be notified, and of
    what, the status says itself.
    """
    newer = {
        name: delivery
        for name, delivery in current.notifications.items()
        if delivery != seen.notifications.get(name)
    }
    rows = {
        name: replace(newer.get(name, delivery), events=delivery.events)
        for name, delivery in status.notifications.items()
    }
    return replace(status, notifications=rows)
