"""Records in reports what was sent, and knows it until the caches have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from daemonset_job.api.notifications import Delivery
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.kube.client.errors import NotFound
from daemonset_job.kube.client.resource import JOB_REPORTS
from job_controller.actions.report_patch import patch_report_status
from job_controller.actions.writer import Writer

# A webhook that does not answer in this time is away.
_RECORD_SECONDS: Final = 10.0
# How often it is tried at once: other receivers record in the same report, and so does the ledger.
_TRIES: Final = 5
# Beyond this many, those of reports that are deleted are dropped.
_TIDY_ABOVE: Final = 1000


@dataclass(slots=True)
class _Known:
    report: tuple[str, str]
    delivery: Delivery
    is_written: bool = False


class Deliveries:
    """The deliveries of one process, by the UID of the report and the name of the receiver.

    They are lost in a restart. Then a notification that was sent, and was not recorded yet, is sent
    again: at most one for each report and receiver.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known: dict[tuple[str, str], _Known] = {}

    def find_report(self, place: tuple[str, str]) -> JobReport | None:
        """Return the cached report of that namespace and name."""
        return self._writer.caches.report(place)

    async def current(self, report: JobReport, receiver: str) -> Delivery | None:
        """Return what a receiver was notified of, None if it is not to be notified of this run.

        First it records what could not be recorded before; raises KubeError if it still cannot be.
        """
        cached = report.status.notifications.get(receiver)
        known = self._known.get((report.uid, receiver))
        if known is None or cached is None:
            return cached
        if not known.is_written:
            await self._write(report, receiver, known)
        latest = self.latest(report, receiver)
        if latest == cached:
            self._known.pop((report.uid, receiver), None)
        return latest

    def latest(self, report: JobReport, receiver: str) -> Delivery:
        """Return what a receiver of a report was notified of, also if that is not recorded yet."""
        cached = report.status.notifications[receiver]
        known = self._known.get((report.uid, receiver))
        if known is None or _is_later(cached, known.delivery):
            return cached
        return replace(known.delivery, events=cached.events)

    async def record(self, report: JobReport, receiver: str, delivery: Delivery) -> None:
        """Record in the report what became of a notification; raises KubeError.

        It is not sent again even so, as long as this process lives.
        """
        if len(self._known) > _TIDY_ABOVE:
            self._tidy()
        place = report.namespace, report.name
        known = self._known[report.uid, receiver] = _Known(place, delivery)
        await self._write(report, receiver, known)

    async def _write(self, report: JobReport, receiver: str, known: _Known) -> None:
        """Record a delivery, unless a later one is recorded: what was sent would be repeated."""

        def is_due(found: ReportStatus) -> bool:
            recorded = found.notifications.get(receiver)
            return recorded is None or not _is_later(recorded, known.delivery)

        body = {
            "metadata": {"uid": report.uid, "resourceVersion": report.resource_version},
            "status": {"notifications": {receiver: _patch(known.delivery)}},
        }
        try:
            written = await patch_report_status(
                self._writer.client,
                report,
                body,
                is_due=is_due,
                tries=_TRIES,
                timeout_seconds=_RECORD_SECONDS,
            )
        except NotFound:
            # The report was deleted: nothing is to be sent any more.
            written = None
        known.is_written = True
        if written is not None:
            key = report.namespace, report.job_name
            self._writer.expect_version(key, JOB_REPORTS, written)

    def _tidy(self) -> None:
        caches = self._writer.caches
        self._known = {
            place: known
            for place, known in self._known.items()
            if (found := caches.report(known.report)) is not None and found.uid == place[0]
        }


def _is_later(one: Delivery, other: Delivery) -> bool:
    """Return whether a delivery has dealt with later events than another one.

    A reconcile leaves out what happened before a Job named an event.
    """
    return one.time is not None and other.time is not None and one.time > other.time


def _patch(delivery: Delivery) -> Mapping[str, Any]:
    """Return the fields that the notifier writes; the others are those of a reconcile."""
    raw = delivery.to_raw()
    raw.pop("events", None)
    return {"message": None, **raw}
