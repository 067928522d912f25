"""Which nodes belong to the present step of a rollout, and which of them wait for their turn."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.label_selector import parse_label_selector
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.rollout import Rollout, Step, share_of
from daemonset_job.api.states import NodeState
from job_controller.core.rollout.kept_nodes import find_kept
from job_controller.core.rollout.node_order import sort_nodes, zone_of
from job_controller.core.rollout.places import Places, counted_twice
from job_controller.core.rollout.turns import Place
from job_controller.core.rollout.written_progress import written_progress
from job_controller.core.state.left_nodes import find_chosen_others
from job_controller.core.state.node_counts import DesiredNode, NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_records
from job_controller.core.state.unchosen_nodes import find_unchosen

_ENDED = frozenset({NodeState.COMPLETED, NodeState.FAILED})


@dataclass(frozen=True, slots=True)
class StepMembers:
    """The nodes of a step.

    `waiting` are those that may get their turn in it, in their order. `is_done`: no further node
    has to have its turn in it, and all that had theirs have finished. `had_turn` are the names of
    the nodes that had their turn in this step. Those of them in `left` have left since.
    `is_empty`: its selector selects no node, and has selected none. `is_short`: fewer nodes could
    have a turn than it asks for, because others are set aside, or have left with an earlier
    revision. No further one waits. `may_be_done`: it is, unless a node that the cache does not have
    yet turns out to be one of its nodes. `begun` are the nodes that need no turn in it any more. Of
    `total` nodes it is a share, and `idle` of them can have no turn.
    """

    waiting: tuple[Place, ...] = ()
    is_done: bool = False
    had_turn: frozenset[str] = field(default_factory=frozenset)
    left: frozenset[str] = field(default_factory=frozenset)
    is_empty: bool = False
    is_short: bool = False
    may_be_done: bool = False
    begun: frozenset[str] = field(default_factory=frozenset)
    total: int = 0
    idle: int = 0


def present_step(rollout: Rollout, number: int) -> Step | None:
    """Return the step of that number, from 1; None for the rest of the nodes."""
    return rollout.steps[number - 1] if number <= len(rollout.steps) else None


def find_members(
    snapshot: Snapshot, counts: NodeCounts, places: Places, number: int
) -> StepMembers:
    """Return the nodes of the step with that number."""
    rollout = snapshot.job.spec.rollout
    assert rollout is not None
    step = present_step(rollout, number)
    earlier = _completed_earlier(snapshot, counts)
    nodes = [node for node in ordered_nodes(snapshot, counts) if node.name not in earlier]
    waiting = tuple(
        Place(node.name, zone_of(node))
        for node in nodes
        if _waits_for_turn(snapshot, counts.nodes.get(node.name), places)
    )
    unchosen = find_unchosen(snapshot, counts, [place.name for place in waiting])
    waiting = tuple(place for place in waiting if place.name not in unchosen)
    records = merge_records(snapshot)
    had_turn = frozenset(
        name
        for name in places.turned.keys() | counts.set_aside
        if name in records and records[name].step == number
    )
    # One that was set aside after its task had ended has given its turn back.
    had_turn |= {
        name
        for name in counts.names(NodeState.COMPLETED)
        if _step_on_record(snapshot, records, name) == number
    }
    written = written_progress(snapshot.job)
    if written is not None and written.step == number:
        had_turn |= find_ended_without_turn(snapshot, counts)
    kept = find_kept(snapshot, counts)
    gone = kept.left
    left = frozenset(name for name in gone if records[name].step == number)
    if step is None or not counts.desired:
        # Without nodes no step is over: some may join, or be selected by a change of the Job.
        return StepMembers(waiting, had_turn=had_turn | left, left=left)
    begun = _begun_nodes(snapshot, counts, places) - earlier
    if step.selector is None:
        # Nodes that left count on both sides: a share of the others only would end the step early.
        total = counts.desired - len(earlier) + len(gone) - counted_twice(snapshot, counts, gone)
        # On those nothing of the task has run: other nodes have their turn in their place.
        idle = _set_aside_without_turn(snapshot, counts, records)
        wanted, target = _count_wanted(step, total, len(idle))
        lacking = max(target - len(begun - idle - gone) - len(gone), 0)
        again = kept.present - begun
        others = max(lacking - len(again), 0)
        may_be_done = not lacking and not again and not _at_work(snapshot, places, number)
        return StepMembers(
            _first(waiting, again, others),
            is_done=may_be_done,
            had_turn=had_turn | left,
            left=left,
            is_short=target < wanted and not waiting,
            may_be_done=may_be_done,
            total=total,
            idle=len(idle),
        )
    chosen = parse_label_selector(step.selector)
    selected = {node.name for node in nodes if chosen.matches(node.name, node.labels)}
    # A node that never started because it is unreachable has not shown that all is well.
    had_turn |= left | (selected & counts.set_aside)
    without_pod = _find_without_pod(snapshot, counts)
    may_be_done = (
        selected <= begun
        and not _at_work(snapshot, places, number)
        and not _select(snapshot, chosen, without_pod - begun)
    )
    return StepMembers(
        tuple(place for place in waiting if place.name in selected),
        is_done=may_be_done and len(without_pod) >= counts.missing,
        had_turn=had_turn,
        left=left,
        is_empty=not selected and not had_turn,
        may_be_done=may_be_done,
        begun=frozenset(begun),
    )


def _count_wanted(step: Step, total: int, idle: int) -> tuple[int, int]:
    """Return how many of these nodes the step asks for, and how many it can have.

    It has none of the `idle` ones, which were set aside before their turn.
    """
    wanted = min(max(share_of(step.nodes, total), 1), max(total, 1))
    return wanted, min(wanted, max(total - idle, 0))


def find_uncounted(
    snapshot: Snapshot, counts: NodeCounts, step: Step, members: StepMembers
) -> frozenset[str]:
    """Return the nodes for which a step waits until the DaemonSet controller has counted them.

    Its selector selects them, or with them the step asks for more nodes. Each node of the cluster
    is looked at. So this is asked only when the step would end otherwise, or its soak begin.
    """
    total, idle = members.total, members.idle
    if step.selector is None:
        _, target = _count_wanted(step, total, idle)
        if _count_wanted(step, total + len(snapshot.nodes), idle)[1] <= target:
            return frozenset()
    found = find_chosen_others(snapshot, counts.desired_names)
    more = len(found) - counts.missing
    if more <= 0:
        return frozenset()
    if step.selector is not None:
        return _select(snapshot, parse_label_selector(step.selector), found - members.begun)
    return found if _count_wanted(step, total + more, idle)[1] > target else frozenset()


def _find_without_pod(snapshot: Snapshot, counts: NodeCounts) -> frozenset[str]:
    """Return the nodes that may lack their pod, as far as the cache has them.

    Those that no step selects keep none from its end: they have just joined, or their pods are
    refused.
    """
    if not counts.missing:
        return frozenset()
    return find_chosen_others(snapshot, counts.desired_names)


def _select(snapshot: Snapshot, chosen: NodeAffinity, names: AbstractSet[str]) -> frozenset[str]:
    return frozenset(name for name in names if chosen.matches(name, snapshot.nodes[name].labels))


def ordered_nodes(snapshot: Snapshot, counts: NodeCounts) -> list[Node]:
    """Return all desired nodes in the order of their turns."""
    rollout = snapshot.job.spec.rollout
    assert rollout is not None
    found, records = counts.desired_names, merge_records(snapshot)
    return sort_nodes(
        (snapshot.nodes[name] for name in found if name in snapshot.nodes),
        rollout.order,
        run=snapshot.job.uid,
        last={name for name in found if _has_failed_before(records.get(name))},
        controller_node=snapshot.settings.node_name,
    )


def _has_failed_before(record: NodeRecord | None) -> bool:
    if record is None:
        return False
    return record.state == NodeState.FAILED or bool(record.failures or record.omitted_failures)


def _waits_for_turn(snapshot: Snapshot, node: DesiredNode | None, places: Places) -> bool:
    """Return whether the node could start now, and has not had its turn in this try."""
    if node is None or node.name in places.taken or not node.pod.is_gated:
        return False
    if node.replace_pod or node.awaits_retry or snapshot.nodes[node.name].is_terminating:
        return False
    return node.state == NodeState.WAITING


def _completed_earlier(snapshot: Snapshot, counts: NodeCounts) -> set[str]:
    """Return the nodes that left the selection after they had completed an earlier revision.

    They count as completed, but show nothing of what the Job runs now.
    """
    records, revision = merge_records(snapshot), snapshot.job.revision
    return {
        name
        for name in counts.completed_unselected | counts.completed_without_pod
        if (record := records.get(name)) is not None and record.revision != revision
    }


def _step_on_record(snapshot: Snapshot, records: Mapping[str, NodeRecord], name: str) -> int:
    """Return the step of a node's written record, 0 without one of what the Job runs now."""
    record = records.get(name)
    return record.step if record is not None and record.revision == snapshot.job.revision else 0


