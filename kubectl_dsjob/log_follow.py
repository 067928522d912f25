"""Follows the logs of the nodes of a run until its end, a bounded number at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.fold_names import fold
from daemonset_job.api.pod import Pod
from daemonset_job.api.times import parse_time
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import (
    Forbidden,
    Gone,
    KubeError,
    Throttled,
    Unauthorized,
    Unavailable,
)
from daemonset_job.kube.client.pod_logs import PodLogOptions
from kubectl_dsjob.edge import Answer, say
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.log_sources import LogSource, LogWish, choose_sources, read_pods
from kubectl_dsjob.log_text import LogLine, LogParser, NewLines, format_lines
from kubectl_dsjob.patience import PatientReader
from kubectl_dsjob.run_view import RunView

# Between two looks at the run and its pods.
_LOOK_SECONDS: Final = 1.0
# A node that is done prints nothing for so long before its log is closed.
_QUIET_SECONDS: Final = 2.0
# A stream that is silent for longer is opened again: a connection can die without a word.
_IDLE_SECONDS: Final = 120.0
# How often a log is opened in vain after the end of the run.
_TRIES: Final = 3
_MANY_NODES: Final = 500
_SLOW_LOOK_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Stream:
    """What is known of the log of one node."""

    new_lines: NewLines = field(default_factory=NewLines)
    task: asyncio.Task[None] | None = None
    active_at: float = field(default_factory=time.monotonic)
    instance: tuple[str, int] = ("", -1)
    is_over: bool = False
    is_closed: bool = False
    failures: int = 0
    since: datetime | None = None


class Follower:
    """Prints lines as they come. A node that is done makes room for one that waits."""

    def __init__(
        self, client: KubeClient, view: RunView, wish: LogWish, write: Callable[[str], None]
    ) -> None:
        self._client = client
        self._reader = PatientReader(client)
        self._view = view
        self._wish = wish
        self._write = write
        self._streams: dict[str, _Stream] = {}
        self._has_said = False

    async def follow(self) -> Answer:
        """Follow until the run has ended and all that was printed is read."""
        async with asyncio.TaskGroup() as group:
            while await self._look(group):
                is_large = self._view.totals.desired > _MANY_NODES
                await asyncio.sleep(_SLOW_LOOK_SECONDS if is_large else _LOOK_SECONDS)
        view = self._view
        words = [f"{view.name}: {view.phase_text}: {view.message or view.reason}"]
        unread = [node for node, found in self._streams.items() if found.failures]
        if unread:
            words.append(f"cannot read the end of the log of {fold(unread)}")
        return Answer(words="\n".join(words), code=ExitCode.PARTIAL if unread else ExitCode.SUCCESS)

    async def _look(self, group: asyncio.TaskGroup) -> bool:
        """Read the run, start and end streams, and return whether there is more to come."""
        self._view = await self._reader.read(self._view)
        try:
            pods = await read_pods(self._client, self._view)
        except (Unavailable, Throttled, Gone):
            return True
        # Before the first node has started, no pattern matches.
        wish = self._wish if self._view.nodes or pods else replace(self._wish, nodes=())
        sources = choose_sources(self._view, pods, wish)
        self._print_kept(sources)
        running = {node for node, found in self._streams.items() if found.task is not None}
        waiting = []
        for source in sources:
            stream = self._streams[source.node]
            if stream.task is not None:
                self._end_if_quiet(source, stream)
            elif source.pod is not None and _has_more(stream, source.pod):
                waiting.append((source, stream, source.pod))
        free = max(self._wish.at_once - len(running), 0)
        for source, stream, pod in waiting[:free]:
            stream.task = group.create_task(self._read(source, stream, pod))
        self._say_if_bounded([source.node for source, _, _ in waiting[free:]])
        if not self._view.exists:
            # Its pods are going, and their streams end.
            for stream in self._streams.values():
                self._end_if_quiet(None, stream)
        is_busy = any(found.task is not None for found in self._streams.values())
        return is_busy or not self._view.is_ended

    def _end_if_quiet(self, source: LogSource | None, stream: _Stream) -> None:
        is_done = source is None or source.is_final or self._view.is_ended
        quiet = time.monotonic() - stream.active_at
        if is_done and stream.task is not None and quiet > _QUIET_SECONDS:
            stream.is_closed = True
            stream.task.cancel()

    async def _read(self, source: LogSource, stream: _Stream, pod: Pod) -> None:
        """Follow one log until it ends, breaks off, or is cancelled because the node is done."""
        stream.active_at = time.monotonic()
        stream.instance = _instance(pod)
        parser = LogParser(has_times=True)
        stream.new_lines.opened_again()
        options = PodLogOptions(
            names.CONTAINER_NAME,
            since_time=stream.since,
            tail_lines=self._wish.tail if stream.since is None else None,
        )
        try:
            async with self._client.follow_pod_log(
                pod.namespace, pod.name, options, idle_timeout_seconds=_IDLE_SECONDS
            ) as chunks:
                async for chunk in chunks:
                    stream.active_at, stream.failures = time.monotonic(), 0
                    self._print(source.node, stream, parser.feed(chunk))
            # The container has ended, or the kubelet has closed the log; then it is opened again.
            has_ended = pod.container is None or pod.container.state == "terminated"
            stream.is_over = has_ended or self._view.is_ended
        except asyncio.CancelledError:
            if not stream.is_closed:
                raise
            stream.is_over = True
        except (Forbidden, Unauthorized):
            raise
        except KubeError:
            stream.failures += 1
            stream.is_over = self._view.is_ended and stream.failures >= _TRIES
        finally:
            self._print(source.node, stream, parser.end())
            stream.task = None

    def _print(self, node: str, stream: _Stream, lines: list[LogLine]) -> None:
        new = [line for line in lines if stream.new_lines.is_new(line)]
        if new:
            with suppress(ValueError):
                stream.since = parse_time(new[-1].time) or stream.since
            self._write_lines(node, new)

    def _write_lines(self, node: str, lines: list[LogLine]) -> None:
        wish = self._wish
        self._write(format_lines(node, lines, has_prefix=wish.has_prefix, has_times=wish.has_times))

    def _print_kept(self, sources: list[LogSource]) -> None:
        """Print the last lines of failed nodes whose pods are deleted, unless they were read."""
        for source in sources:
            stream = self._streams.setdefault(source.node, _Stream())
            if source.pod is None and source.kept and not stream.instance[0]:
                stream.instance = ("the report", 0)
                self._write_lines(source.node, [LogLine(text) for text in source.kept])

    def _say_if_bounded(self, left: list[str]) -> None:
        if left and not self._has_said:
            self._has_said = True
            say(
                f"following {self._wish.at_once} nodes at a time; waiting: {fold(left)}. "
                "Read more at once with --max-log-requests."
            )


def _has_more(stream: _Stream, pod: Pod) -> bool:
    """Return whether a log that nobody reads may have lines that were not printed."""
    return not stream.is_over or stream.instance != _instance(pod)


def _instance(pod: Pod) -> tuple[str, int]:
    return (pod.uid, pod.container.restart_count if pod.container else 0)
