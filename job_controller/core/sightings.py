"""When the controller first saw what its timers count from, by its own clock.

Kubelets and API servers write times by clocks of their own, which may be hours away from the
controller's; none of them is compared with it. The shell keeps the sightings of a Job from pass to
pass. Losing them (a restart) is safe: each timer then counts again from its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from job_controller.api.objects import Container, Node, Pod

# (UID of a pod or a node, what was seen of it).
Fact = tuple[str, str]

_NOT_READY: Final = "not ready"
_NOT_STARTED: Final = "not started"
_UNSCHEDULABLE: Final = "unschedulable"
# A node can be without a pod for a moment, as between a pod that its kubelet rejected and the next
# one: for so long its pods go on counting as one that does not start.
_GAP: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Sighting:
    """When something was seen first and last."""

    first: datetime
    last: datetime


Sightings = Mapping[Fact, Sighting]


def ended(pod: Pod, count: int) -> Fact:
    """Return the fact that so many starts of the task in the pod have ended."""
    return pod.uid, f"ended {count}"


def failed(node: Node) -> Fact:
    """Return the fact that the node is on record as failed."""
    return node.uid, "failed"


def not_ready(node: Node) -> Fact:
    """Return the fact that the node is not Ready, or that its condition keeps its pod off."""
    return node.uid, _NOT_READY


def not_started(node: Node) -> Fact:
    """Return the fact that the node has a pod bound to it whose task has yet to start."""
    return node.uid, _NOT_STARTED


def unschedulable(pod: Pod) -> Fact:
    """Return the fact that the scheduler finds no room for the pod."""
    return pod.uid, _UNSCHEDULABLE


def has_started(pod: Pod) -> bool:
    """Return whether the task in the pod was started at least once."""
    container = pod.container
    if container is None:
        return False
    return (
        container.state in {"running", "terminated"}
        or container.restart_count > 0
        or container.last_exit_code is not None
    )


def ended_count(container: Container) -> int:
    """Return how many starts of the task in this pod have ended."""
    newest = container.state == "terminated" or (
        container.state == "waiting" and container.reason == "CrashLoopBackOff"
    )
    return container.restart_count + newest


def look(
    before: Sightings,
    pods: Mapping[str, Pod],
    nodes: Mapping[str, Node],
    failed_nodes: frozenset[str],
    now: datetime,
    held: Collection[str] = (),
) -> dict[Fact, Sighting]:
    """Return the sightings after a look at the pods and nodes of a Job, by the node's name.

    What still holds keeps its first time; what no longer holds is dropped. `failed_nodes` are the
    names of nodes that are on record as failed, `held` those of nodes that cannot take their pod
    because of their condition.
    """
    facts: set[Fact] = {not_ready(nodes[name]) for name in held}
    settled: set[Fact] = set()
    for name, pod in pods.items():
        node = nodes[name]
        if not node.ready:
            facts.add(not_ready(node))
        if name in failed_nodes:
            facts.add(failed(node))
        if pod.container is not None and (count := ended_count(pod.container)):
            facts.add(ended(pod, count))
        if pod.bound and not has_started(pod):
            facts.add(not_started(node))
        elif pod.is_gated or has_started(pod):
            settled.add(not_started(node))
        if pod.unschedulable and not pod.is_gated and name not in held:
            facts.add(unschedulable(pod))
    after = {fact: Sighting(before[fact].first if fact in before else now, now) for fact in facts}
    for fact, sighting in before.items():
        if fact not in after and _may_come_back(fact, sighting, settled, now):
            after[fact] = sighting
    return after


def _may_come_back(fact: Fact, sighting: Sighting, settled: set[Fact], now: datetime) -> bool:
    return fact[1] == _NOT_STARTED and fact not in settled and now - sighting.last < _GAP
