"""Nodes that have failed and have no pod at the moment: they count as failed all the same.

The pod of a failed node is deleted, and the next one may take long, as for a quota. If the node did
not count meanwhile, others would start although as many have failed as may.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from job_controller.core.state.desired_count import find_completed, matching_nodes
from job_controller.core.state.snapshot import Snapshot


def find_failed_without_pod(
    snapshot: Snapshot,
    ledger: Mapping[str, Evidence],
    records: Mapping[str, NodeRecord],
    known: AbstractSet[str],
) -> dict[str, NodeRecord]:
    """Return the records of failed nodes without a pod of which the DaemonSet controller makes one.

    `known` are the nodes that are counted already. A node that the DaemonSet does not choose any
    more, or whose taints keep pods off, is not desired.
    """
    daemon_set, retry = snapshot.owned_daemon_set, snapshot.job.retry_request
    if daemon_set is None:
        return {}
    failed = {
        name
        for name, record in records.items()
        if name not in known
        and record.has_failed(retry)
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == record.uid
    }
    failed -= find_completed(snapshot, {name: ledger[name] for name in failed & ledger.keys()})
    return {
        name: records[name]
        for name in matching_nodes(snapshot, failed)
        if not snapshot.tolerations.untolerated(snapshot.nodes[name].taints)
    }
