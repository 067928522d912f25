"""Reads the logs of all target pods with bounded resources, which namespaces and Jobs share evenly.

Shell: ``read_policy`` decides on the next read; ``tail_read``, ``instance_log`` and ``matcher``
evaluate answers. Short reads go through one queue, a fixed number at a time. It serves the
namespaces in rotation, and so the Jobs of each. Follow streams have a fixed number of slots, which
the namespaces share. A failure affects one pod only. All state can be lost: the logs are read
again.
"""

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.api.objects import Container
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import BadRequest, KubeError, NotFound, Unavailable
from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.fair_queue import FairQueue
from daemonset_job.runtime.workqueue import MIN_DELAY_SECONDS
from terminator.logs.instance_log import StreamRead
from terminator.logs.portion_runner import PortionRunner
from terminator.logs.read_budget import ReadBudget
from terminator.logs.read_errors import ReadErrors
from terminator.logs.read_policy import ShortRead, Wait, ended_attempt
from terminator.logs.result_search import ResultSearch
from terminator.logs.stream_slots import StreamSlots
from terminator.logs.tail_read import LARGE_TAIL_LINES, Findings, TailRead
from terminator.logs.targets import JobKey, ScannedPod, Target
from terminator.metrics import Metrics

# A short read takes milliseconds. One that takes longer than QUEUE_SLOT_SECONDS (an unreachable
# kubelet) gives its slot to the next pod and continues, up to SLOW_READS_LIMIT of them.
QUEUE_SLOT_SECONDS = 1.0
SLOW_READS_LIMIT = 48
SHORT_TIMEOUT_SECONDS = 10.0
# A silent stream is reopened after this time, because a dead connection stays silent. Tokens that a
# dead stream misses are found by the periodic short reads.
STREAM_IDLE_SECONDS = 300.0

