"""Nodes that a run does not wait for: they are unreachable, and their records say so."""

from __future__ import annotations

from collections.abc import Mapping

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from job_controller.core.state.node_counts import DesiredNode
from job_controller.core.state.snapshot import Snapshot


def is_set_aside(snapshot: Snapshot, record: NodeRecord | None, name: str) -> bool:
    """Return whether the record says so of the present node, by its UID."""
    node = snapshot.nodes.get(name)
    if record is None or node is None or record.set_aside_at is None:
        return False
    return record.uid == node.uid


def stays_set_aside(snapshot: Snapshot, record: NodeRecord, name: str) -> bool:
    """Return whether a node that is set aside stays so: by `record`, it is still unreachable.

    A failed node does, while its pod cannot end because the node is down.
    """
    if record.state == NodeState.UNREACHABLE:
        return True
    node = snapshot.nodes.get(name)
    return record.state == NodeState.FAILED and node is not None and not node.ready


def find_set_aside(
    snapshot: Snapshot,
    records: Mapping[str, NodeRecord],
    nodes: Mapping[str, DesiredNode],
    absent: Mapping[str, NodeRecord],
) -> frozenset[str]:
    """Return the nodes that are recorded as set aside, and are still unreachable."""
    found: set[str] = set()
    for name, record in records.items():
        if not is_set_aside(snapshot, record, name):
            continue
        now = nodes[name].record if name in nodes else absent.get(name, record)
        if stays_set_aside(snapshot, now, name):
            found.add(name)
    return frozenset(found)
