"""Whose cordons nodes have: by the marks on them, see `daemonset_job.api.drain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from daemonset_job.api.drain import CordonMark, parse_mark
from daemonset_job.api.job import Job
from daemonset_job.api.node import Node
from daemonset_job.api.states import NodeState
from job_controller.core.drain_actions import NodeCordon
from job_controller.core.state.node_changes import find_selected_node
from job_controller.core.state.snapshot import Snapshot, merge_records

_OVER: Final = frozenset({NodeState.COMPLETED, NodeState.FAILED})


def mark_of(job: Job) -> CordonMark:
    """Return the mark that a Job leaves on the nodes that it cordons."""
    return CordonMark(job.namespace, job.name, job.uid)


def find_own_cordons(snapshot: Snapshot) -> tuple[NodeCordon, ...]:
    """Return the cordons of this Job, in order of node name."""
    mark = mark_of(snapshot.job)
    text = str(mark)
    marked = [node for node in snapshot.nodes.values() if node.cordoned_by == text]
    return tuple(
        NodeCordon(node.name, node.uid, mark) for node in sorted(marked, key=lambda each: each.name)
    )


def nodes_to_list(snapshot: Snapshot) -> tuple[Node, ...]:
    """Return the nodes that are being drained and cordoned, whose pods have to be listed.

    Their gated pods show that the drain is not over.
    """
    job = snapshot.job
    if job.spec.drain is None or job.is_terminating:
        return ()
    mark = str(mark_of(job))
    records = merge_records(snapshot)
    gated = {pod.node_name for pod in snapshot.pods if pod.is_gated and not pod.is_terminating}
    return tuple(
        node
        for name in sorted(gated)
        if (record := records.get(name)) is not None
        and record.drain_started_at is not None
        and record.state not in _OVER
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == record.uid
        and (node.cordoned_by == mark or (node.is_cordoned and not other_mark(node, mark)))
    )


def find_trial_cordon(snapshot: Snapshot) -> NodeCordon | None:
    """Return a cordon by which the API server is asked, None if none is needed."""
    node = find_selected_node(snapshot) if snapshot.job.spec.cordons else None
    return NodeCordon(node.name, node.uid, mark_of(snapshot.job)) if node is not None else None


def find_stray_cordons(
    nodes: Iterable[Node], namespace: str, job_name: str, job_uid: str
) -> tuple[NodeCordon, ...]:
    """Return the cordons by Jobs of that name of which none is there but the one with this UID."""
    found: list[NodeCordon] = []
    for node in nodes:
        mark = parse_mark(node.cordoned_by) if node.cordoned_by else None
        if mark is None or (mark.namespace, mark.job_name) != (namespace, job_name):
            continue
        if mark.job_uid != job_uid:
            found.append(NodeCordon(node.name, node.uid, mark))
    return tuple(found)


def other_mark(node: Node, mark: CordonMark | str) -> CordonMark | None:
    """Return the mark of another Job on the node, None without one."""
    if not node.cordoned_by or node.cordoned_by == str(mark):
        return None
    return parse_mark(node.cordoned_by)
