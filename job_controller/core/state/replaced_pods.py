"""Nodes of a Job of policy Continuous that are due again, and whose pod is of an earlier try."""

from __future__ import annotations

from dataclasses import replace

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from job_controller.core.state.due_again import stamp
from job_controller.core.state.node_counts import DesiredNode
from job_controller.core.state.snapshot import Snapshot


def replaced_node(
    snapshot: Snapshot,
    pod: Pod,
    known: NodeRecord | None,
    *,
    chosen_by: str,
    awaits_record: bool,
) -> DesiredNode:
    """Return the node, which waits, and whose pod is to be replaced; `known` is its record.

    That follows once the DaemonSet creates pods of the newest revision, and the report says that
    the node is due again. While the Job is suspended the pod is left alone.
    """
    job, daemon_set = snapshot.job, snapshot.owned_daemon_set
    is_applied = (
        daemon_set is not None and daemon_set.is_observed and daemon_set.revision == job.revision
    )
    may_replace = is_applied and not (job.is_suspended or awaits_record)
    uid = snapshot.nodes[pod.node_name].uid
    begun = known if known is not None and known.uid == uid else None
    waiting = begun or NodeRecord(uid, NodeState.WAITING, retry=job.retry_request)
    waiting = replace(waiting, state=NodeState.WAITING, reason="", message="")
    record = stamp(job, pod.node_name, waiting, known, chosen_by=chosen_by)
    return DesiredNode(
        pod.node_name,
        record,
        pod,
        replace_pod=may_replace,
        awaits_retry=not may_replace,
        awaits_record=awaits_record,
    )
