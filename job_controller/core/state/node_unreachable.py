"""Nodes that cannot be reached: not Ready, or tainted for a condition of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import Taint
from daemonset_job.api.times import add_seconds, format_time
from job_controller.core.state.first_seen import node_not_ready
from job_controller.core.state.node_context import NodeInputs, RunContext


def is_away(node: Node) -> bool:
    """Return whether a node is not Ready. One that has yet to say anything of it is not away."""
    return not node.ready and node.ready_changed_at is not None


def find_unreachable(
    context: RunContext, record: NodeRecord, inputs: NodeInputs
) -> tuple[NodeRecord | None, datetime | None]:
    """Return the record of an unreachable node, or None and when it becomes unreachable.

    A node that is recorded as unreachable stays so until it is Ready, also after a restart of
    the controller. A Ready node counts as not Ready while its condition keeps the pod off.
    """
    node = inputs.node
    if inputs.blocking_taint is None and not is_away(node):
        return None, None
    first = context.first_seen(node_not_ready(node, context.retry))
    limit = add_seconds(first, context.unreachable_seconds)
    if context.now < limit and not context.was_unreachable(inputs):
        shown_at = add_seconds(first, context.timeouts.unreachable_seconds)
        return None, shown_at if context.now < shown_at < limit else limit
    reason, message = unreachable_reason(node, inputs.blocking_taint)
    return replace(record, state=NodeState.UNREACHABLE, reason=reason, message=message), None


def with_absence(context: RunContext, record: NodeRecord, node: Node) -> NodeRecord:
    """Return the record with since when the node is away, if the Job gives it more time."""
    if node.ready or node.ready_changed_at is None:
        return record
    first = context.first_seen(node_not_ready(node, context.retry))
    shown_at = add_seconds(first, context.timeouts.unreachable_seconds)
    if context.now < shown_at:
        return record
    until = format_time(add_seconds(first, context.unreachable_seconds))
    return replace(
        record,
        reason=NodeReason.NODE_NOT_READY,
        message=f"the node has not been Ready since {format_time(node.ready_changed_at)}, and has "
        f"until {until} (nodeUnreachableSeconds)",
    )


def unreachable_reason(node: Node, blocking_taint: Taint | None) -> tuple[str, str]:
    """Return reason and message for a node that is not Ready or keeps its pod off."""
    if blocking_taint is not None and not is_away(node):
        return (
            NodeReason.NODE_TAINTED,
            f"the node has the taint {blocking_taint.key}, which keeps its pod off",
        )
    assert node.ready_changed_at is not None
    return (
        NodeReason.NODE_NOT_READY,
        f"the node has not been Ready since {format_time(node.ready_changed_at)}",
    )
