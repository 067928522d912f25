"""What the nodes were like at every moment of a soak run, and which of them a Job had to serve.

Kept apart from the DaemonSet and from everything the system writes: the desired nodes follow from
the nodes themselves and from what the user asked for.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BLOCKING = ("NoSchedule", "NoExecute")
# What the DaemonSet controller tolerates in every pod's name (pkg/controller/daemon/util,
# AddOrUpdateDaemonPodTolerations), and the taint of simulated nodes, which all Jobs here tolerate.
_TOLERATED = {
    "kwok.x-k8s.io/node",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
}


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as far as it matters here; `open_` when no taint keeps the Jobs' pods off."""

    uid: str
    labels: Mapping[str, str]
    open_: bool
    ready: bool


@dataclass(slots=True)
class NodeHistory:
    """Every change of every node, by name; None is a node that does not exist."""

    changes: dict[str, list[tuple[float, NodeState | None]]] = field(default_factory=dict)
    blind: list[tuple[float, float]] = field(default_factory=list)
    """Times at which the nodes could not be listed, or the API server was stopped."""

    def observe(self, at: float, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Note the nodes of one complete list."""
        present = {node["metadata"]["name"]: _state(node) for node in nodes}
        for name in self.changes.keys() | present.keys():
            changes = self.changes.setdefault(name, [])
            last = changes[-1][1] if changes else None
            if last != present.get(name):
                changes.append((at, present.get(name)))

    def forget_before(self, at: float) -> None:
        """Drop changes that no Job still going on can have met."""
        for name, changes in list(self.changes.items()):
            first = max(bisect_right(changes, at, key=lambda change: change[0]) - 1, 0)
            del changes[:first]
            if len(changes) == 1 and changes[0][1] is None and changes[0][0] < at:
                del self.changes[name]
        self.blind = [span for span in self.blind if span[1] >= at]

    def during(self, name: str, start: float, end: float) -> list[NodeState | None]:
        """Return the states that a node had between two times, the one at the start included."""
        changes = self.changes.get(name, [])
        first = bisect_right(changes, start, key=lambda change: change[0]) - 1
        states: list[NodeState | None] = [None] if first < 0 else []
        return states + [state for at, state in changes[max(first, 0) :] if at <= end]

    def steady(self, name: str, start: float, end: float) -> NodeState | None:
        """Return the node if it stayed one node, open to pods, from `start` to `end`."""
        states = self.during(name, start, end)
        first = states[0]
        if first is None or any(
            state is None or not state.open_ or (state.uid, state.labels) != _identity(first)
            for state in states
        ):
            return None
        return first

    def was_not_ready(self, start: float, end: float) -> bool:
        """Return whether any node was there and not Ready at some time between the two."""
        return any(
            state is not None and not state.ready
            for name in self.changes
            for state in self.during(name, start, end)
        )

    def is_blind(self, start: float, end: float) -> bool:
        """Return whether anything could not be seen between the two times."""
        return any(begin <= end and finish >= start for begin, finish in self.blind)


def matches(nodes: Mapping[str, Any] | None, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether `spec.nodes` chooses a node; of selectors only matchLabels are known here."""
    if not nodes:
        return True
    desired = (nodes.get("selector") or {}).get("matchLabels") or {}
    return (
        all(labels.get(key) == value for key, value in desired.items())
        and (not nodes.get("include") or name in nodes["include"])
        and name not in (nodes.get("exclude") or ())
    )


def _identity(state: NodeState) -> tuple[str, Mapping[str, str]]:
    return state.uid, state.labels


def _state(node: Mapping[str, Any]) -> NodeState:
    taints = node["spec"].get("taints") or ()
    conditions = node.get("status", {}).get("conditions") or ()
    return NodeState(
        uid=node["metadata"]["uid"],
        labels=node["metadata"].get("labels") or {},
        open_=not any(
            taint["effect"] in BLOCKING and taint["key"] not in _TOLERATED for taint in taints
        ),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in conditions),
    )
