"""Records in reports what was sent, and knows it until the caches have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from daemonset_job.api.notifications import Delivery
from daemonset_job.api.report import JobReport, parse_report
from daemonset_job.kube.client.answers import RawObject
from daemonset_job.kube.client.errors import Conflict, NotFound
from daemonset_job.kube.client.resource import JOB_REPORT_STATUS, JOB_REPORTS
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
        current = replace(known.delivery, events=cached.events)
        if cached == current or _is_later(cached, current):
            self._known.pop((report.uid, receiver), None)
            return cached
        return current

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
        written = await self._patch(report, receiver, known.delivery)
        known.is_written = True
        key = report.namespace, report.job_name
        self._writer.expect_version(key, JOB_REPORTS, written)

    async def _patch(self, report: JobReport, receiver: str, delivery: Delivery) -> RawObject:
        """Record a delivery unless a later one is recorded; return the report, {} if it is gone.

        A record of a former leader can be carried out late. What was sent since would be repeated.
        """
        client, version = self._writer.client, report.resource_version
        for tries_left in reversed(range(_TRIES)):
            body = {
                "metadata": {"uid": report.uid, "resourceVersion": version},
                "status": {"notifications": {receiver: _patch(delivery)}},
            }
            try:
                return await client.merge_patch(
                    JOB_REPORT_STATUS,
                    report.name,
                    body,
                    report.namespace,
                    timeout_seconds=_RECORD_SECONDS,
                )
            except NotFound:
                break
            except Conflict:
                if not tries_left:
                    raise
            found = await client.find(
                JOB_REPORTS, report.name, report.namespace, timeout_seconds=_RECORD_SECONDS
            )
            current = parse_report(found.item) if found.item is not None else None
            if current is None or current.uid != report.uid:
                break
            recorded = current.status.notifications.get(receiver)
            if recorded is not None and _is_later(recorded, delivery):
                return found.item or {}
            version = current.resource_version
        # The report was deleted: nothing is to be sent any more.
        return {}

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
