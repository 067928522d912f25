"""Whether a change of `spec.nodes` adds nodes to a completed Job that is kept.

Such a change opens the run again. The status says so before the DaemonSet is changed, so that a
crash in between loses nothing. Once the DaemonSet has the new selection, only the status knows.
"""

from __future__ import annotations

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.daemon_set import pod_spec_of
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import untolerated
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records


def adds_nodes(snapshot: Snapshot) -> bool:
    """Return whether the Job's newest `spec.nodes` adds a node; False once that is applied.

    A node that completed or failed in this run is not added: it is done. A selection with too many
    terms may add any node, and the status says what is wrong with it. Without a DaemonSet only a
    change of the spec that is not in the status yet can add one. A refusal of the DaemonSet adds
    none: the run was opened before the DaemonSet was applied.
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
    template = build_pod_template(job, gated=True, settings=snapshot.settings)
    spec = pod_spec_of({"template": template})
    affinity = NodeAffinity(spec)
    ended = _ended_nodes(snapshot)
    return any(
        node.uid not in ended
        and not untolerated(node.taints, spec)
        and affinity.matches(name, node.labels)
        for name, node in snapshot.nodes.items()
    )


def _ended_nodes(snapshot: Snapshot) -> set[str]:
    """Return the UIDs of the nodes that completed or failed in this run."""
    completed = {
        evidence.node_uid for evidence in merge_evidence(snapshot).values() if evidence.is_completed
    }
    final = {NodeState.COMPLETED, NodeState.FAILED}
    return completed | {
        record.uid for record in merge_records(snapshot).values() if record.state in final
    }
