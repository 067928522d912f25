"""Whether a change of `spec.nodes` adds nodes to a completed Job that is kept.

Such a change opens the run again. The status says so before the DaemonSet is changed, so that a
crash in between loses nothing. Once the DaemonSet has the new selection, only the status knows.
"""

from __future__ import annotations

from collections.abc import Mapping

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import Tolerations
from job_controller.core.desired.daemon_set import desired_pod_spec
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.absence import node_has_begun
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records


def adds_nodes(snapshot: Snapshot) -> bool:
    """Return whether the Job's newest `spec.nodes` adds a node; False once that is applied.

    A node that completed or failed in this run is not added: it is done. One that has begun is
    added even if its own condition keeps its pod off at the moment: it stays desired. A selection
    with too many terms may add any node, and the status says what is wrong with it. Without a
    DaemonSet only a change of the spec that is not in the status yet can add one. A refusal of the
    DaemonSet adds none: the run was opened before the DaemonSet was applied.
    """
    job, daemon_set = snapshot.job, snapshot.owned_daemon_set
    if daemon_set is None:
        if job.status.observed_generation == job.generation:
            return False
    elif daemon_set.nodes_hash == job.nodes_hash:
        return False
    if RefusedWrite.DAEMON_SET in snapshot.refusals:
        return False
    if has_too_many_terms(job):
        return True
    spec = desired_pod_spec(job, snapshot.settings)
    affinity, tolerations = NodeAffinity(spec), Tolerations(spec)
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    ended = _ended_nodes(ledger, records)
    return any(
        node.uid not in ended
        and _is_wanted(node, tolerations, records.get(name))
        and affinity.matches(name, node.labels)
        for name, node in snapshot.nodes.items()
    )


def _is_wanted(node: Node, tolerations: Tolerations, record: NodeRecord | None) -> bool:
    """Return whether the node takes its pod, or has begun and only its condition keeps it off."""
    taints = tolerations.untolerated(node.taints)
    if not taints:
        return True
    return all(taint.is_condition for taint in taints) and node_has_begun(node, None, record)


def _ended_nodes(ledger: Mapping[str, Evidence], records: Mapping[str, NodeRecord]) -> set[str]:
    """Return the UIDs of the nodes that completed or failed in this run."""
    completed = {evidence.node_uid for evidence in ledger.values() if evidence.is_completed}
    final = {NodeState.COMPLETED, NodeState.FAILED}
    return completed | {record.uid for record in records.values() if record.state in final}
