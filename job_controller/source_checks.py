"""Asks sources for the checks of rollouts, beside the reconciles, and keeps the newest answers.

A reconcile says what it wants to know and reads what is known already; it never waits for a source.
Each source is asked one question at a time, and namespaces have their turns. Answers are lost in a
restart: they are asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from daemonset_job.api.job import JobKey
from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue
from job_controller.core.receivers import Endpoint
from job_controller.core.sources import (
    AnswerState,
    Source,
    SourceAnswer,
    SourceQuery,
    SourceRequest,
    find_request,
    judge_status,
    judge_value,
    unreachable,
)
from job_controller.core.state.snapshot import Snapshot
from job_controller.outbound import Outbound, OutboundError, OutboundRequest
from job_controller.prometheus_answer import read_value

# A vector of one sample has about 200 bytes; this is room for long labels.
_LIMIT_BYTES: Final = 64 * 1024
# Questions of one Job that are kept: those of the present step.
_QUESTIONS_LIMIT: Final = 4

Question = tuple[str, JobKey, int]
"""A source, and which of the queries of a Job it is asked: what that is then, is asked then."""


class SourceChecks:
    """Answers to what Jobs ask. `ask` never waits; `run` does the asking, until cancelled."""

    def __init__(
        self, sources: Callable[[], tuple[Source, ...]], clock: Clock, outbound: Outbound
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._outbound = outbound
        self._asked: dict[JobKey, tuple[SourceQuery, ...]] = {}
        self._answers: dict[JobKey, dict[SourceQuery, SourceAnswer]] = {}
        self._lines: dict[str, WorkQueue[Question]] = {}
        self._has_changed = asyncio.Event()

    def __len__(self) -> int:
        """Return for how many Jobs there are answers."""
        return len(self._answers)

    def ask(self, key: JobKey, asked: Iterable[SourceQuery]) -> None:
        """Have a Job's questions answered once more; what it no longer asks is forgotten."""
        queries = tuple(asked)[:_QUESTIONS_LIMIT]
        known = self._answers.get(key) or {}
        kept = {query: known[query] for query in queries if query in known}
        if not queries:
            self.forget(key)
            return
        self._asked[key], self._answers[key] = queries, kept
        for number, query in enumerate(queries):
            request = find_request(self._sources(), query, *key)
            if isinstance(request, str):
                kept[query] = SourceAnswer(AnswerState.UNKNOWN, request, self._clock.now())
                continue
            self._line(query.source).add((query.source, key, number))

    def with_answers(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what is known of its Job's questions."""
        known = self.answers(key)
        return replace(snapshot, source_answers=known) if known else snapshot

    def answers(self, key: JobKey) -> Mapping[SourceQuery, SourceAnswer]:
        """Return what is known of a Job's questions."""
        return dict(self._answers.get(key) or {})

    def forget(self, key: JobKey) -> None:
        """Forget a Job that is gone, or asks nothing."""
        self._asked.pop(key, None)
        self._answers.pop(key, None)

    async def run(self) -> None:
        """Ask, until cancelled. A source that is not configured any more is not asked."""
        try:
            await self._run_lines()
        finally:
            await self._outbound.close()

    async def _run_lines(self) -> None:
        tasks: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for name in tasks.keys() - self._lines.keys():
                    tasks.pop(name).cancel()
                for name, line in self._lines.items():
                    if name not in tasks:
                        tasks[name] = group.create_task(self._run_line(line))
                self._has_changed.clear()
                await self._has_changed.wait()

    async def _run_line(self, line: WorkQueue[Question]) -> None:
        await run_workers(line, self._answer, count=1, on_error=_raise)

    def _line(self, source: str) -> WorkQueue[Question]:
        known = {each.name for each in self._sources()}
        for name in self._lines.keys() - known:
            del self._lines[name]
            self._has_changed.set()
        line = self._lines.get(source)
        if line is None:
            line = self._lines[source] = WorkQueue(group_of=_namespace)
            self._has_changed.set()
        return line

    async def _answer(self, question: Question) -> None:
        source, key, number = question
        queries = self._asked.get(key) or ()
        if number >= len(queries) or (asked := queries[number]).source != source:
            return  # the Job is gone, or asks something else
        request = find_request(self._sources(), asked, *key)
        if isinstance(request, str):
            answer = SourceAnswer(AnswerState.UNKNOWN, request, self._clock.now())
        else:
            answer = await self._send(request, asked)
        # In the meantime the Job may be gone.
        if (known := self._answers.get(key)) is not None:
            known[asked] = answer
            while len(known) > _QUESTIONS_LIMIT:
                del known[next(iter(known))]

    async def _send(self, request: SourceRequest, asked: SourceQuery) -> SourceAnswer:
        endpoint: Endpoint = request.source.endpoint
        sent = OutboundRequest(
            "GET", path=request.path, query=request.query, limit_bytes=_LIMIT_BYTES
        )
        try:
            answer = await self._outbound.send(endpoint, sent)
        except OutboundError as error:
            return unreachable(asked.source, error.words, self._clock.now())
        now = self._clock.now()
        if asked.is_prometheus:
            return judge_value(asked, read_value(answer), now)
        return judge_status(asked.source, answer.status, now)


def _namespace(question: Question) -> str:
    return question[1][0]


def _raise(_question: Question, error: BaseException) -> float | None:
    raise error
