"""Decides which read of one pod's log comes next, and when.

Pure: time is given (monotonic seconds), nothing is awaited. The rules, in their order:

1. A short read of the end as soon as there is a log. Most tasks have printed their token by then.
2. Otherwise a follow stream, if a slot is free, else short reads with growing intervals. The result
   does not depend on a slot.
3. A stream that exceeds its own budget and the shared one (see ``stream_state``) is closed. The pod
   is then polled by short reads until its log is silent for a moment. So the bytes read of one log
   have an upper limit, however long it gets.
   A log that grows faster than short reads follow is polled as often. The kubelet may rotate its
   file moments after a token.
4. A stream loses lines when the kubelet rotates the file. So while a stream is open, a short read
   without a cursor checks the log every ten seconds or so.
5. When the container has ended, the end of its log is read once more; after a restart, that of the
   previous instance. A task that printed the token and then exited is completed.
6. Of a task that runs although its node has failed, the last lines are read. If there are none yet,
   they are looked for by the next reads, and when a stream brings something.

Each instance has findings of its own.
"""

import math
from dataclasses import dataclass
from datetime import datetime

from daemonset_job.api.container import Container, ended_count
from daemonset_job.runtime.backoff import exponential_seconds
from terminator.logs.findings import Findings
from terminator.logs.instance_log import InstanceLog
from terminator.logs.log_parser import Cursor, Line, Span
from terminator.logs.read_budget import NOISY_READ, RESUMED_READ, NamespaceBudget
from terminator.logs.stream_state import StreamState

# Interval between short reads of a pod without a stream. A token is found late by half the running
# time so far, at most by five seconds.
POLL_SECONDS = (0.5, 5.0)
POLL_GROWTH = 1.5
# The greatest interval for a log that is read for last lines alone: the task may never print any.
LINES_POLL_SECONDS = 60.0
# How often a short read checks on an open stream, give or take a quarter.
CHECK_SECONDS = 10.0
# Least and greatest delay before a short read is repeated that failed.
RETRY_SECONDS = (0.25, 5.0)
# Give up after this many consecutive "no such log" answers. A restart of the container or a change
# of the pod resets the counter.
MISSING_LOG_LIMIT = 5


