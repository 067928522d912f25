"""Reads the logs of all pods that it is told to: bounded, fair, and one's trouble is nobody else's.

Shell: ``read_policy`` decides what to read next, ``tail_read``, ``log_parser`` and ``matcher`` what
an answer means. Short reads go through one line, a fixed number at a time, of each namespace in
turn and of each of its Jobs in turn; follow streams through a fixed number of slots, of which every
namespace has its share. All state can be lost: it is read again.
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
from terminator.logs.known import StreamRead
from terminator.logs.pace import Pace
from terminator.logs.read_budget import Spare
from terminator.logs.read_policy import Short, Wait, ended_attempt
from terminator.logs.search import Search
from terminator.logs.shares import Shares
from terminator.logs.tail_read import WIDE_LINES, Findings, TailRead
from terminator.logs.targets import Entry, JobKey, Target
from terminator.logs.trouble import Trouble
from terminator.metrics import Metrics

# A short read takes milliseconds. One that takes longer than this (an unreachable kubelet) gives
# its place in the line to the next pod and goes on beside it, up to so many of them.
PLACE_SECONDS = 1.0
SLOW_LIMIT = 48
SHORT_TIMEOUT_SECONDS = 10.0
# A silent stream is opened anew after this time: a dead connection would be silent for ever. The
# periodic short read, and not this, is what catches a token that a dead stream kept.
STREAM_IDLE_SECONDS = 300.0

OnFound = Callable[[JobKey, Target, Findings], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """How many follow streams may be open and how many short reads may run at a time."""

    streams: int = 256
    short_reads: int = 16


class Scanner:
    """Reads what `set_targets` names, until it says otherwise, and calls `on_found`.

    `on_found(job, target, findings)` is called for a token, and when the end of an instance of
    the container that is over was read without one. For a token it is called again by every
    `set_targets` that still names the pod: whoever asks has forgotten it. A token is also told of
    a pod that is no longer named by then.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        metrics: Metrics,
        *,
        limits: Limits,
        on_found: OnFound,
    ) -> None:
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._limits = limits
        self._on_found = on_found
        self._entries: dict[str, Entry] = {}
        self._by_job: dict[JobKey, set[str]] = {}
        self._line: FairQueue[Entry] = FairQueue()
        self._in_line = asyncio.Semaphore(0)  # how many wait in the line
        self._shares: Shares[Entry] = Shares()  # of the stream slots
        self._streams = 0
        self._spare = Spare()
        self._slow: dict[asyncio.Task[None], str] = {}  # with their namespaces
        self._trouble = Trouble(metrics)
        self._pace = Pace()
        self._search = Search(client, metrics, self._trouble, self._pace)
        self._timers: list[tuple[float, int, Entry]] = []
        self._sequence: Iterator[int] = count()
        self._timer_changed = asyncio.Event()
        self._readers = 0
        self._group: asyncio.TaskGroup | None = None

    # --- what to read --------------------------------------------------------------------

    def set_targets(self, job: JobKey, targets: Iterable[Target]) -> None:
        """Read exactly these pods for `job`; those no longer named are left at once."""
        wanted = {target.pod.uid: target for target in targets}
        for uid in self._by_job.get(job, set()) - wanted.keys():
            self._drop(uid)
        for uid, target in wanted.items():
            self._set_target(job, uid, target)
        if wanted:
            self._by_job[job] = set(wanted)
        else:
            self._by_job.pop(job, None)
        self._metrics.targets.set(len(self._entries))

    def is_waiting(self, job: JobKey) -> bool:
        """Whether anything that is still to be read could decide about a node of `job`."""
        entries = (self._entries.get(uid) for uid in self._by_job.get(job, ()))
        return any(entry is not None and not entry.is_decided for entry in entries)

    def is_behind(self, job: JobKey) -> bool:
        """Whether a log of `job` is known to have something that has not been read yet."""
        now = self._clock.monotonic()
        for uid in self._by_job.get(job, ()):
            if (entry := self._entries.get(uid)) is not None:
                if entry.search is not None:
                    return True
                step = entry.reading.next_step(entry.target.pod.container, now)
                if not isinstance(step, Wait) or math.isfinite(step.until):
                    return True
        return False

    def set_limits(self, limits: Limits) -> None:
        """Change the limits; streams above a lower one stay open until they end."""
        self._limits = limits
        self._add_readers()
        self._fill_streams()

    def _set_target(self, job: JobKey, uid: str, target: Target) -> None:
        entry = self._entries.get(uid)
        if entry is not None and (entry.job != job or not entry.target.is_same_log(target)):
            self._drop(uid)
            entry = None
        if entry is None:
            entry = self._entries[uid] = Entry(job, target)
            self._schedule(entry)
            return
        changed = entry.target.pod.container != target.pod.container
        entry.target = target
        if entry.is_decided:
            self._on_found(job, target, entry.reading.found)
        elif changed:
            self._schedule(entry)

    def _drop(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._spare.note(entry.namespace, uid, talkative=False)
        self._shares.leave(entry.namespace, entry)
        for task in (entry.stream, entry.search):
            if task is not None:
                task.cancel()

    def _is_current(self, entry: Entry) -> bool:
        return self._entries.get(entry.target.pod.uid) is entry

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
                    self._group = None  # from here on, nothing new is begun
        finally:
            self._readers = 0
            self._metrics.targets.set(0)

    def _schedule(self, entry: Entry) -> None:
        """Look at what the entry needs next, and arrange for it."""
        if entry.is_queued or not self._is_current(entry):
            return
        uid = entry.target.pod.uid
        namespace = entry.namespace
        self._shares.leave(namespace, entry)
        self._spare.note(namespace, uid, talkative=entry.reading.is_chatty)
        entry.reading.distance_seconds = self._spare.distance_seconds(namespace)
        step = entry.reading.next_step(entry.container, self._clock.monotonic())
        if isinstance(step, Short):
            entry.is_queued = True
            self._line.push(entry.job, entry)
            self._in_line.release()
            return
        entry.due = step.until
        if step.until < float("inf"):
            heapq.heappush(self._timers, (step.until, next(self._sequence), entry))
            if self._timers[0][2] is entry:
                self._timer_changed.set()
        if step.wants_stream:
            self._shares.wait(namespace, entry)
            self._fill_streams()
            self._make_room(namespace)

    async def _watch_timers(self) -> None:
        while True:
            self._timer_changed.clear()
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                due, _, entry = heapq.heappop(self._timers)
                if entry.due == due:  # else it was arranged otherwise in the meantime
                    self._schedule(entry)
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
            self._group.create_task(self._read_line())

    # --- short reads ---------------------------------------------------------------------

    async def _read_line(self) -> None:
        """Serve the line, one pod after the other, while the limit leaves room for this reader."""
        while self._readers <= self._limits.short_reads:
            await self._in_line.acquire()
            entry = self._line.pop()
            if not self._is_current(entry):
                continue
            if self._group is None:
                return
            read = self._group.create_task(self._read_short(entry))
            done, _ = await asyncio.wait({read}, timeout=PLACE_SECONDS)
            if done:
                continue
            if self._has_room_beside(entry.namespace):
                self._slow[read] = entry.namespace
                read.add_done_callback(self._slow_ended)
            else:
                read.cancel()
        self._readers -= 1

    def _has_room_beside(self, namespace: str) -> bool:
        """Whether a slow read may go on beside the line; one of a namespace with more gives way."""
        if len(self._slow) < SLOW_LIMIT:
            return True
        counts = Counter(self._slow.values())
        richest, most = counts.most_common(1)[0]
        if most <= counts[namespace] + 1:
            return False
        oldest = next(read for read, owner in self._slow.items() if owner == richest)
        del self._slow[oldest]
        oldest.cancel()
        return True

    def _slow_ended(self, read: asyncio.Task[None]) -> None:
        self._slow.pop(read, None)

    async def _read_short(self, entry: Entry) -> None:
        container, reading = entry.container, entry.reading
        step = reading.next_step(container, self._clock.monotonic())
        try:
            if isinstance(step, Short) and container is not None:
                await self._do_short(entry, step, container)
        except KubeError as error:
            assert isinstance(step, Short)
            is_absent = isinstance(error, BadRequest | NotFound)
            reading.short_failed(step, self._clock.monotonic(), is_absent=is_absent)
            self._metrics.short_reads.labels("failed").inc()
            self._trouble.note_error(entry, error)
        except Exception as error:  # noqa: BLE001 - one log's trouble is nobody else's
            if isinstance(step, Short):
                reading.short_failed(step, self._clock.monotonic(), is_absent=False)
            self._trouble.note_defect(entry, error)
        except asyncio.CancelledError:
            # Either everything ends, or there are too many slow reads: then later, not never.
            if isinstance(step, Short):
                reading.short_failed(step, self._clock.monotonic(), is_absent=False)
            raise
        finally:
            entry.is_queued = False
            self._after_read(entry)

    async def _do_short(self, entry: Entry, step: Short, container: Container) -> None:
        reading, pod = entry.reading, entry.target.pod
        log = reading.log_of(step)
        cursor = log.cursor if step.use_cursor and log.cursor.timestamp else None
        matcher = entry.target.matcher
        read = TailRead(matcher, log.found, cursor, log.unfinished)
        while read.ask is not None:
            answer = await self._client.read_pod_log(
                pod.namespace,
                pod.name,
                container=CONTAINER_NAME,
                max_bytes=read.ask.max_bytes,
                since_time=cursor.since if cursor is not None else None,
                tail_lines=read.ask.lines,
                previous=step.previous,
                timeout_seconds=SHORT_TIMEOUT_SECONDS,
            )
            self._metrics.log_bytes.inc(len(answer))
            await self._pace.run(entry.job, read.take_in_portions(answer), len(answer), matcher)
        self._metrics.short_reads.labels("done").inc()
        if reading.is_of_next(step, read.stretch):
            return  # read once more
        log.take_read(read, is_streaming=reading.is_streaming and reading.streamed is log)
        reading.settle(log)
        entry.warned = False
        now = self._clock.monotonic()
        is_end = reading.short_done(step, container, read.cursor, read.unfinished, now)
        if reading.found.is_final:
            if read.has_decided and reading.found is log.found:
                self._conclude(entry, is_whole=read.is_whole, previous=step.previous)
            return
        if is_end and self._is_current(entry):
            first_at = read.stretch.first_at
            log.found.attempt = ended_attempt(step, container, entry.container, first_at)
            if _lacks_results(entry, step, container) and not read.is_whole:
                self._tell_with_results(entry, log.found, read.stretch.last_at, step.previous)
            else:
                self._on_found(entry.job, entry.target, _told(entry, step, container, log.found))
        if not (reading.is_streaming and reading.streamed is log):
            # A stream goes on from them; otherwise the next read brings them again.
            log.found.last_lines = ()

    def _after_read(self, entry: Entry) -> None:
        if self._is_current(entry) and not entry.reading.found.is_final:
            self._schedule(entry)

    # --- streams -------------------------------------------------------------------------

    def _fill_streams(self) -> None:
        while self._shares and self._streams < self._limits.streams and self._group is not None:
            entry = self._shares.take()
            entry.gives_way = False
            entry.reading.stream_opened(self._clock.monotonic())
            self._streams += 1
            self._metrics.streams_open.set(self._streams)
            entry.stream = self._group.create_task(self._hold_stream(entry))
            # A task that is cancelled before it began runs none of its own code.
            entry.stream.add_done_callback(partial(self._stream_closed, entry))
            self._schedule(entry)

    def _make_room(self, namespace: str) -> None:
        """Have a namespace with more than its share of the streams give one up for this one."""
        entry = self._shares.give_way(namespace, self._limits.streams)
        if entry is not None and entry.stream is not None:
            entry.gives_way = True
            entry.stream.cancel()

    async def _hold_stream(self, entry: Entry) -> None:
        failed = True
        try:
            await self._follow(entry)
            failed = False
        except KubeError as error:
            if not (isinstance(error, Unavailable) and error.reason in {"Timeout", "IdleTimeout"}):
                self._trouble.note_error(entry, error)
        except Exception as error:  # noqa: BLE001 - as above
            self._trouble.note_defect(entry, error)
        finally:
            failed = failed and not entry.gives_way
            entry.reading.stream_ended(self._clock.monotonic(), failed=failed)

    def _stream_closed(self, entry: Entry, _task: asyncio.Task[None]) -> None:
        entry.stream = None
        self._streams -= 1
        self._shares.free(entry.namespace, entry)
        self._metrics.streams_open.set(self._streams)
        if entry.reading.is_streaming:
            entry.reading.stream_ended(self._clock.monotonic(), failed=True)
        self._schedule(entry)
        self._fill_streams()

    async def _follow(self, entry: Entry) -> None:
        reading, pod, matcher = entry.reading, entry.target.pod, entry.target.matcher
        log = reading.streamed
        stream = StreamRead(matcher, log)
        async with self._client.pod_log(
            pod.namespace,
            pod.name,
            container=CONTAINER_NAME,
            follow=True,
            since_time=stream.since,
            # Where the log has outrun the cursor, the stream does not begin with all of it.
            tail_lines=WIDE_LINES if stream.since is not None else None,
            idle_timeout_seconds=STREAM_IDLE_SECONDS,
        ) as chunks:
            async for chunk in chunks:
                self._metrics.log_bytes.inc(len(chunk))
                if reading.found.is_final:
                    return
                work = stream.take_in_portions(chunk)
                await self._pace.run(entry.job, work, len(chunk), matcher)
                go_on = reading.stream_fed(
                    len(chunk), stream.cursor, self._clock.monotonic(), self._spare
                )
                reading.settle(log)
                if log.found.is_final:
                    self._conclude(entry)
                    return
                if not go_on:
                    return

    # --- what was found ------------------------------------------------------------------

    def _conclude(self, entry: Entry, *, is_whole: bool = False, previous: bool = False) -> None:
        """Tell what a log says for good, once the results that it may lack were looked for.

        The pod may be gone: what was found must not go with it.
        """
        found = entry.reading.found
        if self._is_current(entry):
            self._shares.leave(entry.namespace, entry)
        if entry.stream is not None and entry.stream is not asyncio.current_task():
            entry.stream.cancel()
        self._metrics.tokens.labels("completed" if found.completed_at else "failed").inc()
        matcher = entry.target.matcher
        if found.completed_at and not is_whole and matcher.results - found.results.keys():
            self._tell_with_results(entry, found, found.completed_at, previous)
        else:
            self._tell(entry, found)

    def _tell_with_results(self, entry: Entry, found: Findings, until: str, previous: bool) -> None:
        """Tell what was found after a search for results; without it if the pod is gone."""
        if self._group is None or not self._is_current(entry):
            self._tell_gone(entry, found)
            return
        entry.search = self._group.create_task(self._search.run(entry, found, until, previous))
        # A task that is cancelled before it began runs none of its own code.
        entry.search.add_done_callback(partial(self._search_ended, entry, found))

    def _search_ended(self, entry: Entry, found: Findings, search: asyncio.Task[None]) -> None:
        entry.search = None
        if search.cancelled():
            self._tell_gone(entry, found)
        else:
            self._tell(entry, found)

    def _tell_gone(self, entry: Entry, found: Findings) -> None:
        """Tell what was found in a log that nobody can read any more.

        That of a pod that still exists will be read, and searched, by whoever leads next.
        """
        if entry.target.pod.uid not in self._entries:
            self._on_found(entry.job, entry.target, found)

    def _tell(self, entry: Entry, found: Findings) -> None:
        if self._is_current(entry):
            self._on_found(entry.job, entry.target, found)
        else:
            self._tell_gone(entry, found)


def _told(entry: Entry, step: Short, ended: Container, found: Findings) -> Findings:
    """Return what a start without a token said, with results if no other start has followed it.

    In mode Exit they are those of the start that completed the node, and that is the last one.
    """
    newest = entry.container
    is_newest = newest is not None and newest.restart_count == ended.restart_count
    if step.previous or not is_newest or not found.attempt:
        # Without an attempt nobody knows which start the log is of.
        return replace(found, results={})
    return found


def _lacks_results(entry: Entry, step: Short, ended: Container) -> bool:
    """Return whether a task of mode Exit has completed, and its log lacks results so far."""
    matcher, found = entry.target.matcher, entry.reading.log_of(step).found
    if step.previous or matcher.has_token or not matcher.results - found.results.keys():
        return False
    return (ended.state, ended.exit_code) == ("terminated", 0)