def find_ended_without_turn(snapshot: Snapshot, counts: NodeCounts) -> frozenset[str]:
    """Return the nodes that have completed what the Job runs now, and that no step has on record.

    The record of a node loses its turn when the Job changes. If the change is undone at once, what
    the node has completed counts, in the step that goes on then.
    """
    records = merge_records(snapshot)
    return frozenset(
        name
        for name in counts.names(NodeState.COMPLETED)
        if (node := counts.nodes.get(name)) is not None
        and node.record.revision == snapshot.job.revision
        and not _step_on_record(snapshot, records, name)
    )


def _set_aside_without_turn(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> set[str]:
    """Return the nodes that were set aside before they had a turn for what the Job runs."""
    revision = snapshot.job.revision
    return {
        name
        for name in counts.set_aside
        if (record := records.get(name)) is None or not record.step or record.revision != revision
    }


def _at_work(snapshot: Snapshot, places: Places, number: int) -> AbstractSet[str]:
    """Return the nodes whose tasks the step with that number waits for, by name.

    For how long nodes are away is forgotten in a restart. A step whose end is on record does not
    wait for them once more.
    """
    progress = written_progress(snapshot.job)
    if progress is None or progress.step != number or progress.soak_started_at is None:
        return places.taken.keys()
    return places.taken.keys() - places.away


def _first(waiting: tuple[Place, ...], again: AbstractSet[str], others: int) -> tuple[Place, ...]:
    """Return the waiting nodes that are in `again`, and as many others, in their order."""
    chosen = {*again, *[place.name for place in waiting if place.name not in again][:others]}
    return tuple(place for place in waiting if place.name in chosen)


def _begun_nodes(snapshot: Snapshot, counts: NodeCounts, places: Places) -> set[str]:
    """Return the nodes that do not have to be given a turn any more in this step."""
    ended = {name for name, node in counts.nodes.items() if node.state in _ENDED}
    ended |= {name for name, record in counts.absent.items() if record.state in _ENDED}
    ended |= counts.completed_without_pod | counts.completed_unselected
    ended |= _failed_without_pod(snapshot, counts, places)
    return ended | places.taken.keys() | counts.set_aside


def _failed_without_pod(snapshot: Snapshot, counts: NodeCounts, places: Places) -> set[str]:
    """Return the failed nodes whose pod was deleted, and whose next one is not there yet.

    It is not known which of them are desired, so they are no more than the nodes that lack a pod.
    """
    found = {
        name
        for name, record in places.turned.items()
        if record.has_failed(snapshot.job.retry_request)
    }
    return set(sorted(found - counts.nodes.keys() - counts.absent.keys())[: counts.missing])
