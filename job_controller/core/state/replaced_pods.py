"""Nodes of a Job of policy Continuous that are due again, and whose pod is of an earlier try."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from job_controller.core.state.due_again import stamp
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_counts import DesiredNode
from job_controller.core.state.node_unreachable import find_unreachable
from job_controller.core.state.snapshot import Snapshot


def replaced_node(
    snapshot: Snapshot,
    context: RunContext,
    inputs: NodeInputs,
    *,
    chosen_by: str,
    awaits_record: bool,
) -> tuple[DesiredNode, datetime | None]:
    """Return the node, whose pod is to be replaced, and when time alone changes its state.

    That follows once the DaemonSet creates pods of the newest revision, and the report says that
    the node is due again. While the Job is suspended the pod is left alone. So the node waits. It
    is unreachable if it is down meanwhile, as a node without a pod is.
    """
    job, daemon_set = snapshot.job, snapshot.owned_daemon_set
    is_applied = (
        daemon_set is not None and daemon_set.is_observed and daemon_set.revision == job.revision
    )
    may_replace = is_applied and not (job.is_suspended or awaits_record)
    name, known = inputs.node.name, inputs.own_record
    waiting = known or NodeRecord(inputs.node.uid, NodeState.WAITING, retry=job.retry_request)
    waiting = replace(waiting, state=NodeState.WAITING, reason="", message="")
    unreachable, wake_at = None, None
    if job.is_suspended:
        unreachable, wake_at = find_unreachable(context, waiting, inputs)
    record = stamp(job, name, unreachable or waiting, inputs.record, chosen_by=chosen_by)
    node = DesiredNode(
        name,
        record,
        inputs.pod,
        replace_pod=may_replace,
        awaits_retry=not may_replace,
        awaits_record=awaits_record,
    )
    return node, wake_at
