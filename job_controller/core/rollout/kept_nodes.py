"""Which nodes stay counted for the step of their turn: those that left, or wait for another turn.

The task may be why a machine is replaced, fails, or gets a label that the selection excludes. If
others had their turn in its place, a step of one node could go through the cluster before its
check.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import untolerated
from job_controller.core.state.absence import has_begun
from job_controller.core.state.affordable import affordable_nodes
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_records

# With one of these states a node had its turn, also if no attempt is on record.
_HAD_TURN: Final = frozenset({NodeState.COMPLETED, NodeState.FAILED, NodeState.REMOVED})


def find_left(
    snapshot: Snapshot, counts: NodeCounts, records: Mapping[str, NodeRecord]
) -> set[str]:
    """Return the nodes that left the cluster or the selection after they had begun, by name.

    Only what the Job runs now counts. A node that the user took out of the selection, by a change
    of the Job, does not count: its step has another node in its place.
    """
    begun = {
        name: record
        for name, record in records.items()
        if record.step
        and record.revision == snapshot.job.revision
        and (has_begun(record) or record.state in _HAD_TURN)
    }
    deleted = {
        name
        for name, record in begun.items()
        if (node := snapshot.nodes.get(name)) is None or node.uid != record.uid
    }
    return deleted | _find_unselected(snapshot, begun.keys() - deleted - counts.desired_names)


def find_waiting_again(snapshot: Snapshot, counts: NodeCounts) -> set[str]:
    """Return the desired nodes that a step has had already, those that have begun included.

    Those that have not are tried again after a failure, are back after they were set aside, or are
    registered again: the name counts, and not the UID.
    """
    records = merge_records(snapshot)
    return {
        name
        for name in counts.nodes.keys() | counts.absent.keys()
        if (record := records.get(name)) is not None
        and record.step
        and record.revision == snapshot.job.revision
    }


def _find_unselected(snapshot: Snapshot, names: set[str]) -> set[str]:
    """Return those of the nodes that no longer match a selection that is as it was at the start."""
    daemon_set, first = snapshot.owned_daemon_set, snapshot.first_report
    if not names or daemon_set is None or first is None:
        return set()
    if first.selection_hash != snapshot.job.selection_hash:
        return set()
    affinity = NodeAffinity(daemon_set.pod_spec)
    found = set()
    for name in islice(sorted(names), affordable_nodes(affinity)):
        node = snapshot.nodes[name]
        is_match = affinity.matches(name, node.labels)
        if not is_match or untolerated(node.taints, daemon_set.pod_spec):
            found.add(name)
    return found
