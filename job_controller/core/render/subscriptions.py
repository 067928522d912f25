"""Which receivers are to be notified of a run, as its report has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from daemonset_job.api.notifications import Delivery, Subscription, find_occurrences
from daemonset_job.api.report_status import ReportStatus


def with_subscriptions(
    before: ReportStatus, after: ReportStatus, wanted: Iterable[Subscription]
) -> ReportStatus:
    """Return the status `after` with a delivery for each receiver that the Job names.

    What each was notified of stays. A receiver that is added during the run is not notified of what
    happened before.
    """
    past = find_occurrences(before.start_time, before.history)
    new = Delivery(event=past[-1].event, time=past[-1].time) if past else Delivery()
    known = before.notifications
    rows = {
        each.receiver: replace(known.get(each.receiver, new), events=tuple(each.events))
        for each in wanted
    }
    return replace(after, notifications=rows)


def with_current_deliveries(status: ReportStatus, current: ReportStatus) -> ReportStatus:
    """Return the status to be written, with what the receivers were notified of until now.

    The notifier records that beside the reconciles. A status that was decided on an older report
    would have a notification sent again. Who is to be notified, and of what, it says itself.
    """
    known = current.notifications
    rows = {
        name: replace(known.get(name, delivery), events=delivery.events)
        for name, delivery in status.notifications.items()
    }
    return replace(status, notifications=rows)
