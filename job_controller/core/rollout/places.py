"""Which nodes of a rollout are at work, or may be: each takes a place until it is done.

A node takes its place when its turn is on record, before it starts. It frees it when the ledger has
its completion. A node that has failed frees it when nothing of its task runs any more, and one that
is set aside when that is on record. One that is no longer desired frees it when its pod is gone, or
when it has not been Ready for long (see `left_nodes`). So does one that was deleted, when its pod
is gone. Its machine may go on, until the garbage collector of Kubernetes has deleted its pods,
which takes a minute at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from job_controller.core.rollout.node_order import zone_of
from job_controller.core.rollout.turns import Limits, Place, allowed_nodes
from job_controller.core.state.left_nodes import (
    LEFT_PODS_SECONDS,
    counts_until,
    find_chosen_others,
    find_excluded,
)
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes that take a place, by name.

    `started` are those whose pod may be at work already. The others have their turn on record only.
    `turned` are the records of all nodes that have had their turn for what the Job runs, by name.
    `away` are those that are no longer desired and not Ready. `wake_at` is when a place may be free
    without an event, None for never.
    """

    taken: dict[str, Place]
    started: frozenset[str]
    turned: dict[str, NodeRecord]
    away: frozenset[str] = frozenset()
    wake_at: datetime | None = None

    @property
    def at_work(self) -> list[Place]:
        """The places of the nodes whose pods may be at work."""
        return [place for name, place in self.taken.items() if name in self.started]


def find_places(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> Places:
    """Return which nodes take a place, from the pods and from the records that are written."""
    records, ledger = merge_records(snapshot), merge_evidence(snapshot)
    running = set(_nodes_with_started_pod(snapshot))
    turned = {
        name: record
        for name, record in records.items()
        if record.turn_at is not None
        # A turn is for one revision: its steps are those of another rollout.
        and record.revision == snapshot.job.revision
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == record.uid
    }
    taken: dict[str, Place] = {}
    away: dict[str, datetime] = {}
    desired = counts.desired_names
    # Their turns stay on record until it is known which nodes are desired, and nothing runs there.
    excluded = find_excluded(snapshot, turned.keys() - desired - running)
    for name in sorted(running | turned.keys()):
        node = snapshot.nodes.get(name)
        if node is None or name in counts.set_aside:
            continue
        is_left = name not in desired and not node.ready
        evidence, counted = ledger.get(name), counts.nodes.get(name)
        if evidence is not None and evidence.completes(node.uid):
            is_taken = counted is not None and counted.repeats_task
        elif name in running and is_left:
            until = counts_until(snapshot, node, now)
            is_taken = now < until
            away |= {name: until} if is_taken else {}
        elif name in running:
            is_taken = True
        else:
            is_over = is_left or name in excluded
            is_taken = not (is_over or _has_failed(name, snapshot, counts, turned[name]))
        if is_taken:
            taken[name] = Place(name, zone_of(node))
    deleted = set(_deleted_nodes_at_work(snapshot))
    taken |= {name: Place(name, zone=None) for name in deleted}
    moments = list(away.values())
    if any(pod.node_name in taken for pod in snapshot.left_pods):
        moments.append(now + timedelta(seconds=LEFT_PODS_SECONDS))
    started = frozenset((running | deleted) & taken.keys())
    return Places(taken, started, turned, frozenset(away), min(moments, default=None))


def find_limits(snapshot: Snapshot, counts: NodeCounts) -> Limits:
    """Return how many nodes may be at work at a time; zones by all of their desired nodes."""
    rollout = snapshot.job.spec.rollout
    if rollout is None:
        return Limits()
    by_zone: dict[str, int] | None = None
    if rollout.max_parallel_per_zone is not None:
        sizes: dict[str, int] = {}
        for name in counts.desired_names & snapshot.nodes.keys():
            zone = zone_of(snapshot.nodes[name])
            sizes[zone] = sizes.get(zone, 0) + 1
        by_zone = {
            zone: allowed_nodes(rollout.max_parallel_per_zone, size) or 1
            for zone, size in sizes.items()
        }
    desired = counts.desired - counted_twice(snapshot, counts, frozenset())
    return Limits(allowed_nodes(rollout.max_parallel, desired), by_zone)


def counted_twice(snapshot: Snapshot, counts: NodeCounts, gone: AbstractSet[str]) -> int:
    """Return how many nodes that have left the DaemonSet controller still counts as desired.

    Its count is late for a moment. A step or a percentage that is larger for that moment would give
    another node the turn of one that has left. `gone` are those that left uncompleted.
    """
    left = len(gone | counts.completed_unselected)
    if not left or not counts.missing:
        return 0
    lacking = find_chosen_others(snapshot, counts.desired_names)
    return min(max(counts.missing - len(lacking), 0), left)


def _nodes_with_started_pod(snapshot: Snapshot) -> Iterator[str]:
    """Return the nodes on which something of the task may run, or the scheduler may start it."""
    for pod in snapshot.all_pods:
        if not (pod.is_gated or pod.is_terminal) and pod.node_name in snapshot.nodes:
            yield pod.node_name


def _deleted_nodes_at_work(snapshot: Snapshot) -> Iterator[str]:
    """Return the deleted nodes on whose machines the task may still run."""
    ledger = merge_evidence(snapshot)
    for pod in snapshot.all_pods:
        if pod.node_name in snapshot.nodes or not pod.is_scheduled or pod.is_terminal:
            continue
        evidence = ledger.get(pod.node_name)
        if evidence is None or not evidence.is_completed or evidence.pod_uid != pod.uid:
            yield pod.node_name


def _has_failed(name: str, snapshot: Snapshot, counts: NodeCounts, record: NodeRecord) -> bool:
    if name in counts.nodes or name in counts.absent:
        record = counts.record(name)
    return record.has_failed(snapshot.job.retry_request) and record.state == NodeState.FAILED
