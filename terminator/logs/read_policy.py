"""How one pod's log is read: which read comes next, and when.

Pure: time is given (monotonic seconds), nothing is awaited. The rules, in their order:

1. A short read of the end as soon as there is a log. Most tasks have printed their token by then.
2. Otherwise a follow stream, if the scanner has a slot free; else short reads in turn, with
   growing distances. Nobody depends on getting a slot.
3. A stream that brings more than its budget and the shared budget (see ``read_budget``) is closed.
   The pod is then read by short reads only, until it is silent for a moment: a log of a gigabyte
   costs little more than a log of two lines.
4. An open stream is never the only evidence, since it loses lines when the kubelet rotates the
   file: a short read without a cursor looks again every ten seconds or so.
5. When the container has ended, its end is read once more; after a restart, that of the instance
   before. A task that printed the token and then exited is completed.

What one instance printed says nothing of another one: each has findings of its own.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemonset_job.api.objects import Container
from daemonset_job.runtime.backoff import exponential_seconds
from terminator.logs.instance_log import InstanceLog
from terminator.logs.log_parser import Cursor, Line, Span
from terminator.logs.read_budget import ReadBudget
from terminator.logs.tail_read import Findings

# A stream's budget: what it may bring at once, and how much more per second that it is open.
STREAM_BYTES = 256 * 1024
STREAM_BYTES_PER_SECOND = 2 * 1024
# Distance between short reads of a pod without a stream: detection is late by half the running
# time so far, up to five seconds.
POLL_SECONDS = (0.5, 5.0)
POLL_GROWTH = 1.5
# How often a short read checks on an open stream, give or take a quarter.
CHECK_SECONDS = 10.0
SHORT_STREAM_SECONDS = 1.0
RETRY_SECONDS = (0.25, 5.0)
# A log that the kubelet says does not exist is asked for so often before it is given up; the next
# restart, or a change of the pod, starts anew.
ABSENT_LIMIT = 5
# What was printed later than this after the end of an instance is of another one.
END_MARGIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ShortRead:
    """Do a short read now: of the `previous` instance or the current one, from a cursor or not."""

    previous: bool = False
    use_cursor: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before `until` (monotonic seconds, possibly inf), or open a stream if wished."""

    until: float
    wants_stream: bool = False


Step = ShortRead | Wait
# An end of the task: the number of restarts before it, and its time.
_End = tuple[int, datetime | None]


def ended_attempt(
    step: ShortRead, container: Container, newest: Container | None, first_at: str
) -> int:
    """Return which start of the task, from 1, a read of a log's end was about; 0 if in doubt.

    `container` is the state that the step was taken for, `newest` what is known after the read, and
    `first_at` the time of the first line that was read. Between a task's end and the read, the
    kubelet may have started the task again: then the log is that of another start. Its lines tell,
    since their times and that of the end are of the node's one clock. An empty log is taken for
    that of the end: most tasks that fail say nothing, and in doubt each of them would wait long.
    """
    if newest is None or newest.restart_count != container.restart_count:
        return 0
    finished_at = container.last_finished_at
    if not step.previous:
        finished_at = container.finished_at or finished_at
    attempt = container.restart_count + (not step.previous)
    began_at = Cursor(first_at).since
    if began_at is None:
        return attempt
    if finished_at is None:
        return attempt if step.previous else 0
    # Both are cut to whole seconds, and the last lines may be stamped after the end.
    margin = END_MARGIN if step.previous else timedelta()
    return attempt if began_at <= finished_at + margin else 0


def _end_of(container: Container) -> _End:
    """Return what tells the newest end of the task from others."""
    return container.restart_count, container.finished_at or container.last_finished_at


