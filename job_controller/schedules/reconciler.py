"""One reconcile of one ScheduledJob: read, decide, delete, start, write the status.

Everything is read from the API server, and not from a cache. Starts are rare, and a cache that is
late would start a run twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.job import JobKey
from daemonset_job.api.owners import controller_uid
from daemonset_job.api.reasons import Reason
from daemonset_job.api.schedule_reasons import ScheduleEventReason
from daemonset_job.api.scheduled_job import ScheduledJob, parse_scheduled_job
from daemonset_job.api.states import Phase
from daemonset_job.api.times import parse_time
from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.client.errors import AlreadyExists, KubeError, NotFound
from daemonset_job.kube.client.resource import (
    JOB_REPORTS,
    JOBS,
    SCHEDULED_JOB_STATUS,
    SCHEDULED_JOBS,
)
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.recorder import ObjectReference
from job_controller.actions.errors import is_refusal
from job_controller.core.desired.strategic_merge import diff_merge_patch
from job_controller.core.scheduled.decide import (
    DELETIONS_AT_ONCE,
    LISTED_LIMIT,
    REFUSED_SECONDS,
    decide_schedule,
)
from job_controller.core.scheduled.run_manifest import build_run
from job_controller.core.scheduled.snapshot import (
    Run,
    SchedulePlan,
    ScheduleSnapshot,
    StartResult,
    StartRun,
    TriedStart,
)
from job_controller.dependencies import Dependencies
from job_controller.schedules.deletions import RunDeletions
from job_controller.schedules.metrics import ScheduleMetrics
from job_controller.schedules.runs import read_run


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A start that was refused; of the same spec it is not tried again until then (monotonic)."""

    start: StartRun
    uid: str
    generation: int
    until: float


