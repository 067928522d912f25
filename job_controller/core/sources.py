"""Sources of facts outside of the cluster, which a step of a rollout may be checked by.

The administrator names them, with the paths and queries that Jobs may use. A source that cannot be
reached, or whose answer has another form, never passes a check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final

from job_controller.core.receivers import Endpoint, may_use

# Prometheus' instant query.
QUERY_PATH: Final = "/api/v1/query"
_OK: Final = range(200, 300)
_SERVER_ERRORS: Final = range(500, 600)


@dataclass(frozen=True, slots=True)
class Source:
    """An HTTP server, or a Prometheus, that Jobs of some namespaces may be checked by.

    `paths` may be requested, "" for the URL itself. `queries` are PromQL by name, in which
    `{{namespace}}` and `{{job}}` are replaced by those of the Job. `allows_expressions`: a Job may
    write PromQL itself, which can read the metrics of all tenants.
    """

    name: str
    endpoint: Endpoint
    namespaces: tuple[str, ...]
    paths: tuple[str, ...] = ()
    queries: Mapping[str, str] = field(default_factory=dict)
    allows_expressions: bool = False


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """What a check asks of a source: a path, or a query by its name, or an expression.

    `above` and `below` are exclusive limits of the value, None for none. `since` is when it was
    first asked: the answer to an earlier question never counts.
    """

    source: str
    since: datetime
    path: str = ""
    query: str = ""
    expression: str = ""
    above: float | None = None
    below: float | None = None

    @property
    def is_prometheus(self) -> bool:
        """Whether it asks for a value, and not for a status."""
        return bool(self.query or self.expression)


class AnswerState(Enum):
    """What the answer of a source means for a check."""

    PASS = auto()
    FAIL = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """What a source answered, when, by the controller's clock, and a sentence that says so."""

    state: AnswerState
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """The request that answers a query."""

    source: Source
    path: str
    query: tuple[tuple[str, str], ...] = ()


def find_request(
    sources: Iterable[Source], asked: SourceQuery, namespace: str, job: str
) -> SourceRequest | str:
    """Return the request for a query, or a sentence that says why there is none.

    The names of a namespace and of a Job have no characters that mean something in PromQL.
    """
    source = next((each for each in sources if each.name == asked.source), None)
    if source is None or not may_use(source.namespaces, namespace):
        return (
            f"there is no source {asked.source!r} that Jobs in namespace {namespace} may use; an "
            f"administrator adds it to `sources` in the controller's configuration"
        )
    if not asked.is_prometheus:
        if asked.path and asked.path not in source.paths:
            return f"the source {source.name!r} does not allow the path {asked.path!r}"
        return SourceRequest(source, asked.path)
    if asked.expression and not source.allows_expressions:
        return (
            f"the source {source.name!r} does not allow expressions of Jobs; use one of its "
            f"queries by name"
        )
    if asked.query and asked.query not in source.queries:
        return f"the source {source.name!r} has no query {asked.query!r}"
    text = asked.expression
    if asked.query:
        named = source.queries[asked.query]
        text = named.replace("{{namespace}}", namespace).replace("{{job}}", job)
    return SourceRequest(source, QUERY_PATH, (("query", text),))


def judge_status(source: str, status: int, now: datetime) -> SourceAnswer:
    """Return what the status of an HTTP endpoint means: 2xx passes, 5xx fails."""
    words = f"the source {source} answered with HTTP {status}"
    if status in _OK:
        return SourceAnswer(AnswerState.PASS, words, now)
    if status in _SERVER_ERRORS:
        return SourceAnswer(AnswerState.FAIL, words, now)
    return SourceAnswer(AnswerState.UNKNOWN, words, now)


def judge_value(asked: SourceQuery, found: float | str, now: datetime) -> SourceAnswer:
    """Return what the value of a query means; a text says why there is none."""
    if isinstance(found, str):
        return SourceAnswer(AnswerState.UNKNOWN, f"the source {asked.source} {found}", now)
    name = f"{asked.query or 'the expression'} of source {asked.source}"
    if asked.below is not None and not found < asked.below:
        words = f"{name} is {found:g}, not below {asked.below:g}"
        return SourceAnswer(AnswerState.FAIL, words, now)
    if asked.above is not None and not found > asked.above:
        words = f"{name} is {found:g}, not above {asked.above:g}"
        return SourceAnswer(AnswerState.FAIL, words, now)
    return SourceAnswer(AnswerState.PASS, f"{name} is {found:g}", now)


def unreachable(source: str, words: str, now: datetime) -> SourceAnswer:
    """Return the answer of a source that gave none."""
    return SourceAnswer(AnswerState.UNKNOWN, f"the source {source} gave no answer: {words}", now)
