"""The verb `logs`: prints the output of the nodes of a run, in the order of their names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.fold_names import fold
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import BadRequest, Forbidden, KubeError, Unauthorized
from daemonset_job.kube.client.pod_logs import PodLogOptions
from kubectl_dsjob.cluster import need_run
from kubectl_dsjob.edge import Answer, say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.log_follow import Follower
from kubectl_dsjob.log_sources import LogSource, LogWish, choose_sources, read_pods
from kubectl_dsjob.log_text import GROUP_LIMIT_CHARACTERS, Groups, LogLine, LogParser, format_lines
from kubectl_dsjob.run_view import RunView
from kubectl_dsjob.target import Target

Write = Callable[[str], None]
# What --group reads of each node.
GROUP_NODE_BYTES: Final = 256 * 1024
# Portions of lines of one node that are read ahead, while an earlier node is printed.
_AHEAD: Final = 4


async def logs(target: Target, name: str, wish: LogWish, write: Write) -> Answer:
    """Print the logs of a run; `write` gets one line or more, each with its newline."""
    async with await target.connect() as client:
        view = await need_run(client, target.find_namespace(), name)
        if wish.is_followed and view.exists and not view.is_ended:
            return await Follower(client, view, wish, write).follow()
        sources = choose_sources(view, await read_pods(client, view), wish)
        reader = _Reader(client, wish, write)
        if wish.is_grouped:
            await reader.print_groups(sources)
            if reader.cut:
                kib = GROUP_NODE_BYTES // 1024
                say(f"only the first {kib} KiB of each log are compared: {fold(reader.cut)}")
        else:
            await reader.print_in_order(sources)
    return answer_of(view, sources, reader.failures, wish)


def answer_of(
    view: RunView, sources: Sequence[LogSource], failures: dict[str, str], wish: LogWish
) -> Answer:
    """Return what is to be said of nodes without output, and the exit code."""
    if not sources:
        what = "no node has failed" if wish.only_failed else "no node has started yet"
        return Answer(words=f"{view.name}: {what}.")
    words = []
    lost = [source.node for source in sources if source.is_lost]
    if lost:
        why = (
            "Their tasks have not started, or their pods are deleted."
            if view.exists
            else "The pods are deleted with the Job, and the report keeps the last lines of "
            "failed nodes only. spec.ttlSecondsAfterFinished (run --ttl) keeps the next ones."
        )
        words.append(f"no log of {len(lost)} of {len(sources)} nodes: {fold(lost)}. {why}")
    by_reason: dict[str, list[str]] = {}
    for node, reason in failures.items():
        by_reason.setdefault(reason, []).append(node)
    words += [f"cannot read the log of {fold(found)}: {why}" for why, found in by_reason.items()]
    if len(lost) == len(sources):
        return Answer(words="\n".join(words), code=ExitCode.FAILURE)
    return Answer(words="\n".join(words), code=ExitCode.PARTIAL if failures else ExitCode.SUCCESS)


class _Reader:
    """Reads what is there of the logs of several nodes, `at_once` at a time."""

    def __init__(self, client: KubeClient, wish: LogWish, write: Write) -> None:
        self._client = client
        self._wish = wish
        self._write = write
        self._slots = asyncio.Semaphore(wish.at_once)
        self.failures: dict[str, str] = {}
        self.cut: list[str] = []

    async def print_in_order(self, sources: Sequence[LogSource]) -> None:
        """Print the nodes one after the other; the next ones are read ahead, within bounds."""
        queues = [asyncio.Queue[list[LogLine] | None](_AHEAD) for _ in sources]
        async with asyncio.TaskGroup() as group:
            # Slots are given in this order, so the node that is printed next always has one.
            for source, queue in zip(sources, queues, strict=True):
                group.create_task(self._fill(source, queue))
            for source, queue in zip(sources, queues, strict=True):
                while (lines := await queue.get()) is not None:
                    self._write(
                        format_lines(
                            source.node,
                            lines,
                            has_prefix=self._wish.has_prefix,
                            has_times=self._wish.has_times,
                        )
                    )

    async def print_groups(self, sources: Sequence[LogSource]) -> None:
        """Print equal outputs once, with the nodes that have printed them."""
        groups = Groups()
        async with asyncio.TaskGroup() as tasks:
            for source in sources:
                if not source.is_lost:
                    tasks.create_task(self._group(source, groups))
        text = groups.text()
        if text:
            self._write(text + "\n")

    async def _fill(self, source: LogSource, queue: asyncio.Queue[list[LogLine] | None]) -> None:
        async with self._slots:
            try:
                async for lines in self._read(source, None):
                    await queue.put(lines)
            finally:
                with suppress(asyncio.CancelledError):
                    await queue.put(None)

    async def _group(self, source: LogSource, groups: Groups) -> None:
        async with self._slots:
            read = [
                line.text async for lines in self._read(source, GROUP_NODE_BYTES) for line in lines
            ]
        if source.node not in self.failures and not groups.add(source.node, read):
            mib = GROUP_LIMIT_CHARACTERS // 2**20
            way = "Compare the last lines only: --tail 20"
            raise CliError(f"the outputs differ in more than {mib} MiB", way)

    async def _read(
        self, source: LogSource, limit_bytes: int | None
    ) -> AsyncIterator[list[LogLine]]:
        """Yield the lines of one node. What cannot be read is noted, unless it concerns all."""
        if source.pod is None:
            yield [LogLine(text) for text in source.kept]
            return
        wish = self._wish
        options = PodLogOptions(
            names.CONTAINER_NAME,
            previous=wish.is_previous,
            tail_lines=wish.tail,
            timestamps=wish.has_times,
        )
        parser = LogParser(has_times=wish.has_times)
        try:
            async with self._client.stream_pod_log(
                source.pod.namespace, source.pod.name, options, limit_bytes=limit_bytes
            ) as chunks:
                read = 0
                async for chunk in chunks:
                    read += len(chunk)
                    yield parser.feed(chunk)
                if read == limit_bytes:
                    self.cut.append(source.node)
        except (Forbidden, Unauthorized):
            raise
        except KubeError as error:
            if source.kept:
                yield [LogLine(text) for text in source.kept]
            elif not (wish.is_previous and isinstance(error, BadRequest)):
                self.failures[source.node] = error.message
            return
        yield parser.end()