class ScheduleReconciler:
    """Reconciles one ScheduledJob at a time. Level-triggered and idempotent."""

    def __init__(self, dependencies: Dependencies, metrics: ScheduleMetrics) -> None:
        self._client = dependencies.client
        self._events = dependencies.events
        self._clock = dependencies.clock
        self._settings = dependencies.settings
        self._metrics = metrics
        self._deletions = RunDeletions(self._client)
        # Each refusal may have other words, and so change the status, which wakes its ScheduledJob.
        self._refused: dict[JobKey, _Refusal] = {}
        # Since when the API server has had errors of its own at a start (monotonic).
        self._failing: dict[JobKey, tuple[StartRun, float]] = {}

    async def reconcile(self, key: JobKey) -> float | None:
        """Reconcile once; return the seconds until the next time, None for no need.

        Raises KubeError when a request failed and only a retry can help.
        """
        if (scheduled := await self._read(key)) is None:
            self._refused.pop(key, None)
            self._failing.pop(key, None)
            return None
        now, since = self._clock.now(), self._clock.monotonic()
        snapshot = await self._gather(scheduled)
        plan = decide_schedule(snapshot, now)
        if plan.start is not None:
            if (seconds := self._refused_for(key, scheduled, plan.start)) > 0:
                return seconds
            tried, success, created = await self._replace_and_start(snapshot, plan)
            self._metrics.count_start(tried.result)
            if tried.result == StartResult.REFUSED:
                until = self._clock.monotonic() + REFUSED_SECONDS
                refusal = _Refusal(plan.start, scheduled.uid, scheduled.generation, until)
                self._refused[key] = refusal
            else:
                self._failing.pop(key, None)
            if created is not None and not plan.deletions:
                snapshot = replace(snapshot, runs=(*snapshot.runs, created))
            else:
                # With the Job that was there, and without those that were deleted.
                snapshot = await self._gather(scheduled)
            successes = (*snapshot.successes, *([success] if success else []))
            snapshot = replace(snapshot, tried=tried, successes=successes)
            plan = decide_schedule(snapshot, now)
        await self._write_status(scheduled, plan)
        return await self._delete_old(scheduled, plan, since)

    async def _delete_old(
        self, scheduled: ScheduledJob, plan: SchedulePlan, since: float
    ) -> float | None:
        """Delete the Jobs beyond the history; return the seconds until the next look."""
        try:
            await self._deletions.delete_old(scheduled, plan.deletions)
        except KubeError as error:
            left = self._remaining(plan, since)
            if is_refusal(error):
                # It lasts, so the next try is after a while. But a start may be due sooner.
                error.retry_after_seconds = (
                    REFUSED_SECONDS if left is None else min(REFUSED_SECONDS, left)
                )
            raise
        left = self._remaining(plan, since)
        if left is not None and len(plan.deletions) == DELETIONS_AT_ONCE:
            return min(left, 1.0)  # there may be more
        return left

    def _remaining(self, plan: SchedulePlan, since: float) -> float | None:
        """Return the seconds of the plan that are left; its requests may have taken long."""
        if plan.requeue_after is None:
            return None
        return max(plan.requeue_after - (self._clock.monotonic() - since), 0.0)

    def _refused_for(self, key: JobKey, scheduled: ScheduledJob, start: StartRun) -> float:
        """Return for how many seconds more a refused start is not tried again, 0 for none."""
        known = self._refused.get(key)
        if known is None:
            return 0.0
        seconds = known.until - self._clock.monotonic()
        same = (known.start, known.uid, known.generation)
        if seconds > 0 and same == (start, scheduled.uid, scheduled.generation):
            return seconds
        del self._refused[key]
        return 0.0

    async def _read(self, key: JobKey) -> ScheduledJob | None:
        try:
            raw = await self._client.get(SCHEDULED_JOBS, key[1], key[0])
            return parse_scheduled_job(raw)
        except NotFound:
            return None
        except ValueError as error:
            logger.warning("a ScheduledJob cannot be read, and starts nothing", error=str(error))
            return None

    async def _gather(self, scheduled: ScheduledJob) -> ScheduleSnapshot:
        runs = await self._runs(scheduled)
        known = {run.uid for run in runs}
        successes = [
            await self._find_success(scheduled, run.name)
            for run in scheduled.status.active[:LISTED_LIMIT]
            if run.uid not in known
        ]
        return ScheduleSnapshot(
            scheduled,
            runs,
            tuple(moment for moment in successes if moment is not None),
            self._settings().stop_message,
        )

    async def _runs(self, scheduled: ScheduledJob) -> tuple[Run, ...]:
        """Return the Jobs that the ScheduledJob owns."""
        selector = f"{names.LABEL_SCHEDULED_JOB}={scheduled.name}"
        return tuple(
            [
                read_run(raw)
                async for raw in self._list(Selection(JOBS, scheduled.namespace, selector))
                if controller_uid(raw.get("metadata") or {}) == scheduled.uid
            ]
        )

    async def _list(self, what: Selection) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the objects, in pages of which none takes much memory: each may have 1.5 MiB."""
        async for page in Pager(self._client, what).pages():
            for raw in page.items:
                if isinstance(raw, dict):
                    yield raw

    async def _find_success(self, scheduled: ScheduledJob, name: str) -> datetime | None:
        """Return when the run of a deleted Job succeeded, by its report; None if it did not."""
        return (await self._find_report(scheduled, name))[1]

    async def _find_report(
        self, scheduled: ScheduledJob, name: str
    ) -> tuple[bool, datetime | None]:
        """Return whether a run of this name has a report, its Job deleted or not; and its success.

        Another Job may have had the name. Its report lacks the label of the ScheduledJob.
        """
        selector = (
            f"{names.LABEL_JOB}={names.job_label(name)},{names.LABEL_SHARD}=0,"
            f"{names.LABEL_SCHEDULED_JOB}={scheduled.name}"
        )
        is_there = False
        async for report in self._list(Selection(JOB_REPORTS, scheduled.namespace, selector)):
            is_there = True
            status = report.get("status") or {}
            if status.get("phase") == Phase.SUCCEEDED:
                return True, parse_time(status.get("completionTime"))
        return is_there, None

    # --- writing -----------------------------------------------------------------------

    async def _replace_and_start(
        self, snapshot: ScheduleSnapshot, plan: SchedulePlan
    ) -> tuple[TriedStart, datetime | None, Run | None]:
        """Delete the runs that a start replaces, each with its event, and start; as `_start`.

        While one of them cannot be deleted, nothing starts beside it.
        """
        scheduled, start = snapshot.scheduled, plan.start
        assert start is not None
        for run, event in zip(plan.deletions, plan.events, strict=True):
            try:
                await self._deletions.delete(scheduled, run)
            except KubeError as error:
                words = f"Job {run.name}, which it replaces, cannot be deleted: "
                return self._refused_start(scheduled, start, error, words), None, None
            self._emit(scheduled, replace(plan, events=(event,)))
        return await self._start(snapshot, start)

    async def _start(
        self, snapshot: ScheduleSnapshot, start: StartRun
    ) -> tuple[TriedStart, datetime | None, Run | None]:
        """Create the Job of a start unless it was created before; with its success, or as created.

        Our Jobs are deleted when they have succeeded. So a Job that is missing may have run; then
        its report is there, which is created before the first task.
        """
        scheduled = snapshot.scheduled
        if any(run.name == start.name for run in snapshot.runs):
            return TriedStart(start.moment, StartResult.WAS_STARTED), None, None
        was_started, success = await self._find_report(scheduled, start.name)
        if was_started:
            return TriedStart(start.moment, StartResult.WAS_STARTED), success, None
        try:
            body = build_run(scheduled, start)
            created = await self._client.create(JOBS, body, scheduled.namespace)
        except AlreadyExists:
            return TriedStart(start.moment, await self._find_owner(scheduled, start)), None, None
        except KubeError as error:
            return self._refused_start(scheduled, start, error), None, None
        logger.info("created a Job", job=start.name)
        return TriedStart(start.moment, StartResult.STARTED), None, read_run(created)

    def _refused_start(
        self, scheduled: ScheduledJob, start: StartRun, error: KubeError, words: str = ""
    ) -> TriedStart:
        """Return the start as refused, with what `words` add; raises an error that may pass."""
        if not is_refusal(error) and not self._fails_for_long(scheduled, start, error):
            raise error
        message = f"{words}{error.message or error.reason}"
        return TriedStart(start.moment, StartResult.REFUSED, message)

    def _fails_for_long(self, scheduled: ScheduledJob, start: StartRun, error: KubeError) -> bool:
        """Return whether a start is to be reported as refused: a webhook may be away for hours.

        At first the error may pass, and is tried again sooner.
        """
        if error.status < 500:
            return False
        key, now = (scheduled.namespace, scheduled.name), self._clock.monotonic()
        known = self._failing.get(key)
        if known is None or known[0] != start:
            known = self._failing[key] = start, now
        return now - known[1] >= REFUSED_SECONDS

    async def _find_owner(self, scheduled: ScheduledJob, start: StartRun) -> StartResult:
        """Return whether the Job that has the name is of this ScheduledJob."""
        found = await self._client.get(JOBS, start.name, scheduled.namespace)
        is_ours = controller_uid(found.get("metadata") or {}) == scheduled.uid
        return StartResult.WAS_STARTED if is_ours else StartResult.NAME_TAKEN

    async def _write_status(self, scheduled: ScheduledJob, plan: SchedulePlan) -> None:
        """Write the status if it differs; Conflict if the object was changed since it was read."""
        if plan.status != scheduled.status:
            body = {
                "metadata": {
                    "resourceVersion": scheduled.resource_version,
                    "uid": scheduled.uid,
                },
                "status": diff_merge_patch(scheduled.status.to_raw(), plan.status.to_raw()),
            }
            try:
                await self._client.merge_patch(
                    SCHEDULED_JOB_STATUS, scheduled.name, body, scheduled.namespace
                )
            except NotFound:
                return
            except KubeError:
                # The next try finds the Job, and does not say that it was created.
                self._emit(scheduled, plan, only=ScheduleEventReason.RUN_STARTED)
                raise
        self._emit(scheduled, plan)

    def _emit(
        self, scheduled: ScheduledJob, plan: SchedulePlan, *, only: Reason | None = None
    ) -> None:
        about = ObjectReference(
            api_version=names.API_VERSION,
            kind=names.SCHEDULED_KIND,
            namespace=scheduled.namespace,
            name=scheduled.name,
            uid=scheduled.uid,
            resource_version=scheduled.resource_version,
        )
        for event in plan.events:
            if only is not None and event.reason != only:
                continue
            self._events.emit(
                about, "Warning" if event.is_warning else "Normal", event.reason, event.message
            )
