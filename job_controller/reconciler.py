"""One reconcile of one Job: gather a snapshot, decide, execute the plan.

It is a thin layer around the core. What it remembers may be lost in a restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from loguru import logger

from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.node import Node
from daemonset_job.informers.job_reference import job_reference
from daemonset_job.informers.whole_reports import SUMMARY_RETRY_SECONDS
from daemonset_job.kube.cache.reflector import UNSYNCED_SECONDS
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.runtime.expectations import VersionExpectations
from daemonset_job.runtime.worker import NOTHING_LEFT
from job_controller import whole_runs
from job_controller.actions.daemon_sets import DaemonSetActions
from job_controller.actions.errors import RefusedError, is_refusal
from job_controller.actions.job_status import JobStatusActions
from job_controller.actions.node_changes import NodeActions
from job_controller.actions.owned_jobs import OwnedJobActions
from job_controller.actions.pods import PodActions
from job_controller.actions.reports import ReportActions
from job_controller.actions.writer import Writer
from job_controller.caches import Caches
from job_controller.core.decide import decide
from job_controller.core.drain_actions import DrainAction
from job_controller.core.job_actions import CreateJob, DeleteJob
from job_controller.core.plan import (
    Action,
    ApplyDaemonSet,
    ChangeNodes,
    CheckJobUnchanged,
    CheckNoPodMayStart,
    CreatePodsAgain,
    CreateReport,
    DeleteDaemonSet,
    DeletePods,
    DeleteReport,
    DryRunDaemonSet,
    DryRunNodeChange,
    Plan,
    RefusedWrite,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
    defer_progress_writes,
    refused_write,
)
from job_controller.core.state.snapshot import Snapshot
from job_controller.dependencies import Dependencies
from job_controller.drains import Drains
from job_controller.fresh_nodes import (
    FreshNodeReader,
    NodeRead,
    find_nodes_to_confirm,
    postpone_failed_reads,
    with_fresh_nodes,
)
from job_controller.history import History
from job_controller.memories import Memories
from job_controller.notify.notifier import Notifier
from job_controller.snapshots import cached_snapshot, find_predecessors

# A cache that is behind our own write catches up within milliseconds, unless its watch is broken.
_STALE_RETRY_SECONDS = 0.1


class Reconciler:
    """Brings one Job at a time closer to its spec. Level-triggered and idempotent."""

    def __init__(
        self, dependencies: Dependencies, caches: Caches, written: VersionExpectations[JobKey]
    ) -> None:
        self._dependencies = dependencies
        self._caches = caches
        writer = Writer(dependencies.client, caches, written)
        self._job_status = JobStatusActions(writer, dependencies.clock, dependencies.metrics)
        self._notifier = Notifier(dependencies, writer)
        self._reports = ReportActions(writer, dependencies.metrics, self._notifier.give_up)
        self._daemon_sets = DaemonSetActions(writer)
        self._pods = PodActions(writer)
        self._owned_jobs = OwnedJobActions(writer)
        self._history = History(dependencies, writer, self._reports)
        self._memories = Memories(dependencies, written)
        self._drains = Drains(dependencies, writer)
        self._nodes = NodeActions(writer, dependencies.clock, self._memories.node_changes)
        # What no reconcile waits for, and runs beside them.
        self.beside = (self._notifier.run, self._memories.source_checks.run)
        self._fresh_nodes = FreshNodeReader(dependencies.client, dependencies.clock)

    async def reconcile(self, key: JobKey) -> float | None:
        """Reconcile once; return the seconds until the next time, None for no need.

        NOTHING_LEFT if neither the Job nor anything that it left has to be looked at again.

        Raises KubeError when a write failed and only a retry can help.
        """
        if not self._caches.has_synced(key[0]):
            return UNSYNCED_SECONDS
        self._notifier.look(key)
        await self._drains.settle(key)
        if not self._memories.written.is_ready(key):
            return _STALE_RETRY_SECONDS
        started = time.perf_counter()
        try:
            if (unread := self._caches.unreadable_job(key)) is not None:
                await self._job_status.write_unreadable(key, unread)
                return None
            job = self._caches.job(key)
            if job is not None and self._known_job(key) is None:
                await whole_runs.read_whole(self._caches, job)
                if (job := self._known_job(key)) is None:
                    return SUMMARY_RETRY_SECONDS
            waits = [await self._drains.lift_stray_cordons(key, job)]
            waits.append(await self._history.close_and_prune(key, job))
            if job is None:
                self._memories.forget(key)
                self._drains.forget(key)
            else:
                waits.append(await self._reconcile_job(key))
            nothing = NOTHING_LEFT if job is None else None
            return min((seconds for seconds in waits if seconds is not None), default=nothing)
        finally:
            self._dependencies.metrics.reconcile_seconds.observe(time.perf_counter() - started)

    async def _reconcile_job(self, key: JobKey) -> float | None:
        if (job := self._known_job(key)) is None:
            return _STALE_RETRY_SECONDS
        read: dict[str, NodeRead] = {}
        has_failed = asyncio.Event()
        found = await self._with_due_nodes(key, self._gather(key, job, read), read, has_failed)
        if found is None:
            return _STALE_RETRY_SECONDS
        snapshot, now = found
        drained = await self._drains.with_drains(key, snapshot)
        if drained is not snapshot:
            # The Job may be suspended or changed by now, or all Jobs stopped: the lists take time.
            # And further nodes may be due.
            if (known := self._known_job(key)) is None or known.uid != snapshot.job.uid:
                return _STALE_RETRY_SECONDS
            snapshot = replace(self._gather(key, known, read), drains=drained.drains)
            found = await self._with_due_nodes(key, snapshot, read, has_failed)
            if found is None:
                return _STALE_RETRY_SECONDS
            snapshot, now = found
        job, started = snapshot.job, self._dependencies.clock.monotonic()
        plan = decide(snapshot, now)
        seconds = self._dependencies.clock.monotonic() - started
        self._caches.record_duration(key, seconds)
        plan = self._memories.preview_paces.defer(key, plan, seconds, started + seconds)
        self._memories.source_checks.ask(key, plan.source_queries)
        plan = self._memories.reapply_backoff.defer(key, plan, started)
        plan = self._defer_progress(key, job, plan)
        done: list[Action] = []
        while True:
            try:
                await self._execute(key, snapshot, plan, done)
            except RefusedError as refused:
                # Refused and executed actions are not repeated, so each round has fewer.
                snapshot = self._memories.node_changes.with_changes(key, snapshot)
                after = await self._after_refusal(snapshot, refused)
                moment = self._dependencies.clock.monotonic()
                snapshot = self._memories.refusal_backoff.record(
                    key, refused.write, snapshot, after, moment
                )
                # With the same time: by now, nodes may be due that were not read.
                plan = decide(snapshot, now)
                left = tuple(action for action in plan.actions if action not in done)
                plan = self._memories.reapply_backoff.defer(
                    key, replace(plan, actions=left), moment
                )
            else:
                if any(isinstance(action, DryRunDaemonSet) for action in plan.actions):
                    # That may take long, and nothing looks at the other runs after the start.
                    others = find_predecessors(self._caches, job)
                    snapshot = replace(snapshot, predecessors=others, is_dry_run_done=True)
                    plan = decide(snapshot, self._dependencies.clock.now())
                    continue
                self._memories.refusal_backoff.clear_resolved(key, snapshot)
                waits = (
                    plan.requeue_after,
                    await self._memories.event_causes.look(key, snapshot, plan),
                    await self._memories.pod_checks.look(key, plan),
                    self._fresh_nodes.reread_seconds(),
                    # What was changed is recorded then, and further nodes are changed.
                    0.0 if any(isinstance(each, ChangeNodes) for each in plan.actions) else None,
                )
                return min((seconds for seconds in waits if seconds is not None), default=None)

    async def _with_due_nodes(
        self, key: JobKey, snapshot: Snapshot, read: dict[str, NodeRead], has_failed: asyncio.Event
    ) -> tuple[Snapshot, datetime] | None:
        """Return the snapshot after the nodes that are due were read, and its time.

        None if the Job is another one by now, or gone. They may be Ready again without the cache
        having it, and the run would fail for it. While they are read, others may become due. They
        are added to `read`.
        """
        now = self._dependencies.clock.now()
        while away := self._find_due_nodes(snapshot, now, read):
            read |= await self._fresh_nodes.read(away, has_failed)
            if (known := self._known_job(key)) is None or known.uid != snapshot.job.uid:
                return None
            snapshot = replace(self._gather(key, known, read), drains=snapshot.drains)
            now = self._dependencies.clock.now()
        return snapshot, now

    def _find_due_nodes(
        self, snapshot: Snapshot, now: datetime, read: Mapping[str, NodeRead]
    ) -> Collection[Node]:
        """Return the nodes to be read from the API server before the Job's nodes are assessed."""
        due = (*find_nodes_to_confirm(snapshot, now, read), *self._fresh_nodes.find_due(read))
        return {node.name: node for node in due}.values()

    def _known_job(self, key: JobKey) -> Job | None:
        """Return the Job, None if it was deleted, or reports that it needs are summaries."""
        known = self._caches.job(key)
        return known if known is not None and whole_runs.are_whole(self._caches, known) else None

    def _gather(self, key: JobKey, job: Job, read: Mapping[str, NodeRead]) -> Snapshot:
        """Return the snapshot, with the nodes that were read from the API server."""
        now = self._dependencies.clock.monotonic()
        snapshot = cached_snapshot(self._caches, key, job, self._dependencies.settings())
        snapshot = self._memories.event_causes.with_causes(key, snapshot)
        snapshot = self._memories.pod_checks.with_pods(key, snapshot)
        snapshot = self._memories.refusal_backoff.with_known_refusal(key, snapshot, now)
        snapshot = self._memories.node_changes.with_changes(key, snapshot)
        snapshot = self._memories.source_checks.with_answers(key, snapshot)
        ahead = self._fresh_nodes.ahead_of(snapshot.nodes)
        # What was read last counts, and not that reading the node once more has failed since.
        if fresh := {**read, **ahead}:
            snapshot = replace(snapshot, nodes=with_fresh_nodes(snapshot.nodes, fresh))
        snapshot = self._drains.with_unsettled(key, snapshot)
        snapshot = self._memories.sightings.with_sightings(key, snapshot)
        return postpone_failed_reads(snapshot, read, self._dependencies.clock)

    async def _after_refusal(self, snapshot: Snapshot, refused: RefusedError) -> Snapshot:
        """Return the snapshot with the refused write; raises if it has it already."""
        if refused.write in snapshot.refusals:
            assert refused.__cause__ is not None
            raise refused.__cause__
        after = snapshot.with_refusal(refused.write, refused.message)
        if refused.write is not RefusedWrite.DAEMON_SET:
            return after
        found = snapshot.daemon_set or await self._daemon_sets.find_by_name(snapshot.job)
        return replace(after, daemon_set=found)

    def _defer_progress(self, key: JobKey, job: Job, plan: Plan) -> Plan:
        """Return the plan, without progress-only writes if the last ones were a moment ago."""
        now = self._dependencies.clock.monotonic()
        wait = self._memories.progress_pacers.remaining_seconds(key, now)
        return plan if wait <= 0 else defer_progress_writes(plan, job.status, wait)

    async def _execute(
        self, key: JobKey, snapshot: Snapshot, plan: Plan, done: list[Action]
    ) -> None:
        """Execute the actions in order, adding them to `done`, then send the events.

        It ends with the first failure.
        """
        clock, job = self._dependencies.clock, snapshot.job
        recording = 0.0
        for action in plan.actions:
            logger.debug("executing", action=type(action).__name__)
            started = clock.monotonic()
            try:
                await self._execute_action(key, snapshot, action)
            except KubeError as error:
                write = refused_write(action)
                if write is None or not is_refusal(error):
                    raise
                raise RefusedError(error, write) from error
            done.append(action)
            if isinstance(action, WriteReportStatus | WriteStatus):
                recording += clock.monotonic() - started
        if recording:
            nodes = max(job.reported_desired or 0, len(snapshot.pods))
            self._memories.progress_pacers.record(key, recording, nodes, clock.monotonic())
        for event in plan.events:
            self._dependencies.events.emit(
                job_reference(job), event.type, event.reason, event.message
            )

    async def _execute_action(self, key: JobKey, snapshot: Snapshot, action: Action) -> None:
        job = snapshot.job
        if isinstance(action, DrainAction):
            await self._drains.execute(key, action)
            return
        match action:
            case WriteStatus() | CreateReport() | WriteReportStatus() | DeleteReport():
                await self._record(key, snapshot, action)
            case DryRunDaemonSet() | CreatePodsAgain() | DeleteDaemonSet():
                await self._daemon_sets.execute(key, job, action)
            case ApplyDaemonSet():
                if await self._daemon_sets.apply(key, job, action):
                    now = self._dependencies.clock.monotonic()
                    self._memories.reapply_backoff.record(key, action, now)
            case RemoveSchedulingGates() | DeletePods() | CheckNoPodMayStart():
                await self._pods.execute(key, job, action)
            case CheckJobUnchanged():
                await self._job_status.check_unchanged(key, job)
            case DryRunNodeChange() | ChangeNodes():
                await self._nodes.execute(key, job, action)
            case CreateJob() | DeleteJob():
                await self._owned_jobs.execute(key, job, action)
            case _ as unreachable:
                assert_never(unreachable)

    async def _record(
        self,
        key: JobKey,
        snapshot: Snapshot,
        action: WriteStatus | CreateReport | WriteReportStatus | DeleteReport,
    ) -> None:
        match action:
            case WriteStatus():
                await self._job_status.write(key, snapshot.job, action.status)
            case CreateReport():
                await self._reports.create(key, snapshot.job, action.body)
            case WriteReportStatus():
                await self._write_report(key, snapshot, action)
            case DeleteReport():
                await self._reports.delete_own(key, snapshot, action)
            case _ as unreachable:
                assert_never(unreachable)

    async def _write_report(
        self, key: JobKey, snapshot: Snapshot, action: WriteReportStatus
    ) -> None:
        report = self._reports.find(key, snapshot, action.name)
        if report is None:
            return
        seen = next((known for known in snapshot.reports if known.uid == report.uid), None)
        await self._reports.write_status(key, report, action.status, decided_on=seen)
