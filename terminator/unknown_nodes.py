"""Whether a node is selected of which nothing is known but that it exists.

Pure. Taints may keep pods off it. Or it joined a moment ago, and its pod is not cached yet.
"""

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.node import Node
from terminator.node_count import Snapshot


def has_unknown_nodes(snapshot: Snapshot) -> bool:
    """Return whether the DaemonSet selects a node that has no pod, no evidence and no record."""
    found = snapshot.daemon_set
    if found is None:
        return False
    affinity = NodeAffinity(found.pod_spec)
    with_pod = {pod.node_name for pod in snapshot.pods if pod.owner_uid == found.uid}
    return any(
        affinity.matches(name, node.labels)
        for name, node in snapshot.nodes.items()
        if name not in with_pod and not _is_known(node, snapshot)
    )


def _is_known(node: Node, snapshot: Snapshot) -> bool:
    """Return whether the node has evidence or a record under its own UID."""
    entry, record = snapshot.ledger.get(node.name), snapshot.records.get(node.name)
    return (entry is not None and entry.node_uid == node.uid) or (
        record is not None and record.uid == node.uid
    )
