"""Notifies the administrator's receivers of runs, beside the reconciles and never in their way.

What is due follows from the cached reports. So a restart loses nothing, and a Job that is deleted
right after its end is notified as well: its report stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from daemonset_job.api.job import JobKey
from daemonset_job.api.report import JobReport
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue, namespace_of
from job_controller.actions.writer import Writer
from job_controller.core.notifications import SendResult, due_receivers, find_unusable
from job_controller.core.receivers import Receiver, find_receiver
from job_controller.dependencies import Dependencies
from job_controller.notification_metrics import NO_RECEIVER
from job_controller.notify.deliveries import Deliveries
from job_controller.notify.line import REPORTS_AT_ONCE, Line, Place, log_retry
from job_controller.notify.report_events import emit_not_sent
from job_controller.outbound import Outbound


class Notifier:
    """Has a line for each configured receiver. `look` at a Job's reports whenever they change."""

    def __init__(self, dependencies: Dependencies, writer: Writer) -> None:
        self._dependencies = dependencies
        self._writer = writer
        self._deliveries = Deliveries(writer)
        self._outbound = Outbound()
        self._receivers: tuple[Receiver, ...] = ()
        self._lines: dict[str, Line] = {}
        # Reports that name a receiver which their Job cannot use.
        self._unusable: WorkQueue[Place] = WorkQueue(
            group_of=namespace_of, group_limit=1, base_seconds=1.0
        )
        self._has_changed = asyncio.Event()
        self._apply_settings()
        dependencies.metrics.notifications.watch(self._pending)

    def look(self, key: JobKey) -> None:
        """Have sent what receivers are yet to be notified of, of all runs of that Job's name."""
        self._apply_settings()
        for report in self._writer.caches.reports_of(key):
            if not report.status.notifications or report.shard:
                continue
            if next(find_unusable(report, self._receivers), None) is not None:
                self._unusable.add((report.namespace, report.name))
            for name in due_receivers(report):
                if find_receiver(self._receivers, name, report.namespace) is not None:
                    self._lines[name].add((report.namespace, report.name))

    def give_up(self, report: JobReport) -> None:
        """Report what receivers were not notified of before the report of the run was deleted."""
        for name in report.status.notifications:
            latest = {name: self._deliveries.latest(report, name)}
            lost = replace(report.status, notifications=latest).due_notifications(name)
            if not lost:
                continue
            found = find_receiver(self._receivers, name, report.namespace)
            metrics, result = self._dependencies.metrics.notifications, SendResult.REPORT_DELETED
            metrics.count(name if found is not None else NO_RECEIVER, result, len(lost))
            message = f"{lost[-1].event}: the report of the run was deleted before that"
            emit_not_sent(self._dependencies.events, report, name, message)

    async def run(self) -> None:
        """Send until cancelled."""
        # By the line itself: a receiver that is removed and added again has another one.
        tasks: dict[Line, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_unusable())
                while True:
                    lines = set(self._lines.values())
                    for line in tasks.keys() - lines:
                        tasks.pop(line).cancel()
                    for line in lines - tasks.keys():
                        tasks[line] = group.create_task(line.run())
                    self._has_changed.clear()
                    await self._has_changed.wait()
        finally:
            self._dependencies.metrics.notifications.watch(dict)
            await self._outbound.close()

    def _apply_settings(self) -> None:
        """Have a line for each receiver that is configured now, and no other."""
        receivers = self._dependencies.settings().receivers
        if receivers is self._receivers:
            return
        self._receivers = receivers
        names = [receiver.name for receiver in receivers]
        self._lines = {name: self._lines.get(name) or self._new_line(name) for name in names}
        self._has_changed.set()
        self._dependencies.metrics.notifications.watch(self._pending)

    def _new_line(self, name: str) -> Line:
        return Line(name, self._find, self._dependencies, self._deliveries, self._outbound)

    def _find(self, name: str) -> Receiver | None:
        return next((each for each in self._receivers if each.name == name), None)

    def _pending(self) -> Mapping[str, int]:
        return {name: line.waiting for name, line in self._lines.items()}

    async def _run_unusable(self) -> None:
        await run_workers(
            self._unusable,
            self._record_unusable,
            count=REPORTS_AT_ONCE,
            on_error=self._on_unusable_error,
        )

    async def _record_unusable(self, place: Place) -> None:
        report = self._writer.caches.report(place)
        if report is not None:
            await self._record_report(report)

    async def _record_report(self, report: JobReport) -> None:
        current = {
            name: delivery
            for name in report.status.notifications
            if (delivery := await self._deliveries.current(report, name)) is not None
        }
        report = replace(report, status=replace(report.status, notifications=current))
        for name, after, lost in find_unusable(report, self._receivers):
            await self._deliveries.record(report, name, after)
            metrics = self._dependencies.metrics.notifications
            metrics.count(NO_RECEIVER, SendResult.UNKNOWN_RECEIVER, lost)
            emit_not_sent(self._dependencies.events, report, name, after.message)

    def _on_unusable_error(self, place: Place, error: BaseException) -> float | None:
        log_retry("cannot record that a receiver does not exist, retrying", place, error)
        return None
