"""What is kept of one demand on a Job of policy Continuous, and of a pod that may meet it."""

from __future__ import annotations

from dataclasses import dataclass, field

FOREVER = float("inf")


@dataclass(slots=True)
class Demand:
    """One change of what is asked, at a moment. `is_known` once the controller must have read it.

    Attributes:
        at: When the user made it.
        image: What runs from then on, "" for a rerun or a return.
        generation: That of the spec with the image.
        nodes: By name, the UIDs of the nodes that run again; for an image not used.
        words: The names in a rerun request, "*" for all.
        value: All of the request: the same one again is no new one.
    """

    at: float
    image: str = ""
    generation: int = 0
    nodes: dict[str, str] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    value: str = ""
    # UIDs of the pods that the controller knew to have started when it read the request.
    started: frozenset[str] | None = None
    # The same for its later decisions, as long as the reports did not have the request.
    started_later: set[str] = field(default_factory=set)
    # UIDs of the nodes in whose records it is.
    recorded: set[str] = field(default_factory=set)
    is_known: bool = False
    # Of labels that came back: whether the controller must have noticed that by now.
    is_noticed: bool = False
    is_replaced: bool = False

    @property
    def is_read(self) -> bool:
        """Whether the controller has read it, or must have."""
        return self.is_known or bool(self.recorded)


@dataclass(frozen=True, slots=True)
class Due:
    """What a completed node must have run: this image, in a pod that started after a moment."""

    image: str
    since: float
    why: str
    started: frozenset[str] | None = None


@dataclass(slots=True)
class PodFacts:
    """What a pod runs, when its task first started, and what was known when it could.

    Attributes:
        image: The image of its task.
        jobs_known: The moment up to which the controller knew all Jobs when it let the pod start.
        nodes_known: The same for nodes.
        started: When its task first started.
    """

    image: str
    jobs_known: float = 0.0
    nodes_known: float = 0.0
    started: float = FOREVER
