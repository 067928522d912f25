"""The pods that a check of a rollout asks about, as they were read from the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from job_controller.core.plan import PodQuery


@dataclass(frozen=True, slots=True)
class PodsOnNode:
    """How many pods of a node were found, and how many of them are Ready."""

    found: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True)
class PodObservation:
    """The answer to a query: the pods by the name of the node.

    `error` is why they could not be read, "" if they were.
    """

    query: PodQuery
    pods: Mapping[str, PodsOnNode] = field(default_factory=dict)
    error: str = ""
