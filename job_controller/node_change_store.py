"""Keeps, until it is on record, which nodes this process has changed for a Job, and when.

Layer: beside the reconciler. What is kept may be lost in a restart: a change is then made again,
and finds the node changed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from daemonset_job.api.job import JobKey
from job_controller.core.state.snapshot import Snapshot


class NodeChangeStore:
    """The changed nodes of each Job by their UID."""

    def __init__(self) -> None:
        """Begin without any."""
        self._changed: dict[JobKey, tuple[str, dict[str, datetime]]] = {}

    def record(self, key: JobKey, job_uid: str, node_uid: str, at: datetime) -> None:
        """Record that a node is changed; the first time counts."""
        known_uid, changed = self._changed.get(key, ("", {}))
        if known_uid != job_uid:
            changed = {}
        changed.setdefault(node_uid, at)
        self._changed[key] = job_uid, changed

    def with_changes(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the changed nodes."""
        uid, changed = self._changed.get(key, ("", {}))
        return (
            replace(snapshot, changed_nodes=dict(changed)) if uid == snapshot.job.uid else snapshot
        )

    def forget(self, key: JobKey) -> None:
        """Forget the nodes of a deleted Job."""
        self._changed.pop(key, None)
