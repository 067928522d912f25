"""What a node whose turn is on record still waits for, before its pod may start.

This is the place for conditions that are about one node, such as a drain. The node keeps its place
meanwhile.
"""

from __future__ import annotations

from job_controller.core.state.snapshot import Snapshot


def is_prepared(snapshot: Snapshot, name: str) -> bool:
    """Return whether the pod of the node may start, now that the node has its turn."""
    return name in snapshot.nodes
