"""The policy of turns: which of the nodes that wait may start, given those that are at work.

It knows names, zones and limits only: no Job, no pod, no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from daemonset_job.api.rollout import share_of


@dataclass(frozen=True, slots=True)
class Place:
    """A node that is at work, or may be: it takes one place of its zone, "" for no zone.

    None is a zone that is not known, as that of a deleted node: it takes a place of each.
    """

    name: str
    zone: str | None = ""


_Node = TypeVar("_Node", bound=Place)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many nodes may be at work at a time: in all, and in each zone. None is no limit."""

    total: int | None = None
    by_zone: dict[str, int] | None = None


def allowed_nodes(limit: int | str | None, nodes: int) -> int | None:
    """Return how many of `nodes` a limit allows at a time, at least one; None without a limit."""
    return None if limit is None else max(share_of(limit, nodes), 1)


def choose(waiting: Sequence[_Node], at_work: Iterable[Place], limits: Limits) -> list[_Node]:
    """Return the waiting nodes that may start now, in their order.

    A node whose zone is full is passed over; the next one of another zone has its turn.
    """
    busy = {place.name: place.zone for place in at_work}
    by_zone = Counter(busy.values())
    count = len(busy)
    chosen: list[_Node] = []
    for node in waiting:
        if limits.total is not None and count >= limits.total:
            break
        if node.name in busy or _is_full(by_zone, node.zone, limits):
            continue
        busy[node.name] = node.zone
        by_zone[node.zone] += 1
        count += 1
        chosen.append(node)
    return chosen


def _is_full(by_zone: Counter[str | None], zone: str | None, limits: Limits) -> bool:
    if limits.by_zone is None or zone is None:
        return False
    return by_zone[zone] + by_zone[None] >= limits.by_zone.get(zone, 1)
