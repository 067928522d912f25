"""Whether completed nodes have been changed as `spec.onSuccess` says, by the controller's records.

Pure. The Job says what to change, so it stays until that is done.
"""

from terminator.node_count import Snapshot


def unchanged_nodes(snapshot: Snapshot) -> list[str]:
    """Return the completed nodes, still the same ones by UID, whose records lack the change."""
    if not snapshot.job.spec.on_success.changes_nodes:
        return []
    return sorted(
        name
        for name, evidence in snapshot.ledger.items()
        if (node := snapshot.nodes.get(name)) is not None
        and evidence.completes(node.uid)
        and not _is_changed(snapshot, name, node.uid)
    )


def _is_changed(snapshot: Snapshot, name: str, uid: str) -> bool:
    record = snapshot.records.get(name)
    return record is not None and record.uid == uid and record.node_changed_at is not None
