"""Reads the logs of all target pods with bounded resources, which namespaces and Jobs share evenly.

``read_policy`` decides on the next read; ``tail_read``, ``instance_log`` and ``matcher``
evaluate answers. Short reads go through one queue, a fixed number at a time. It serves the
namespaces in rotation, and so the Jobs of each. Follow streams have a fixed number of slots, which
the namespaces share. A failure affects one pod only. All state can be lost: the logs are read
again.
"""

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass

from daemonset_job.api.job import JobKey
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.runtime.clock import Clock
from terminator.logs.context import ScannerContext
from terminator.logs.findings_report import FindingsReport, OnFindings
from terminator.logs.follow_streams import FollowStreams
from terminator.logs.pod_timers import PodTimers
from terminator.logs.progress_report import OnProgress, ProgressReport
from terminator.logs.read_policy import ShortRead, Wait
from terminator.logs.read_slots import ReadSlots
from terminator.logs.result_search import ResultSearch
from terminator.logs.short_reads import ShortReads
from terminator.logs.tail_read import TailRead
from terminator.logs.targets import ScannedPod, Target
from terminator.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Limits:
    """How many follow streams may be open and how many short reads may run at a time."""

    streams: int = 256
    short_reads: int = 16


class Scanner:
    """Reads the logs of the targets of `set_targets` and calls `on_findings`.

    `on_findings(job, target, findings)` is called for a token, and when the log of an ended
    instance has none. For a token it is called again by every `set_targets` that still names the
    pod, because the caller may have lost it. A token is also reported if the pod is no longer a
    target. `on_progress(job, target, progress)` is called for the progress of a task at work.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        metrics: Metrics,
        *,
        limits: Limits,
        on_findings: OnFindings,
        on_progress: OnProgress,
    ) -> None:
        self._context = ScannerContext(client, clock, metrics, ProgressReport(on_progress))
        self._on_findings = on_findings
        self._scanned_pods: dict[str, ScannedPod] = {}
        self._by_job: dict[JobKey, set[str]] = {}
        self._timers = PodTimers(clock, self._schedule)
        self._findings_report = FindingsReport(
            self._scanned_pods, ResultSearch(self._context), metrics, on_findings
        )
        short_reads = ShortReads(
            self._context,
            self._findings_report,
            is_current=self._is_current,
            schedule=self._schedule,
            on_final=self._finish_read,
        )
        self._read_slots = ReadSlots(limits.short_reads, short_reads.read, self._is_current)
        self._streams = FollowStreams(
            self._context,
            limit=limits.streams,
            schedule=self._schedule,
            on_final=self._finish,
        )

    # --- what to read --------------------------------------------------------------------

    def set_targets(self, job: JobKey, targets: Iterable[Target]) -> None:
        """Read exactly these pods for `job`, and stop reading its other pods at once."""
        targets_by_uid = {target.pod.uid: target for target in targets}
        for uid in self._by_job.get(job, set()) - targets_by_uid.keys():
            self._drop(uid)
        for uid, target in targets_by_uid.items():
            self._set_target(job, uid, target)
        if targets_by_uid:
            self._by_job[job] = set(targets_by_uid)
        else:
            self._by_job.pop(job, None)
        self._context.metrics.targets.set(len(self._scanned_pods))

    def has_undecided_pods(self, job: JobKey) -> bool:
        """Return whether a log that is still being read could decide about a node of `job`."""
        scanned_pods = (self._scanned_pods.get(uid) for uid in self._by_job.get(job, ()))
        return any(scanned is not None and not scanned.is_decided for scanned in scanned_pods)

    def has_unread_logs(self, job: JobKey) -> bool:
        """Return whether a log of `job` is known to have lines that were not read yet."""
        now = self._context.clock.monotonic()
        for uid in self._by_job.get(job, ()):
            if (scanned := self._scanned_pods.get(uid)) is not None:
                if scanned.search is not None:
                    return True
                step = scanned.read_state.next_step(scanned.target.pod.container, now)
                if not isinstance(step, Wait):
                    return True
                if math.isfinite(step.until) and not scanned.read_state.wants_lines:
                    return True
        return False

    def set_limits(self, limits: Limits) -> None:
        """Change the limits; streams above a lower one stay open until they end."""
        self._read_slots.set_limit(limits.short_reads)
        self._streams.set_limit(limits.streams)

    def _set_target(self, job: JobKey, uid: str, target: Target) -> None:
        scanned = self._scanned_pods.get(uid)
        if scanned is not None and (
            scanned.job != job or not scanned.target.reads_same_log_as(target)
        ):
            self._drop(uid)
            scanned = None
        if scanned is None:
            scanned = self._scanned_pods[uid] = ScannedPod(job, target)
            if target.wants_lines:
                scanned.read_state.want_lines()
            self._schedule(scanned)
            return
        changed = scanned.target.pod.container != target.pod.container
        if target.wants_lines != scanned.target.wants_lines:
            scanned.read_state.want_lines(required=target.wants_lines)
            changed = changed or target.wants_lines
        ended = target.pod.container
        if ended is not None and target.has_succeeded and not scanned.target.has_succeeded:
            # The end of its log may have been read before this was certain: results do not count
            # then, since the kubelet can start the task again.
            scanned.read_state.read_end_again(ended)
            changed = True
        scanned.target = target
        if scanned.is_decided:
            self._on_findings(job, target, scanned.read_state.findings)
        elif changed:
            self._schedule(scanned)

    def _drop(self, uid: str) -> None:
        scanned = self._scanned_pods.pop(uid, None)
        if scanned is None:
            return
        self._context.read_budget.set_read(scanned.namespace, uid, 0)
        self._streams.remove_waiting(scanned)
        for task in (scanned.stream, scanned.search):
            if task is not None:
                task.cancel()

    def _is_current(self, scanned: ScannedPod) -> bool:
        return self._scanned_pods.get(scanned.target.pod.uid) is scanned

    # --- scheduling ----------------------------------------------------------------------

    async def run(self) -> None:
        """Read until cancelled; streams and reads under way end with it."""
        try:
            async with asyncio.TaskGroup() as group:
                self._findings_report.start(group)
                self._read_slots.start(group)
                self._streams.start(group)
                try:
                    await self._timers.run()
                finally:
                    # No new task is started from here on.
                    self._findings_report.stop()
                    self._read_slots.stop()
                    self._streams.stop()
        finally:
            self._read_slots.reset()
            self._context.metrics.targets.set(0)

    def _schedule(self, scanned: ScannedPod) -> None:
        """Queue the next read of a pod, or set a timer for it."""
        if scanned.is_queued or not self._is_current(scanned):
            return
        uid = scanned.target.pod.uid
        namespace = scanned.namespace
        self._streams.remove_waiting(scanned)
        self._context.read_budget.set_read(namespace, uid, scanned.read_state.read_count)
        scanned.read_state.interval_seconds = self._context.read_budget.interval_seconds(namespace)
        step = scanned.read_state.next_step(scanned.container, self._context.clock.monotonic())
        if isinstance(step, ShortRead):
            scanned.is_queued = True
            self._read_slots.push(scanned)
            return
        self._timers.set(scanned, step.until)
        if step.wants_stream:
            self._streams.add_waiting(scanned)

    # --- final findings ------------------------------------------------------------------

    def _finish_read(self, scanned: ScannedPod, read: TailRead, step: ShortRead) -> None:
        self._finish(scanned, is_whole=read.is_whole, previous=step.previous)

    def _finish(
        self, scanned: ScannedPod, *, is_whole: bool = False, previous: bool = False
    ) -> None:
        """Report final findings; also if the pod is gone."""
        if self._is_current(scanned):
            self._streams.remove_waiting(scanned)
        if scanned.stream is not None and scanned.stream is not asyncio.current_task():
            scanned.stream.cancel()
        self._findings_report.report_final(scanned, is_whole=is_whole, previous=previous)
