"""Whether a task of a run has begun on any node, or may have: by pods, records and the ledger.

What cannot be known counts as begun. Of a pod that is gone only its last status shows whether it
has started anything, and only the controller that saw that knows it. So a pod that is about to be
deleted is on record before: as an attempt, or as the pod in which the node failed. Of a pod that
another client has removed, the report gets the node, unless something else is on record.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from daemonset_job.api import report as reports_api
from daemonset_job.api.fold_names import fold
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import ConditionType, NodeState
from job_controller.core.state.absence import has_begun
from job_controller.core.state.ended_pods import has_failed_unstarted, is_marked
from job_controller.core.state.snapshot import Snapshot

# Of the names of nodes in a message.
NAMES_LIMIT: Final = 160
# A node that is not drained fails while its pod waits at the gate, which then stays. It is removed
# only after a retry, and then the failure is among the earlier ones of the record.
_FAILED_AT_GATE: Final = frozenset({NodeReason.DRAIN_TIMED_OUT, NodeReason.DRAIN_REFUSED})


def find_begun(snapshot: Snapshot) -> str:
    """Return where a task of the run has begun, or may have, in words; "" if none has."""
    nodes = _find_recorded(snapshot)
    # A node that is on record says enough: another controller does not know of pods that are gone.
    nodes |= {snapshot.ended_pods.ran_on} - {""} if not nodes else set()
    nodes |= {pod.node_name or pod.name for pod in snapshot.all_pods if pod.has_run}
    # Nothing of the run looks after one that was taken from its DaemonSet.
    nodes |= {pod.node_name for pod in snapshot.orphans if pod.is_scheduled}
    return f"a task has begun, or may have, on {fold(nodes, limit=NAMES_LIMIT)}" if nodes else ""


def find_unrecorded_begin(snapshot: Snapshot) -> str:
    """Return the node of a pod that is gone and may have run, "" if the record shows a begin."""
    ran_on = snapshot.ended_pods.ran_on
    if not ran_on or any(report.evidence for report in snapshot.reports):
        return ""
    return "" if _find_recorded(snapshot) else ran_on


def _find_recorded(snapshot: Snapshot) -> set[str]:
    """Return the nodes on which a task has begun, or may have, by the reports."""
    first = snapshot.first_report
    nodes = {first.status.may_have_begun_on} - {""} if first is not None else set()
    # A pod itself shows if it has run, while it is there.
    known = snapshot.pod_uids | snapshot.ended_pods.without_start
    has_lost_pods = _has_lost_pods(snapshot)
    nodes |= set(reports_api.merge_evidence(snapshot.reports))
    return nodes | {
        name
        for name, record in reports_api.merge_records(snapshot.reports).items()
        if _shows_begin(record, known, has_lost_pods=has_lost_pods)
    }


def _has_lost_pods(snapshot: Snapshot) -> bool:
    """Return whether pods were deleted with the DaemonSet of a run that has failed."""
    return snapshot.owned_daemon_set is None and snapshot.job.is_true(ConditionType.FAILED)


def _shows_begin(record: NodeRecord, known: AbstractSet[str], *, has_lost_pods: bool) -> bool:
    """Return whether a record shows that the task of the node has begun, or may have.

    `known` are the UIDs of the pods that are there, or have ended without a start.
    """
    if record.failures or record.omitted_failures or record.earlier_pods:
        return True
    if is_marked(record):
        return record.pod_uid not in known
    if has_failed_unstarted(record) and record.reason in _FAILED_AT_GATE:
        return False
    if has_failed_unstarted(record) or (has_lost_pods and _has_waited_on_node(record)):
        return bool(record.pod_uid) and record.pod_uid not in known
    # A node left that had begun, or was unreachable, so that nothing is known of its pod.
    return record.state == NodeState.REMOVED or has_begun(record)


def _has_waited_on_node(record: NodeRecord) -> bool:
    is_waiting = record.state == NodeState.WAITING and not record.attempts
    return is_waiting and record.reason != NodeReason.SCHEDULING_GATED
