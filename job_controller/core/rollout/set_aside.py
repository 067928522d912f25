"""When a run no longer waits for nodes that are unreachable: they are set aside.

It is recorded first. What follows, such as a free place for another node, follows from the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from daemonset_job.api.states import NodeState
from daemonset_job.api.times import add_seconds
from job_controller.core.rollout.kept_nodes import find_kept
from job_controller.core.rollout.places import Places
from job_controller.core.state.failure_budget import is_within_budget
from job_controller.core.state.first_seen import node_not_ready
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot

_OPEN = frozenset({NodeState.WAITING, NodeState.ACTIVE})


@dataclass(frozen=True, slots=True)
class SetAside:
    """The nodes to be set aside now, and when there may be more."""

    names: frozenset[str] = field(default_factory=frozenset)
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Idleness:
    """Whether a rollout has nothing to do.

    `is_idle`: it gives no turn now, and nothing but nodes that are unreachable keeps it from doing
    so, a closed window aside. `is_held`: no node may start, because of the window for instance.
    """

    is_idle: bool
    is_held: bool


def find_due(
    snapshot: Snapshot, counts: NodeCounts, places: Places, idleness: Idleness, now: datetime
) -> SetAside:
    """Return the unreachable nodes that the run no longer waits for.

    With `failurePolicy.unreachableSeconds` those that have been unreachable for that time. Without
    it all of them, once the run has nothing else to do. A run whose other nodes are all done does
    not wait for its window: it ends outside of it, too. A node that has had no turn waits for the
    window as any other does: it may be back by then.
    """
    if not counts.desired_is_known or not counts.nodes_spec_is_applied:
        return SetAside()
    away = _unreachable(counts) - counts.set_aside
    failed = _failed_and_not_ready(snapshot, counts, places) - counts.set_aside
    limit = snapshot.job.spec.failure_policy.unreachable_seconds
    if limit is not None:
        return _after(snapshot, away | failed, limit, now)
    found = _after(snapshot, failed, 0, now)
    away |= found.names
    waits = SetAside(wake_at=found.wake_at)
    if not idleness.is_idle or not away or counts.missing or not places.taken.keys() <= away:
        return waits
    open_nodes = {name for name, node in counts.nodes.items() if node.state in _OPEN}
    open_nodes |= {name for name, record in counts.absent.items() if record.state in _OPEN}
    has_rollout = snapshot.job.spec.rollout is not None
    waits_for_window = idleness.is_held and bool(open_nodes or away - places.taken.keys())
    if waits_for_window or (open_nodes and not has_rollout):
        return waits
    # Others wait for the places that these nodes take, or for their next turn in the step.
    has_place = bool(places.taken) or bool(away & find_kept(snapshot, counts).present)
    blocks_others = bool(open_nodes) and has_place
    if blocks_others or is_within_budget(snapshot.job, counts):
        return replace(waits, names=away)
    return waits


def _unreachable(counts: NodeCounts) -> frozenset[str]:
    return frozenset(counts.names(NodeState.UNREACHABLE))


def _failed_and_not_ready(snapshot: Snapshot, counts: NodeCounts, places: Places) -> frozenset[str]:
    """Return the nodes whose failed task may be at work, and whose kubelet cannot end it now."""
    return frozenset(
        name
        for name in counts.names(NodeState.FAILED)
        if name in places.taken and not snapshot.nodes[name].ready
    )


def _after(snapshot: Snapshot, away: frozenset[str], limit: int, now: datetime) -> SetAside:
    """Return which of the nodes have been unreachable for `limit` seconds, and when others are."""
    due: set[str] = set()
    later: list[datetime] = []
    for name in away:
        fact = node_not_ready(snapshot.nodes[name], snapshot.job.retry_request)
        sighting = snapshot.seen.get(fact)
        first = sighting.first if sighting is not None else now
        moment = add_seconds(first, snapshot.unreachable_seconds + limit)
        if now >= moment:
            due.add(name)
        else:
            later.append(moment)
    return SetAside(frozenset(due), min(later, default=None))
