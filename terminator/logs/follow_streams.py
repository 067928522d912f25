"""Follow streams: a fixed number of open logs, which the namespaces share."""

import asyncio
from collections.abc import Callable
from functools import partial

from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.kube.client.errors import KubeError, Unavailable
from daemonset_job.kube.client.pod_logs import PodLogOptions
from terminator.logs.context import ScannerContext
from terminator.logs.instance_log import StreamRead
from terminator.logs.report_limits import readable_lines
from terminator.logs.stream_slots import StreamSlots
from terminator.logs.tail_read import LARGE_TAIL_LINES
from terminator.logs.targets import ScannedPod

# A silent stream is reopened after this time, because a dead connection stays silent. Tokens that a
# dead stream misses are found by the periodic short reads.
STREAM_IDLE_SECONDS = 300.0


class FollowStreams:
    """Follows the logs of the pods that wait for a stream, as many at a time as `limit` says.

    It streams from `start` to `stop`. `schedule(scanned)` is called when a stream was opened or
    has ended, and when it brings lines while the read state `wants_lines`. `on_final(scanned)` is
    called when its log has final findings.
    """

    def __init__(
        self,
        context: ScannerContext,
        *,
        limit: int,
        schedule: Callable[[ScannedPod], None],
        on_final: Callable[[ScannedPod], None],
    ) -> None:
        self._context = context
        self._limit = limit
        self._schedule = schedule
        self._on_final = on_final
        self._slots: StreamSlots[ScannedPod] = StreamSlots()
        self._open = 0
        self._group: asyncio.TaskGroup | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Stream in tasks of `group`."""
        self._group = group
        self._fill()

    def stop(self) -> None:
        """Open no further stream; those that are open end with the tasks of the group."""
        self._group = None

    def set_limit(self, limit: int) -> None:
        """Change how many streams may be open; those above a lower limit stay open."""
        self._limit = limit
        self._fill()

    def add_waiting(self, scanned: ScannedPod) -> None:
        """Open a stream for the pod as soon as its namespace has a slot."""
        self._slots.add_waiting(scanned.namespace, scanned)
        self._fill()
        self._reclaim(scanned.namespace)

    def remove_waiting(self, scanned: ScannedPod) -> None:
        """Open no stream for the pod; an open one stays open."""
        self._slots.remove_waiting(scanned.namespace, scanned)

    def _fill(self) -> None:
        while self._slots and self._open < self._limit and self._group is not None:
            scanned = self._slots.assign_next()
            scanned.is_yielding_stream = False
            scanned.read_state.stream_opened(self._context.clock.monotonic())
            self._open += 1
            self._context.metrics.streams_open.set(self._open)
            scanned.stream = self._group.create_task(self._run(scanned))
            # A task that is cancelled before it began runs none of its own code.
            scanned.stream.add_done_callback(partial(self._closed, scanned))
            self._schedule(scanned)

    def _reclaim(self, namespace: str) -> None:
        """Cancel a stream of a namespace that has more than its share, if one has."""
        scanned = self._slots.reclaim(namespace, self._limit)
        if scanned is not None and scanned.stream is not None:
            scanned.is_yielding_stream = True
            scanned.stream.cancel()

    async def _run(self, scanned: ScannedPod) -> None:
        failed = True
        try:
            await self._follow_log(scanned)
            failed = False
        except KubeError as error:
            if not (isinstance(error, Unavailable) and error.reason in {"Timeout", "IdleTimeout"}):
                self._context.read_errors.record_error(scanned, error)
        except Exception as error:  # noqa: BLE001 - one log's failure affects no other
            self._context.read_errors.record_defect(scanned, error)
        finally:
            failed = failed and not scanned.is_yielding_stream
            scanned.read_state.stream_ended(self._context.clock.monotonic(), failed=failed)

    def _closed(self, scanned: ScannedPod, _task: asyncio.Task[None]) -> None:
        scanned.stream = None
        self._open -= 1
        self._slots.release(scanned.namespace, scanned)
        self._context.metrics.streams_open.set(self._open)
        if scanned.read_state.is_streaming:
            scanned.read_state.stream_ended(self._context.clock.monotonic(), failed=True)
        self._schedule(scanned)
        self._fill()

    async def _follow_log(self, scanned: ScannedPod) -> None:
        read_state, pod = scanned.read_state, scanned.target.pod
        log = read_state.streamed_log
        stream = StreamRead(scanned.target.matcher, log)
        options = PodLogOptions(
            CONTAINER_NAME,
            since_time=stream.since,
            # Bounds the beginning of the stream if the log is far ahead of the cursor.
            tail_lines=LARGE_TAIL_LINES if stream.since is not None else None,
        )
        async with self._context.client.follow_pod_log(
            pod.namespace, pod.name, options, idle_timeout_seconds=STREAM_IDLE_SECONDS
        ) as chunks:
            async for chunk in chunks:
                self._context.metrics.log_bytes.inc(len(chunk))
                if read_state.findings.is_final:
                    return
                await self._context.parse(scanned, stream.feed_in_portions(chunk), len(chunk))
                go_on = read_state.stream_received(
                    len(chunk),
                    stream.cursor,
                    self._context.clock.monotonic(),
                    self._context.read_budget.of(scanned.namespace),
                )
                read_state.accept_findings(log)
                if log.findings.is_final:
                    self._on_final(scanned)
                    return
                self._context.progress_report.report(scanned, log)
                lines = log.findings.last_lines  # without any, one may have been begun
                if read_state.wants_lines and (not lines or readable_lines(lines, 1)):
                    self._schedule(scanned)
                if not go_on:
                    return