@dataclass(frozen=True, slots=True)
class ShortRead:
    """Do a short read now, of the current or the `previous` instance, with or without a cursor."""

    previous: bool = False
    use_cursor: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before `until` (monotonic seconds, possibly inf), except to open a stream."""

    until: float
    wants_stream: bool = False


Step = ShortRead | Wait
# An end of the task: the number of restarts before it, and its time.
_End = tuple[int, datetime | None]


def _end_of(container: Container) -> _End:
    """Return the identity of the newest end of the task.

    A container that is about to be started again may have its next restart count already.
    """
    return ended_count(container) - 1, container.finished_at or container.last_finished_at


class LogReadState:
    """The state of reading one pod's log.

    The scanner asks for the `next_step` and reports its outcome. `log` is the log of the current
    instance of the container, `previous_log` that of the one before. Unless `is_live`, only ended
    instances are read, because no line of a running task's log matters. `spread` in [0, 1) varies
    the intervals, so that pods are not all read at the same time.
    """

    def __init__(self, spread: float = 0.5, *, is_live: bool = True) -> None:
        self.is_live = is_live
        self.log = InstanceLog()
        self.previous_log = InstanceLog()
        self.streamed_log = self.log  # the one that the stream reads
        self.is_noisy = False
        self.is_streaming = False
        # Longest time between two short reads of a noisy log.
        self.interval_seconds = POLL_SECONDS[1]
        self._check_seconds = CHECK_SECONDS * (0.75 + 0.5 * spread)
        self._instance = 0
        # The end of the task that was read last, and the one in the container status.
        self._ended_read: _End = (-1, None)
        self._end: _End = self._ended_read
        self._previous_read = -1
        self._failures = 0
        self._missing_logs = 0
        self._retry_at = -math.inf
        self._decided: Findings | None = None
        # Whether to find the last lines of the running task, and whether to read for them now.
        self._wants_lines = False
        self._lines_due = False
        self._reset()

    @property
    def findings(self) -> Findings:
        """Return the final findings if there are any, else those of the current instance."""
        return self._decided or self.log.findings

    @property
    def read_count(self) -> int:
        """Return what a short read of a log that grows fast counts, 0 for another log."""
        if self.is_noisy:
            return NOISY_READ
        return RESUMED_READ if self._is_behind else 0

    @property
    def attempt(self) -> int:
        """Return the number, from 1, of the attempt that `log` is of."""
        return self._instance + 1

    def accept_findings(self, log: InstanceLog) -> None:
        """Make the findings in one instance's log the pod's if they are the first final ones."""
        if log.findings.is_final and self._decided is None:
            self._decided = log.findings

    def log_of(self, step: ShortRead) -> InstanceLog:
        """Return the log that a step reads."""
        return self.previous_log if step.previous else self.log

    def is_streamed(self, log: InstanceLog) -> bool:
        """Return whether the open stream, if there is one, reads that log."""
        return self.is_streaming and self.streamed_log is log

    def is_of_next_instance(self, step: ShortRead, span: Span) -> bool:
        """Return whether lines kept for an ended instance are those of the next one; drop them.

        That happens if the kubelet starts the task again between its end and the read of its log.
        `span`, the whole end of the log, was compared with the wrong lines and is to be read again.
        """
        is_mixed = step.previous and self.previous_log.is_ahead_of(span)
        if is_mixed:
            self.previous_log = InstanceLog()
        return is_mixed

    def drop_previous_log(self) -> None:
        """Drop what the log of the previous instance has shown: all of it is reported."""
        if not self.is_streaming:
            self.streamed_log = self.log
        self.previous_log = InstanceLog()

    def _new_instance(self, restart_count: int) -> None:
        if restart_count < self._instance:
            # A machine without the containers and logs of the former one counts from 0 again.
            self._ended_read = self._end = (-1, None)
            self._previous_read = restart_count - 1
        # An instance that started and ended unseen has no log here.
        is_next = restart_count == self._instance + 1
        self.previous_log = self.log if is_next else InstanceLog()
        self.log = InstanceLog()
        self._instance = restart_count
        self._missing_logs = 0
        # Its kubelet, which has just reported the restart, can be reached again.
        self._retry_at = -math.inf
        self._reset()

    def _reset(self) -> None:
        self.is_noisy = False
        # Whether all that the last short read returned was written after the one before.
        self._is_behind = False
        self._read_at: float | None = None
        self._checked_at = -math.inf
        self._poll_seconds = POLL_SECONDS[0]
        self._stream = StreamState()

    def next_step(self, container: Container | None, now: float) -> Step:
        """Return what to do next, given the status of the task container."""
        if container is None or self.findings.is_final:
            return Wait(math.inf)
        if container.restart_count != self._instance:
            self._new_instance(container.restart_count)
        if now < self._retry_at:
            return Wait(self._retry_at)
        if container.state == "running":
            return self._step_running(now)
        has_ended = container.state == "terminated" or container.last_finished_at is not None
        return self._step_ended(container) if has_ended else Wait(math.inf)

    def _step_ended(self, container: Container) -> Step:
        self._end = _end_of(container)
        if self._end == self._ended_read:
            return Wait(math.inf)
        if self._ended_read[0] < self._instance:
            return ShortRead()
        if self._end[0] < self._instance:
            return Wait(math.inf)
        # While the container waited to be restarted, its restart count was already that of the new
        # instance, and the log read then was that of the end before.
        self.log = InstanceLog()
        return ShortRead()

    def _step_running(self, now: float) -> Step:
        # Even if its end was read already: the container may have been restarted between the status
        # and that read, which then returned the log of the new instance.
        if self._previous_read < self._instance - 1:
            return ShortRead(previous=True)
        if not self.is_live and not self._wants_lines:
            return Wait(math.inf)
        if self._lines_due or self._read_at is None:
            return ShortRead()
        check_at = self._checked_at + self._check_seconds
        if self.is_streaming:
            return ShortRead() if now >= check_at else Wait(check_at)
        poll_at = self._read_at + self._poll_seconds
        if self._is_behind:
            poll_at = self._read_at + self.interval_seconds
        elif self.is_noisy:
            poll_at = self._read_at + min(self._poll_seconds, self.interval_seconds)
        if now >= poll_at:
            is_whole = self.is_noisy or self._wants_lines or now >= check_at
            return ShortRead(use_cursor=not is_whole)
        wants_stream = self.is_live and not self.is_noisy and self._stream.may_open(now)
        return Wait(poll_at, wants_stream=wants_stream)

    @property
    def wants_lines(self) -> bool:
        """Return whether to find the last lines of the running task, and none was read yet."""
        return self._wants_lines

    def want_lines(self, *, required: bool = True) -> None:
        """Have the end of a running task's log read now, for its last lines; or no longer.

        The log of a task that has just started may be empty, or have blank lines only. It is read
        again until it has another one.
        """
        self._wants_lines = self._lines_due = required

    def read_end_again(self, container: Container) -> None:
        """Have the end of a task that has ended read once more, if it was read already."""
        if self._ended_read == _end_of(container):
            self._ended_read = (-1, None)

    def takes_lines(self, step: ShortRead, container: Container, *, has_lines: bool) -> bool:
        """Return whether a read that is done brought the last lines of a running task; once.

        One with a cursor, which began before, brings only the lines after those that are known.
        """
        if not self._wants_lines or step.previous or step.use_cursor:
            return False
        is_running = container.state == "running"
        self._lines_due = False
        self._wants_lines = is_running and not has_lines
        return is_running and has_lines

    # --- outcomes of steps ---------------------------------------------------------------

    def short_read_done(
        self,
        step: ShortRead,
        container: Container,
        cursor: Cursor,
        unfinished: Line | None,
        now: float,
        *,
        is_behind: bool = False,
    ) -> bool:
        """Record a successful short read; `container` is the state before it.

        `is_behind`: all its lines are later than the last line read before.

        Returns whether it read the complete end of an ended instance.
        """
        self._failures = self._missing_logs = 0
        if step.previous:
            self._confirm(self.previous_log, unfinished, now)
            if unfinished is None:
                self._previous_read = container.restart_count - 1
            return unfinished is None
        if container.restart_count != self._instance:
            return False  # another instance has started meanwhile
        self._confirm(self.log, unfinished, now)
        is_end = container.state != "running" and unfinished is None
        if is_end:
            self._ended_read = _end_of(container)
        if self._read_at is not None and not self.is_streaming:
            limit = POLL_SECONDS[1] if self.is_live else LINES_POLL_SECONDS
            self._poll_seconds = min(self._poll_seconds * POLL_GROWTH, limit)
        self._read_at = now
        if not step.use_cursor:
            self._checked_at = now
        if cursor.timestamp and cursor == self.log.cursor:
            self.is_noisy = False  # silent since the last read
        self._is_behind = is_behind and not self.is_streaming
        if self._is_behind:
            self._poll_seconds = POLL_SECONDS[0]
        self.log.cursor = max(self.log.cursor, cursor)
        return is_end

    def _confirm(self, log: InstanceLog, unfinished: Line | None, now: float) -> None:
        log.unfinished = unfinished
        if unfinished is not None:
            self._retry_at = now + RETRY_SECONDS[0]

    def short_read_failed(self, step: ShortRead, now: float, *, is_missing: bool) -> bool:
        """Record a failed short read; `is_missing`: the kubelet found no such log.

        Returns whether the log of the newest start is not looked for any more.
        """
        self._retry_at = now + exponential_seconds(self._failures, *RETRY_SECONDS)
        self._failures += 1
        self._missing_logs = self._missing_logs + 1 if is_missing else 0
        if self._missing_logs < MISSING_LOG_LIMIT:
            return False
        self._missing_logs = 0
        if step.previous:
            self._previous_read = self._instance - 1
            return False
        self._ended_read = self._end
        return True

    def stream_opened(self, now: float) -> None:
        """Record that a stream is being opened."""
        self.is_streaming = True
        self.streamed_log = self.log
        self._stream.opened(now)
        self._checked_at = max(self._checked_at, now)

    def stream_received(
        self, count: int, cursor: Cursor, now: float, budget: NamespaceBudget | None = None
    ) -> bool:
        """Record `count` bytes of a stream; return whether it may continue.

        Bytes beyond the stream's own budget are taken from the shared `budget`.
        """
        log = self.streamed_log
        is_new = cursor > log.cursor
        log.cursor = max(log.cursor, cursor)
        self.is_noisy = not self._stream.received(count, now, budget, is_new=is_new)
        self._lines_due = self._wants_lines
        return not self.is_noisy

    def stream_ended(self, now: float, *, failed: bool) -> None:
        """Record that the stream is over; the end of the log is read at once if it was of use.

        After one without use the log is read by short reads as if there had been none.
        """
        self.is_streaming = False
        self.streamed_log.stream_ended()
        if not self._stream.ended(now, failed=failed):
            return
        self._poll_seconds = POLL_SECONDS[0]
        if not self.is_noisy:
            self._read_at = None

    @property
    def failures(self) -> int:
        """Return how many short reads have failed since the last successful one."""
        return self._failures
