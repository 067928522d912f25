"""Whether the drain of a node has failed: by time, or for pods that must not be evicted."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.drain import Drain
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from job_controller.core.state.evictions import (
    NodeDrain,
    describe_left,
    describe_refused,
    ends_at,
)
from job_controller.core.state.first_seen import node_draining
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_exits import failed_record
from job_controller.core.state.node_unreachable import is_away
from job_controller.core.text.sanitize import DETAIL_LIMIT, single_line

# As much as the longest message of another failure, which ends with the last line of a log. A
# thousand of them have room in one report, beside the evidence of earlier tries.
_MESSAGE_LIMIT: Final = DETAIL_LIMIT + 120
# From the first eviction that this controller requests: twice the usual grace period of a pod.
_LEAST_SECONDS: Final = 60


def drain_failure(
    context: RunContext, record: NodeRecord, inputs: NodeInputs
) -> tuple[NodeRecord | None, datetime | None]:
    """Return the record of a node whose drain has failed, None if not, and when it times out."""
    drain, known, found = context.spec.drain, inputs.own_record, inputs.drain
    if drain is None or known is None or known.drain_started_at is None:
        return None, None
    if not inputs.pod.is_gated or known.retry != context.retry:
        return None, None
    if found.is_done if found is not None else known.is_drained:
        return None, None
    if found is not None and found.refused:
        words = f"the node is not drained: {describe_refused(found)}"
        return _failed(context, record, NodeReason.DRAIN_REFUSED, words), None
    seen_at = context.first_seen(node_draining(inputs.node, known.drain_started_at))
    # On a node that is away no pod ends. Once it is back, its drain begins again.
    is_held = known.state == NodeState.UNREACHABLE or is_away(inputs.node)
    began = (known.drain_started_at, seen_at)
    due_at = _times_out_at(context, drain, began, found) if not is_held else None
    if due_at is None or context.now < due_at:
        return None, due_at
    left = describe_left(found) if found is not None else "its pods cannot be listed"
    words = f"not drained within drain.timeoutSeconds ({drain.timeout_seconds} s): {left}"
    return _failed(context, record, NodeReason.DRAIN_TIMED_OUT, words), None


def _times_out_at(
    context: RunContext,
    drain: Drain,
    began: tuple[datetime, datetime],
    found: NodeDrain | None,
) -> datetime | None:
    """Return when a drain times out, None if it does not for now.

    `began` is when it did by the record, and when this controller first saw that. It begins again
    when nodes may start again. A controller that was away meanwhile tries first: while it cannot
    list the pods, all of the time counts from its first look.
    """
    if context.is_suspended:
        return None
    started_at, seen_at = began
    due_at = ends_at(started_at, drain)
    if found is None:
        return max(due_at, ends_at(seen_at, drain))
    least = min(drain.timeout_seconds, _LEAST_SECONDS)
    if found.tried_seconds is None:
        return None if found.due else max(due_at, seen_at + timedelta(seconds=least))
    if found.tried_seconds >= least:
        return due_at
    return max(due_at, context.now + timedelta(seconds=least - found.tried_seconds))


def _failed(context: RunContext, record: NodeRecord, reason: NodeReason, words: str) -> NodeRecord:
    failed = failed_record(record, reason, "", at=context.now)
    return replace(failed, message=single_line(words, _MESSAGE_LIMIT))