class LogReadState:
    """What is known of reading one pod's log; `spread` in [0, 1) keeps pods from reading in step.

    The scanner asks for the `next_step` and reports what became of it. `log` is what was read of
    the current instance of the container, `previous_log` of the one before. Unless `is_live`, only what
    has ended is read: nothing in a running task's log could decide.
    """

    def __init__(self, spread: float = 0.5, *, is_live: bool = True) -> None:
        self.is_live = is_live
        self.log = InstanceLog()
        self.previous_log = InstanceLog()
        self.streamed_log = self.log  # which of them a stream is of
        self.is_noisy = False
        self.is_streaming = False
        # At most so long between two short reads of a log that is too much for a stream.
        self.interval_seconds = POLL_SECONDS[1]
        self._check_seconds = CHECK_SECONDS * (0.75 + 0.5 * spread)
        self._instance = 0
        # Which end of the task was read last, and which one the container shows.
        self._ended_read: _End = (-1, None)
        self._end: _End = self._ended_read
        self._previous_read = -1
        self._failures = 0
        self._absences = 0
        self._retry_at = -math.inf
        self._decided: Findings | None = None
        self._reset()

    @property
    def findings(self) -> Findings:
        """Return the findings that decide, else those of the current instance."""
        return self._decided or self.log.findings

    def accept_findings(self, log: InstanceLog) -> None:
        """Let the findings in one instance's log decide, if they do: the first ones stay."""
        if log.findings.is_final and self._decided is None:
            self._decided = log.findings

    def log_of(self, step: ShortRead) -> InstanceLog:
        """Return the log that a step reads."""
        return self.previous_log if step.previous else self.log

    def is_of_next_instance(self, step: ShortRead, span: Span) -> bool:
        """Return whether what was known of an instance that is over was of the next one.

        Between its end and a read of its log the kubelet had started the task again. What was known
        is dropped: `span`, which is all of the end of the log, was read in the light of it.
        """
        is_mixed = step.previous and self.previous_log.is_ahead_of(span)
        if is_mixed:
            self.previous_log = InstanceLog()
        return is_mixed

    def _new_instance(self, restart_count: int) -> None:
        # Of one that came and went unseen nothing was read.
        is_next = restart_count == self._instance + 1
        self.previous_log = self.log if is_next else InstanceLog()
        self.log = InstanceLog()
        self._instance = restart_count
        self._absences = 0
        self._reset()

    def _reset(self) -> None:
        self.is_noisy = False
        self._read_at: float | None = None
        self._checked_at = -math.inf
        self._poll_seconds = POLL_SECONDS[0]
        self._stream_failures = 0
        self._stream_at = -math.inf
        self._stream_bytes = 0
        self._stream_was_new = False

    def next_step(self, container: Container | None, now: float) -> Step:
        """Return what to do next, given what Kubernetes says of the task container."""
        if container is None or self.findings.is_final:
            return Wait(math.inf)
        if container.restart_count > self._instance:
            self._new_instance(container.restart_count)
        if now < self._retry_at:
            return Wait(self._retry_at)
        if container.state == "running":
            return self._step_running(now)
        has_ended = container.state == "terminated" or container.last_finished_at is not None
        return self._step_ended(container) if has_ended else Wait(math.inf)

    def _step_ended(self, container: Container) -> Step:
        self._end = _end_of(container)
        if self._ended_read[0] < self._instance:
            return ShortRead()
        if self._end[0] < self._instance or self._end == self._ended_read:
            return Wait(math.inf)
        # While the task waited to be started again it was counted as started, and what was read
        # then was of the end before.
        self.log = InstanceLog()
        return ShortRead()

    def _step_running(self, now: float) -> Step:
        # Also when its end was read already: between the status and that read, the container may
        # have been started again, and the read was one of the new instance.
        if self._previous_read < self._instance - 1:
            return ShortRead(previous=True)
        if not self.is_live:
            return Wait(math.inf)
        if self._read_at is None:
            return ShortRead()
        check_at = self._checked_at + self._check_seconds
        if self.is_streaming:
            return ShortRead() if now >= check_at else Wait(check_at)
        poll_at = self._read_at + self._poll_seconds
        if self.is_noisy:
            poll_at = self._read_at + min(self._poll_seconds, self.interval_seconds)
        if now >= poll_at:
            return ShortRead(use_cursor=not self.is_noisy and now < check_at)
        wants_stream = not self.is_noisy and now >= self._stream_at
        return Wait(poll_at, wants_stream=wants_stream)

    # --- what became of a step -----------------------------------------------------------

    def short_read_done(
        self,
        step: ShortRead,
        container: Container,
        cursor: Cursor,
        unfinished: Line | None,
        now: float,
    ) -> bool:
        """Record a short read that worked; `container` is the state that the step was taken for.

        Returns whether it was the whole end of an instance that is over: nothing more will come.
        """
        self._failures = self._absences = 0
        if step.previous:
            self._confirm(self.previous_log, unfinished, now)
            if unfinished is None:
                self._previous_read = container.restart_count - 1
            return unfinished is None
        if container.restart_count < self._instance:
            return False  # overtaken: that instance is history
        self._confirm(self.log, unfinished, now)
        is_end = container.state != "running" and unfinished is None
        if is_end:
            self._ended_read = _end_of(container)
        if self._read_at is not None and not self.is_streaming:
            self._poll_seconds = min(self._poll_seconds * POLL_GROWTH, POLL_SECONDS[1])
        self._read_at = now
        if not step.use_cursor:
            self._checked_at = now
        if cursor.timestamp and cursor == self.log.cursor:
            self.is_noisy = False  # silent since the last look
        self.log.cursor = max(self.log.cursor, cursor)
        return is_end

    def _confirm(self, log: InstanceLog, unfinished: Line | None, now: float) -> None:
        log.unfinished = unfinished
        if unfinished is not None:
            self._retry_at = now + RETRY_SECONDS[0]

    def short_read_failed(self, step: ShortRead, now: float, *, is_absent: bool) -> None:
        """Record a short read that failed; `is_absent`: the kubelet says there is no such log."""
        self._retry_at = now + exponential_seconds(self._failures, *RETRY_SECONDS)
        self._failures += 1
        self._absences = self._absences + 1 if is_absent else 0
        if self._absences < ABSENT_LIMIT:
            return
        self._absences = 0
        if step.previous:
            self._previous_read = self._instance - 1
        else:
            self._ended_read = (self._instance, self._end[1])

    def stream_opened(self, now: float) -> None:
        """Record that a stream is being opened."""
        self.is_streaming = True
        self.streamed_log = self.log
        self._stream_bytes = 0
        self._stream_was_new = False
        self._stream_at = now
        self._checked_at = max(self._checked_at, now)

    def stream_received(
        self, count: int, cursor: Cursor, now: float, budget: ReadBudget | None = None
    ) -> bool:
        """Record `count` bytes of a stream; return whether it may go on.

        What it brings beyond its own budget is taken from `budget`.
        """
        self._stream_bytes += count
        log = self.streamed_log
        self._stream_was_new = self._stream_was_new or cursor > log.cursor
        log.cursor = max(log.cursor, cursor)
        own_budget = STREAM_BYTES + STREAM_BYTES_PER_SECOND * (now - self._stream_at)
        excess = self._stream_bytes - own_budget
        if excess > 0 and budget is not None and budget.take(min(count, math.ceil(excess)), now):
            self._stream_bytes -= min(count, math.ceil(excess))
            excess = 0
        self.is_noisy = excess > 0
        return not self.is_noisy

    def stream_ended(self, now: float, *, failed: bool) -> None:
        """Record that the stream is over; the end of the log is looked at at once.

        Streams that end soon or bring nothing new are opened again ever more slowly: a container
        may have ended without its status saying so yet.
        """
        self.is_streaming = False
        self.streamed_log.stream_ended()
        self._poll_seconds = POLL_SECONDS[0]
        if not self.is_noisy:
            self._read_at = None
        if failed or not self._stream_was_new or now - self._stream_at < SHORT_STREAM_SECONDS:
            self._stream_failures += 1
        else:
            self._stream_failures = 0
        pause = exponential_seconds(self._stream_failures, *RETRY_SECONDS)
        self._stream_at = now + pause if self._stream_failures else now

    @property
    def failures(self) -> int:
        """How many short reads have failed since the last one that worked."""
        return self._failures
