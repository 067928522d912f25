"""Asks sources for the checks of rollouts, beside the reconciles, and keeps the newest answers.

A reconcile says what it wants to know and reads what is known already; it never waits for a source.
Each source is asked a few questions at a time, and namespaces have their turns. A question without
an answer after a second is asked once more, in a line of slow ones, and from then on only there. So
others wait for it for a second at most, however many are slow. Answers are lost in a restart: they
are asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from traceback import format_tb
from typing import Final

from loguru import logger

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
from job_controller.outbound import TIMEOUT_SECONDS, Outbound, OutboundError, OutboundRequest
from job_controller.prometheus_answer import read_value

# A vector of one sample has about 200 bytes; this is room for long labels.
_LIMIT_BYTES: Final = 64 * 1024
# Questions of one Job that are kept: those of the present step.
_QUESTIONS_LIMIT: Final = 4
# An answer that takes longer is a slow one.
QUICK_SECONDS: Final = 1.0
# How many questions a source is asked at a time, of which one of a namespace. There are 32 sources
# at most, so that these are all connections that there can be.
QUICK_AT_ONCE: Final = 4
SLOW_AT_ONCE: Final = 8

Question = tuple[str, JobKey, int]
"""A source, and which of the queries of a Job it is asked: what that is then, is asked then."""


def _line() -> WorkQueue[Question]:
    return WorkQueue(group_of=_namespace, group_limit=1)


@dataclass(frozen=True, slots=True)
class _Lines:
    """The questions that wait to be asked of a source: those known to be slow, and the others."""

    quick: WorkQueue[Question] = field(default_factory=_line)
    slow: WorkQueue[Question] = field(default_factory=_line)


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
        self._lines: dict[str, _Lines] = {}
        # Of each Job that asks, its questions that took longer the last time.
        self._slow: dict[JobKey, set[Question]] = {}
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
        questions = _questions(key, queries)
        slow = self._slow[key] = self._slow.get(key, set()).intersection(questions)
        for question, query in zip(questions, queries, strict=True):
            request = find_request(self._sources(), query, *key)
            if isinstance(request, str):
                kept[query] = SourceAnswer(AnswerState.UNKNOWN, request, self._clock.now())
                continue
            lines = self._lines_of(query.source)
            (lines.slow if question in slow else lines.quick).add(question)

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
        self._slow.pop(key, None)

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
                for name, lines in self._lines.items():
                    if name not in tasks:
                        tasks[name] = group.create_task(self._run_source(lines))
                self._has_changed.clear()
                await self._has_changed.wait()

    async def _run_source(self, lines: _Lines) -> None:
        async def ask_quickly(question: Question) -> None:
            if question not in self._slow_of(question):
                if await self._answer(question, QUICK_SECONDS):
                    return
                self._slow_of(question).add(question)
            lines.slow.add(question)

        async def ask_slowly(question: Question) -> None:
            started = self._clock.monotonic()
            is_answered = await self._answer(question, TIMEOUT_SECONDS)
            if is_answered and self._clock.monotonic() - started < QUICK_SECONDS:
                self._slow_of(question).discard(question)

        async with asyncio.TaskGroup() as group:
            quick = run_workers(lines.quick, ask_quickly, count=QUICK_AT_ONCE, on_error=_raise)
            slow = run_workers(lines.slow, ask_slowly, count=SLOW_AT_ONCE, on_error=_raise)
            group.create_task(quick)
            group.create_task(slow)

    def _slow_of(self, question: Question) -> set[Question]:
        """Return the slow questions of a Job; they are kept while the Job asks."""
        return self._slow.get(question[1], set())

    def _lines_of(self, source: str) -> _Lines:
        known = {each.name for each in self._sources()}
        for name in self._lines.keys() - known:
            del self._lines[name]
            self._has_changed.set()
        lines = self._lines.get(source)
        if lines is None:
            lines = self._lines[source] = _Lines()
            self._has_changed.set()
        return lines

    async def _answer(self, question: Question, seconds: float) -> bool:
        """Ask, and keep the answer. Return False if there was none in time.

        It is kept that there is none only if it had all the time that a source has.
        """
        source, key, number = question
        queries = self._asked.get(key) or ()
        if number >= len(queries) or (asked := queries[number]).source != source:
            return True  # the Job is gone, or asks something else
        request = find_request(self._sources(), asked, *key)
        is_late = False
        if isinstance(request, str):
            answer = SourceAnswer(AnswerState.UNKNOWN, request, self._clock.now())
        else:
            try:
                answer = await self._send(request, asked, seconds)
            except OutboundError as error:
                if (is_late := error.is_timeout) and seconds < TIMEOUT_SECONDS:
                    return False
                answer = unreachable(asked.source, error.words, self._clock.now())
            except Exception as error:  # noqa: BLE001 - one answer must not end the program
                # Without its words, in which there may be a secret.
                where = "".join(format_tb(error.__traceback__, limit=-1)).strip()
                logger.error("cannot ask a source", source=asked.source, where=where)
                words = f"an error of the controller, {type(error).__name__}; see its log"
                answer = unreachable(asked.source, words, self._clock.now())
        # In the meantime the Job may be gone.
        if (known := self._answers.get(key)) is not None:
            known[asked] = answer
            while len(known) > _QUESTIONS_LIMIT:
                del known[next(iter(known))]
        return not is_late

    async def _send(
        self, request: SourceRequest, asked: SourceQuery, seconds: float
    ) -> SourceAnswer:
        endpoint: Endpoint = request.source.endpoint
        sent = OutboundRequest(
            "GET",
            path=request.path,
            query=request.query,
            timeout_seconds=seconds,
            limit_bytes=_LIMIT_BYTES,
        )
        answer = await self._outbound.send(endpoint, sent)
        now = self._clock.now()
        if asked.is_prometheus:
            found = read_value(answer, is_of_job=bool(asked.expression))
            return judge_value(asked, found, now)
        return judge_status(asked.source, answer.status, now)


def _questions(key: JobKey, queries: tuple[SourceQuery, ...]) -> list[Question]:
    return [(query.source, key, number) for number, query in enumerate(queries)]


def _namespace(question: Question) -> str:
    return question[1][0]


def _raise(_question: Question, error: BaseException) -> float | None:
    raise error
