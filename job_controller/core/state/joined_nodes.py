"""Nodes that are due and have no pod of their own: they have joined, or their pod is refused.

Only a Job of policy Continuous asks, because its condition Complete can become False again. While a
count is not exact, the end on record stays; but a node that waits for its pod may wait long, as for
a quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from daemonset_job.api.states import NodeState
from job_controller.core.state.desired_count import has_undone_node_without_pod
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.node_pods import is_older_than_node
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

_NOT_DONE: Final = frozenset({NodeState.WAITING, NodeState.ACTIVE, NodeState.UNREACHABLE})


def has_joined(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether a node is due that has no pod yet, or only one of a former node."""
    if not counts.desired_is_known and _is_due_on_record(snapshot):
        return True
    return _has_former_pod(snapshot, counts) or _lacks_pod(snapshot, counts)


def find_failed_without_pod(snapshot: Snapshot, counts: NodeCounts) -> Iterator[str]:
    """Return the nodes that have failed, and are not counted while their pod is replaced."""
    for name, record in merge_records(snapshot).items():
        node = snapshot.nodes.get(name)
        is_counted = name in counts.nodes or name in counts.absent
        if node is None or is_counted or record.uid != node.uid:
            continue
        if record.has_failed(snapshot.job.retry_request):
            yield name


def _is_due_on_record(snapshot: Snapshot) -> bool:
    """Return whether a record shows a node that is not done: nothing else does without a count.

    The status of the Job need not have that yet: the controller may have ended between the writes.
    """
    ledger = merge_evidence(snapshot)
    return any(
        record.state in _NOT_DONE
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == record.uid
        and not (name in ledger and ledger[name].completes(node.uid))
        for name, record in merge_records(snapshot).items()
    )


def _has_former_pod(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether the only pod of a node seems to be of a former one, and is to be replaced."""
    nodes = ((snapshot.nodes.get(pod.node_name), pod) for pod in counts.surplus_pods)
    return any(node is not None and is_older_than_node(pod, node) for node, pod in nodes)


def _lacks_pod(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether the DaemonSet controller has counted a node that is due and has no pod.

    Its count may be older than the caches, so there has to be such a node in them, too. It has no
    failed node that does not match any more.
    """
    failed = counts.failed_without_pod.keys()
    if counts.missing <= len(failed):
        return False
    known = counts.nodes.keys() | counts.absent.keys() | failed
    return has_undone_node_without_pod(snapshot, merge_evidence(snapshot), known)
