"""Short reads: the requests for the end of one pod's log, and what follows from the answers.

``tail_read`` decides on the requests and evaluates the answers.
"""

import asyncio
from collections.abc import Callable

from daemonset_job.api.container import Container
from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.kube.client.errors import BadRequest, KubeError, NotFound
from daemonset_job.kube.client.pod_logs import PodLogOptions
from terminator.logs.attempts import ended_attempt
from terminator.logs.context import ScannerContext
from terminator.logs.findings import Findings
from terminator.logs.findings_report import FindingsReport
from terminator.logs.log_parser import kubelet_error
from terminator.logs.read_policy import ShortRead
from terminator.logs.report_limits import readable_lines
from terminator.logs.tail_read import TailRead
from terminator.logs.targets import ScannedPod

SHORT_TIMEOUT_SECONDS = 10.0


class ShortReads:
    """Does the short reads that the read policy asks for.

    `is_current(scanned)` returns whether the pod is still to be read. `schedule(scanned)` is called
    after a read without final findings, and `on_final(scanned, read, step)` after one that has made
    the findings final.
    """

    def __init__(
        self,
        context: ScannerContext,
        findings_report: FindingsReport,
        *,
        is_current: Callable[[ScannedPod], bool],
        schedule: Callable[[ScannedPod], None],
        on_final: Callable[[ScannedPod, TailRead, ShortRead], None],
    ) -> None:
        self._context = context
        self._findings_report = findings_report
        self._is_current = is_current
        self._schedule = schedule
        self._on_final = on_final

    async def read(self, scanned: ScannedPod) -> None:
        """Do the next step of a pod if it is a short read; a failure affects this pod only."""
        container, read_state = scanned.container, scanned.read_state
        step = read_state.next_step(container, self._context.clock.monotonic())
        try:
            if isinstance(step, ShortRead) and container is not None:
                await self._do_short(scanned, step, container)
        except KubeError as error:
            assert isinstance(step, ShortRead)
            is_missing = isinstance(error, BadRequest | NotFound)
            is_lost = read_state.short_read_failed(
                step, self._context.clock.monotonic(), is_missing=is_missing
            )
            if is_lost and self._is_current(scanned):
                # In mode Exit the exit code decides then.
                self._findings_report.report_lines(scanned, Findings())
            self._context.metrics.short_reads.labels("failed").inc()
            self._context.read_errors.record_error(scanned, error)
        except Exception as error:  # noqa: BLE001 - one log's failure affects no other
            if isinstance(step, ShortRead):
                read_state.short_read_failed(
                    step, self._context.clock.monotonic(), is_missing=False
                )
            self._context.read_errors.record_defect(scanned, error)
        except asyncio.CancelledError:
            # Either everything ends, or there are too many slow reads: then it is read later.
            if isinstance(step, ShortRead):
                read_state.short_read_failed(
                    step, self._context.clock.monotonic(), is_missing=False
                )
            raise
        finally:
            scanned.is_queued = False
            if not read_state.findings.is_final:
                self._schedule(scanned)

    async def _do_short(self, scanned: ScannedPod, step: ShortRead, container: Container) -> None:
        """Read the end of the log; `container` is the state before."""
        read_state, pod = scanned.read_state, scanned.target.pod
        log = read_state.log_of(step)
        cursor = log.cursor if step.use_cursor and log.cursor.timestamp else None
        read = TailRead(scanned.target.matcher, log.findings, cursor, log.unfinished)
        while read.request is not None:
            options = PodLogOptions(
                CONTAINER_NAME,
                step.previous,
                since_time=cursor.since if cursor is not None else None,
                tail_lines=read.request.lines,
            )
            answer = await self._context.client.read_pod_log(
                pod.namespace,
                pod.name,
                options,
                limit_bytes=read.request.max_bytes,
                timeout_seconds=SHORT_TIMEOUT_SECONDS,
            )
            self._context.metrics.log_bytes.inc(len(answer))
            if message := kubelet_error(answer):
                raise NotFound(message)
            await self._context.parse(scanned, read.feed_in_portions(answer), len(answer))
        self._context.metrics.short_reads.labels("done").inc()
        if not read_state.is_of_next_instance(step, read.span):  # else it is read once more
            self._evaluate(scanned, step, container, read)

    def _evaluate(
        self, scanned: ScannedPod, step: ShortRead, container: Container, read: TailRead
    ) -> None:
        """Take what a read has found into the state of the pod, and report what is to be reported.

        Nothing is awaited here: a stream may change the findings meanwhile.
        """
        read_state = scanned.read_state
        log = read_state.log_of(step)
        is_streamed = read_state.is_streamed(log)
        is_behind = bool(log.cursor.timestamp) and read.span.first_at > log.cursor.timestamp
        # A stream does not fill the gap before the end of a task in time: that is reported now.
        log.take_read(read, is_streaming=is_streamed and container.state == "running")
        read_state.accept_findings(log)
        scanned.has_warned = False
        now = self._context.clock.monotonic()
        is_end = read_state.short_read_done(
            step, container, read.cursor, read.unfinished, now, is_behind=is_behind
        )
        if read_state.findings.is_final:
            if read.has_decided and read_state.findings is log.findings:
                self._on_final(scanned, read, step)
            return
        if self._is_current(scanned):
            self._context.progress_report.report(scanned, log)
        if is_end and self._is_current(scanned):
            log.findings.attempt = ended_attempt(
                step,
                container,
                scanned.container,
                read.earliest_at,
                has_succeeded=not scanned.target.matcher.has_token and container.exit_code == 0,
            )
            self._findings_report.report_ended(scanned, step, container, read)
        elif self._is_current(scanned) and read_state.takes_lines(
            step, container, has_lines=bool(readable_lines(log.findings.last_lines, 1))
        ):
            self._findings_report.report_lines(scanned, log.findings)
        if not is_streamed:
            # A stream continues after them; otherwise the next read returns them again.
            log.findings.last_lines = ()
        if step.previous and is_end:
            read_state.drop_previous_log()