OnFindings = Callable[[JobKey, Target, Findings], None]


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
    target.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        metrics: Metrics,
        *,
        limits: Limits,
        on_findings: OnFindings,
    ) -> None:
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._limits = limits
        self._on_findings = on_findings
        self._scanned_pods: dict[str, ScannedPod] = {}
        self._by_job: dict[JobKey, set[str]] = {}
        self._queue: FairQueue[ScannedPod] = FairQueue()
        self._queued = asyncio.Semaphore(0)  # how many pods are in the queue
        self._stream_slots: StreamSlots[ScannedPod] = StreamSlots()  # of follow streams
        self._streams = 0
        self._read_budget = ReadBudget()
        self._slow: dict[asyncio.Task[None], str] = {}  # with their namespaces
        self._read_errors = ReadErrors(metrics)
        self._portion_runner = PortionRunner()
        self._result_search = ResultSearch(client, metrics, self._read_errors, self._portion_runner)
        self._timers: list[tuple[float, int, ScannedPod]] = []
        self._sequence: Iterator[int] = count()
        self._timer_changed = asyncio.Event()
        self._readers = 0
        self._group: asyncio.TaskGroup | None = None

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
        self._metrics.targets.set(len(self._scanned_pods))

    def has_undecided_pods(self, job: JobKey) -> bool:
        """Return whether a log that is still being read could decide about a node of `job`."""
        scanned_pods = (self._scanned_pods.get(uid) for uid in self._by_job.get(job, ()))
        return any(scanned is not None and not scanned.is_decided for scanned in scanned_pods)

    def has_unread_logs(self, job: JobKey) -> bool:
        """Return whether a log of `job` is known to have lines that were not read yet."""
        now = self._clock.monotonic()
        for uid in self._by_job.get(job, ()):
            if (scanned := self._scanned_pods.get(uid)) is not None:
                if scanned.search is not None:
                    return True
                step = scanned.read_state.next_step(scanned.target.pod.container, now)
                if not isinstance(step, Wait) or math.isfinite(step.until):
                    return True
        return False

    def set_limits(self, limits: Limits) -> None:
        """Change the limits; streams above a lower one stay open until they end."""
        self._limits = limits
        self._add_readers()
        self._fill_streams()

    def _set_target(self, job: JobKey, uid: str, target: Target) -> None:
        scanned = self._scanned_pods.get(uid)
        if scanned is not None and (
            scanned.job != job or not scanned.target.reads_same_log_as(target)
        ):
            self._drop(uid)
            scanned = None
        if scanned is None:
            scanned = self._scanned_pods[uid] = ScannedPod(job, target)
            self._schedule(scanned)
            return
        changed = scanned.target.pod.container != target.pod.container
        scanned.target = target
        if scanned.is_decided:
            self._on_findings(job, target, scanned.read_state.findings)
        elif changed:
            self._schedule(scanned)

    def _drop(self, uid: str) -> None:
        scanned = self._scanned_pods.pop(uid, None)
        if scanned is None:
            return
        self._read_budget.set_noisy(scanned.namespace, uid, is_noisy=False)
        self._stream_slots.remove_waiting(scanned.namespace, scanned)
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
                self._group = group
                self._add_readers()
                self._fill_streams()
                try:
                    await self._watch_timers()
                finally:
                    self._group = None  # starts no new task from here on
        finally:
            self._readers = 0
            self._metrics.targets.set(0)

    def _schedule(self, scanned: ScannedPod) -> None:
        """Queue the next read of a pod, or set a timer for it."""
        if scanned.is_queued or not self._is_current(scanned):
            return
        uid = scanned.target.pod.uid
        namespace = scanned.namespace
        self._stream_slots.remove_waiting(namespace, scanned)
        self._read_budget.set_noisy(namespace, uid, is_noisy=scanned.read_state.is_noisy)
        scanned.read_state.interval_seconds = self._read_budget.interval_seconds(namespace)
        step = scanned.read_state.next_step(scanned.container, self._clock.monotonic())
        if isinstance(step, ShortRead):
            scanned.is_queued = True
            self._queue.push(scanned.job, scanned)
            self._queued.release()
            return
        scanned.due = step.until
        if step.until < float("inf"):
            heapq.heappush(self._timers, (step.until, next(self._sequence), scanned))
            if self._timers[0][2] is scanned:
                self._timer_changed.set()
        if step.wants_stream:
            self._stream_slots.add_waiting(namespace, scanned)
            self._fill_streams()
            self._reclaim_stream_slot(namespace)

    async def _watch_timers(self) -> None:
        while True:
            self._timer_changed.clear()
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                due, _, scanned = heapq.heappop(self._timers)
                if scanned.due == due:  # else it was scheduled again meanwhile
                    self._schedule(scanned)
            wait = max(self._timers[0][0] - now, MIN_DELAY_SECONDS) if self._timers else None
            try:
                async with asyncio.timeout(wait):
                    await self._timer_changed.wait()
            except TimeoutError:
                pass

    def _add_readers(self) -> None:
        if self._group is None:
            return
        while self._readers < self._limits.short_reads:
            self._readers += 1
            self._group.create_task(self._read_worker())

    # --- short reads ---------------------------------------------------------------------

    async def _read_worker(self) -> None:
        """Serve the queue, one pod after the other, while the limit allows this worker."""
        while self._readers <= self._limits.short_reads:
            await self._queued.acquire()
            scanned = self._queue.pop()
            if not self._is_current(scanned):
                continue
            if self._group is None:
                return
            read = self._group.create_task(self._read_short(scanned))
            done, _ = await asyncio.wait({read}, timeout=QUEUE_SLOT_SECONDS)
            if done:
                continue
            if self._may_continue_slow_read(scanned.namespace):
                self._slow[read] = scanned.namespace
                read.add_done_callback(self._slow_ended)
            else:
                read.cancel()
        self._readers -= 1

    def _may_continue_slow_read(self, namespace: str) -> bool:
        """Return whether a slow read may continue; cancels one of a namespace with more of them."""
        if len(self._slow) < SLOW_READS_LIMIT:
            return True
        counts = Counter(self._slow.values())
        largest_holder, most = counts.most_common(1)[0]
        if most <= counts[namespace] + 1:
            return False
        oldest = next(read for read, owner in self._slow.items() if owner == largest_holder)
        del self._slow[oldest]
        oldest.cancel()
        return True

    def _slow_ended(self, read: asyncio.Task[None]) -> None:
        self._slow.pop(read, None)

    async def _read_short(self, scanned: ScannedPod) -> None:
        container, read_state = scanned.container, scanned.read_state
        step = read_state.next_step(container, self._clock.monotonic())
        try:
            if isinstance(step, ShortRead) and container is not None:
                await self._do_short(scanned, step, container)
        except KubeError as error:
            assert isinstance(step, ShortRead)
            is_absent = isinstance(error, BadRequest | NotFound)
            read_state.short_read_failed(step, self._clock.monotonic(), is_absent=is_absent)
            self._metrics.short_reads.labels("failed").inc()
            self._read_errors.record_error(scanned, error)
        except Exception as error:  # noqa: BLE001 - one log's failure affects no other
            if isinstance(step, ShortRead):
                read_state.short_read_failed(step, self._clock.monotonic(), is_absent=False)
            self._read_errors.record_defect(scanned, error)
        except asyncio.CancelledError:
            # Either everything ends, or there are too many slow reads: then it is read later.
            if isinstance(step, ShortRead):
                read_state.short_read_failed(step, self._clock.monotonic(), is_absent=False)
            raise
        finally:
            scanned.is_queued = False
            self._after_read(scanned)

    async def _do_short(self, scanned: ScannedPod, step: ShortRead, container: Container) -> None:
        read_state, pod = scanned.read_state, scanned.target.pod
        log = read_state.log_of(step)
        cursor = log.cursor if step.use_cursor and log.cursor.timestamp else None
        matcher = scanned.target.matcher
        read = TailRead(matcher, log.findings, cursor, log.unfinished)
        while read.request is not None:
            answer = await self._client.read_pod_log(
                pod.namespace,
                pod.name,
                container=CONTAINER_NAME,
                max_bytes=read.request.max_bytes,
                since_time=cursor.since if cursor is not None else None,
                tail_lines=read.request.lines,
                previous=step.previous,
                timeout_seconds=SHORT_TIMEOUT_SECONDS,
            )
            self._metrics.log_bytes.inc(len(answer))
            await self._portion_runner.run(
                scanned.job, read.feed_in_portions(answer), len(answer), matcher
            )
        self._metrics.short_reads.labels("done").inc()
        if read_state.is_of_next_instance(step, read.span):
            return  # read once more
        log.take_read(read, is_streaming=read_state.is_streaming and read_state.streamed_log is log)
        read_state.accept_findings(log)
        scanned.has_warned = False
        now = self._clock.monotonic()
        is_end = read_state.short_read_done(step, container, read.cursor, read.unfinished, now)
        if read_state.findings.is_final:
            if read.has_decided and read_state.findings is log.findings:
                self._finish(scanned, is_whole=read.is_whole, previous=step.previous)
            return
        if is_end and self._is_current(scanned):
            first_at = read.span.first_at
            log.findings.attempt = ended_attempt(step, container, scanned.container, first_at)
            if _lacks_results(scanned, step, container) and not read.is_whole:
                self._report_after_search(scanned, log.findings, read.span.last_at, step.previous)
            else:
                self._on_findings(
                    scanned.job,
                    scanned.target,
                    _reportable_findings(scanned, step, container, log.findings),
                )
        if not (read_state.is_streaming and read_state.streamed_log is log):
            # A stream continues after them; otherwise the next read returns them again.
            log.findings.last_lines = ()

    def _after_read(self, scanned: ScannedPod) -> None:
        if self._is_current(scanned) and not scanned.read_state.findings.is_final:
            self._schedule(scanned)

    # --- streams -------------------------------------------------------------------------

    def _fill_streams(self) -> None:
        while (
            self._stream_slots and self._streams < self._limits.streams and self._group is not None
        ):
            scanned = self._stream_slots.assign_next()
            scanned.is_yielding_stream = False
            scanned.read_state.stream_opened(self._clock.monotonic())
            self._streams += 1
            self._metrics.streams_open.set(self._streams)
            scanned.stream = self._group.create_task(self._run_stream(scanned))
            # A task that is cancelled before it began runs none of its own code.
            scanned.stream.add_done_callback(partial(self._stream_closed, scanned))
            self._schedule(scanned)

    def _reclaim_stream_slot(self, namespace: str) -> None:
        """Cancel a stream of a namespace that has more than its share, if one has."""
        scanned = self._stream_slots.reclaim(namespace, self._limits.streams)
        if scanned is not None and scanned.stream is not None:
            scanned.is_yielding_stream = True
            scanned.stream.cancel()

    async def _run_stream(self, scanned: ScannedPod) -> None:
        failed = True
        try:
            await self._follow_log(scanned)
            failed = False
        except KubeError as error:
            if not (isinstance(error, Unavailable) and error.reason in {"Timeout", "IdleTimeout"}):
                self._read_errors.record_error(scanned, error)
        except Exception as error:  # noqa: BLE001 - as above
            self._read_errors.record_defect(scanned, error)
        finally:
            failed = failed and not scanned.is_yielding_stream
            scanned.read_state.stream_ended(self._clock.monotonic(), failed=failed)

    def _stream_closed(self, scanned: ScannedPod, _task: asyncio.Task[None]) -> None:
        scanned.stream = None
        self._streams -= 1
        self._stream_slots.release(scanned.namespace, scanned)
        self._metrics.streams_open.set(self._streams)
        if scanned.read_state.is_streaming:
            scanned.read_state.stream_ended(self._clock.monotonic(), failed=True)
        self._schedule(scanned)
        self._fill_streams()

    async def _follow_log(self, scanned: ScannedPod) -> None:
        read_state, pod, matcher = scanned.read_state, scanned.target.pod, scanned.target.matcher
        log = read_state.streamed_log
        stream = StreamRead(matcher, log)
        async with self._client.pod_log(
            pod.namespace,
            pod.name,
            container=CONTAINER_NAME,
            follow=True,
            since_time=stream.since,
            # Bounds the beginning of the stream if the log is far ahead of the cursor.
            tail_lines=LARGE_TAIL_LINES if stream.since is not None else None,
            idle_timeout_seconds=STREAM_IDLE_SECONDS,
        ) as chunks:
            async for chunk in chunks:
                self._metrics.log_bytes.inc(len(chunk))
                if read_state.findings.is_final:
                    return
                work = stream.feed_in_portions(chunk)
                await self._portion_runner.run(scanned.job, work, len(chunk), matcher)
                go_on = read_state.stream_received(
                    len(chunk), stream.cursor, self._clock.monotonic(), self._read_budget
                )
                read_state.accept_findings(log)
                if log.findings.is_final:
                    self._finish(scanned)
                    return
                if not go_on:
                    return

    # --- findings ------------------------------------------------------------------------

    def _finish(
        self, scanned: ScannedPod, *, is_whole: bool = False, previous: bool = False
    ) -> None:
        """Report final findings, after a search for missing results; also if the pod is gone."""
        findings = scanned.read_state.findings
        if self._is_current(scanned):
            self._stream_slots.remove_waiting(scanned.namespace, scanned)
        if scanned.stream is not None and scanned.stream is not asyncio.current_task():
            scanned.stream.cancel()
        self._metrics.tokens.labels("completed" if findings.completed_at else "failed").inc()
        matcher = scanned.target.matcher
        if findings.completed_at and not is_whole and matcher.results - findings.results.keys():
            self._report_after_search(scanned, findings, findings.completed_at, previous)
        else:
            self._report(scanned, findings)

    def _report_after_search(
        self, scanned: ScannedPod, findings: Findings, until: str, previous: bool
    ) -> None:
        """Report findings after a search for results; without a search if the pod is gone."""
        if self._group is None or not self._is_current(scanned):
            self._report_if_gone(scanned, findings)
            return
        scanned.search = self._group.create_task(
            self._result_search.run(scanned, findings, until, previous)
        )
        # A task that is cancelled before it began runs none of its own code.
        scanned.search.add_done_callback(partial(self._search_ended, scanned, findings))

    def _search_ended(
        self, scanned: ScannedPod, findings: Findings, search: asyncio.Task[None]
    ) -> None:
        scanned.search = None
        if search.cancelled():
            self._report_if_gone(scanned, findings)
        else:
            self._report(scanned, findings)

    def _report_if_gone(self, scanned: ScannedPod, findings: Findings) -> None:
        """Report findings in a log that cannot be read any more.

        The log of a pod that still exists is read and searched by the next leader.
        """
        if scanned.target.pod.uid not in self._scanned_pods:
            self._on_findings(scanned.job, scanned.target, findings)

    def _report(self, scanned: ScannedPod, findings: Findings) -> None:
        if self._is_current(scanned):
            self._on_findings(scanned.job, scanned.target, findings)
        else:
            self._report_if_gone(scanned, findings)


def _reportable_findings(
    scanned: ScannedPod, step: ShortRead, ended: Container, findings: Findings
) -> Findings:
    """Return the findings of an attempt without a token; with results only if it is the last one.

    In mode Exit the results are those of the attempt that completed the node, which is the last.
    """
    newest = scanned.container
    is_newest = newest is not None and newest.restart_count == ended.restart_count
    if step.previous or not is_newest or not findings.attempt:
        # Without an attempt number it is unknown which attempt the log is of.
        return replace(findings, results={})
    return findings


def _lacks_results(scanned: ScannedPod, step: ShortRead, ended: Container) -> bool:
    """Return whether a task of mode Exit has completed, and its log lacks results so far."""
    matcher, findings = scanned.target.matcher, scanned.read_state.log_of(step).findings
    if step.previous or matcher.has_token or not matcher.results - findings.results.keys():
        return False
    return (ended.state, ended.exit_code) == ("terminated", 0)
