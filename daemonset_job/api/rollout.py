"""How a run goes from node to node: `spec.rollout` and `spec.successPolicy` of a Job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

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
class Check:
    """What has to hold for the nodes of a step before the next step.

    `node_ready`: they are Ready. `pods` is a raw LabelSelector: the pods of the Job's namespace
    that it selects are Ready on each of them; None for no such check. After the soak it has
    `timeout_seconds` to pass.
    """

    node_ready: bool = False
    pods: Mapping[str, Any] | None = None
    timeout_seconds: int = CHECK_TIMEOUT_SECONDS

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to check."""
        return not self.node_ready and self.pods is None


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
    """How a run goes from node to node. Numbers of nodes may be percentages; None is no limit."""

    max_parallel: int | str | None = None
    max_parallel_per_zone: int | str | None = None
    steps: tuple[Step, ...] = ()
    order: Order = Order.NAME
    window: WindowSpec | None = None


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
            check=fields(nodeReady=BOOLEAN, pods=_SELECTOR, timeoutSeconds=NUMBER),
        )
    ),
    order=STRING,
    window=fields(start=STRING, duration=STRING, timeZone=STRING),
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
            timeout_seconds=_seconds(check.get("timeoutSeconds"), CHECK_TIMEOUT_SECONDS),
        ),
    )


def _seconds(value: int | None, default: int) -> int:
    return default if value is None else max(min(value, _SECONDS_LIMIT), 0)


def share_of(limit: int | str, total: int) -> int:
    """Return a number of nodes: `limit` itself, or that percentage of `total`, rounded down."""
    if isinstance(limit, int):
        return limit
    return int(limit.removesuffix("%")) * total // 100
