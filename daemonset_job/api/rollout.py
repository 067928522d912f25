"""How a run goes from node to node: `spec.rollout` and `spec.successPolicy` of a Job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daemonset_job.api.owned_task import OWNED_TASK_SHAPE, OwnedTask, parse_owned_task
from daemonset_job.api.shape import (
    BOOLEAN,
    NUMBER,
    REQUIREMENTS,
    STRING,
    STRINGS,
    ShapeError,
    fields,
    list_of,
)
from daemonset_job.api.states import TextEnum

# How long a check may take to pass after the soak, if its step names no other time.
CHECK_TIMEOUT_SECONDS: Final = 300
_PERCENTAGE: Final = re.compile(r"[0-9]{1,3}%")
_SECONDS_LIMIT: Final = 315_360_000


class Order(TextEnum):
    """In which order nodes get their turns: `spec.rollout.order`."""

    NAME = "Name"
    RANDOM = "Random"
    SPREAD = "Spread"


@dataclass(frozen=True, slots=True)
class HttpCheck:
    """A source that has to answer a request with 2xx; `path` "" is the source's URL itself."""

    source: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class PrometheusCheck:
    """A source that has to answer a query with a number within limits, which are exclusive.

    The query is one of the source by its name, or an `expression`; a limit of None is none.
    """

    source: str
    query: str = ""
    expression: str = ""
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """What has to hold for the nodes of a step before the next step.

    `node_ready`: they are Ready. `pods` is a raw LabelSelector: the pods of the Job's namespace
    that it selects are Ready on each of them; None for no such check. `http` and `prometheus` ask
    sources that the administrator names. `script` runs once on each of the nodes. After the soak
    it has `timeout_seconds` to pass.
    """

    node_ready: bool = False
    pods: Mapping[str, Any] | None = None
    http: HttpCheck | None = None
    prometheus: PrometheusCheck | None = None
    script: OwnedTask | None = None
    timeout_seconds: int = CHECK_TIMEOUT_SECONDS

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to check."""
        others = (self.pods, self.http, self.prometheus, self.script)
        return not self.node_ready and all(each is None for each in others)


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of nodes, and what has to be before the next one.

    `nodes` is how many nodes have had their turn at its end, those of earlier steps included: a
    number, or a percentage of the desired nodes. With a raw LabelSelector in `selector`, all nodes
    that it selects have theirs, and `nodes` is not used.
    """

    nodes: int | str = 0
    selector: Mapping[str, Any] | None = None
    soak_seconds: int = 0
    needs_approval: bool = False
    check: Check = field(default_factory=Check)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """When nodes may start: from `start`, a cron expression, for `duration` such as 2h."""

    start: str
    duration: str
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a run goes from node to node. Numbers of nodes may be percentages; None is no limit.

    Jobs of a namespace with the same `exclusive` key never run on a node at the same time. With
    `pull_images_first` no node has its turn before the images are on all nodes.
    """

    max_parallel: int | str | None = None
    max_parallel_per_zone: int | str | None = None
    steps: tuple[Step, ...] = ()
    order: Order = Order.NAME
    window: WindowSpec | None = None
    exclusive: str = ""
    pull_images_first: bool = False


@dataclass(frozen=True, slots=True)
class SuccessPolicy:
    """When the run has succeeded although not all nodes are completed.

    Once `min_completed` nodes are, a number or a percentage of the desired ones, no further node
    starts. None is no such number.
    """

    min_completed: int | str | None = None


def number_or_percentage(value: Any) -> None:
    """Raise ShapeError for what is neither a number nor a percentage such as "10%"."""
    if isinstance(value, bool) or not (
        isinstance(value, int) or (isinstance(value, str) and _PERCENTAGE.fullmatch(value))
    ):
        raise ShapeError(value, "a number or a percentage")


def _decimal(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ShapeError(value, "a number")


_SELECTOR: Final = fields(matchLabels=STRINGS, matchExpressions=REQUIREMENTS)


ROLLOUT_SHAPE: Final = fields(
    maxParallel=number_or_percentage,
    maxParallelPerZone=number_or_percentage,
    steps=list_of(
        fields(
            nodes=number_or_percentage,
            selector=_SELECTOR,
            soakSeconds=NUMBER,
            approval=STRING,
            check=fields(
                nodeReady=BOOLEAN,
                pods=_SELECTOR,
                http=fields(source=STRING, path=STRING),
                prometheus=fields(
                    source=STRING, query=STRING, expression=STRING, above=_decimal, below=_decimal
                ),
                script=OWNED_TASK_SHAPE,
                timeoutSeconds=NUMBER,
            ),
        )
    ),
    order=STRING,
    window=fields(start=STRING, duration=STRING, timeZone=STRING),
    exclusive=STRING,
    pullImagesFirst=BOOLEAN,
)
SUCCESS_POLICY_SHAPE: Final = fields(minCompleted=number_or_percentage)


def parse_rollout(raw: Mapping[str, Any] | None) -> Rollout | None:
    """Return the rollout in its raw form, None without one. Never raises for ROLLOUT_SHAPE.

    An order that this version does not know is that of the names.
    """
    if raw is None:
        return None
    window = raw.get("window")
    order = raw.get("order")
    return Rollout(
        max_parallel=raw.get("maxParallel"),
        max_parallel_per_zone=raw.get("maxParallelPerZone"),
        steps=tuple(_parse_step(step) for step in raw.get("steps") or ()),
        order=next((each for each in Order if each == order), Order.NAME),
        window=None
        if window is None
        else WindowSpec(
            window.get("start") or "", window.get("duration") or "", window.get("timeZone") or ""
        ),
        exclusive=raw.get("exclusive") or "",
        pull_images_first=bool(raw.get("pullImagesFirst")),
    )


def _parse_step(raw: Mapping[str, Any]) -> Step:
    nodes, check = raw.get("nodes"), raw.get("check") or {}
    return Step(
        nodes=0 if nodes is None else nodes,
        selector=raw.get("selector"),
        soak_seconds=_seconds(raw.get("soakSeconds"), 0),
        # What this version does not know is left to a person.
        needs_approval=bool(raw.get("approval")),
        check=Check(
            node_ready=bool(check.get("nodeReady")),
            pods=check.get("pods"),
            http=_parse_http(check.get("http")),
            prometheus=_parse_prometheus(check.get("prometheus")),
            script=parse_owned_task(check.get("script")),
            timeout_seconds=_seconds(check.get("timeoutSeconds"), CHECK_TIMEOUT_SECONDS),
        ),
    )


def _parse_http(raw: Mapping[str, Any] | None) -> HttpCheck | None:
    return None if raw is None else HttpCheck(raw.get("source") or "", raw.get("path") or "")


def _parse_prometheus(raw: Mapping[str, Any] | None) -> PrometheusCheck | None:
    if raw is None:
        return None
    return PrometheusCheck(
        source=raw.get("source") or "",
        query=raw.get("query") or "",
        expression=raw.get("expression") or "",
        above=raw.get("above"),
        below=raw.get("below"),
    )


def _seconds(value: int | None, default: int) -> int:
    return default if value is None else max(min(value, _SECONDS_LIMIT), 0)


def share_of(limit: int | str, total: int) -> int:
    """Return a number of nodes: `limit` itself, or that percentage of `total`, rounded down."""
    if isinstance(limit, int):
        return limit
    return int(limit.removesuffix("%")) * total // 100
