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
    """The changed nodes of each Job, by the identity of their completion."""

    def __init__(self) -> None:
        """Begin without any."""
        self._changed: dict[JobKey, tuple[str, dict[str, datetime]]] = {}

    def record(self, key: JobKey, job_uid: str, completion_id: str, at: datetime) -> None:
        """Record that a node is changed; the first time counts."""
        known_uid, changed = self._changed.get(key, ("", {}))
        if known_uid != job_uid:
            changed = {}
        changed.setdefault(completion_id, at)
        self._changed[key] = job_uid, changed

    def with_changes(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the changed nodes; forget completions that the ledger lacks."""
        uid, changed = self._changed.get(key, ("", {}))
        if uid != snapshot.job.uid:
            return snapshot
        entries = (entry for report in snapshot.reports for entry in report.evidence.values())
        known = {entry.completion_id for entry in entries}
        for completion_id in changed.keys() - known:
            del changed[completion_id]
        return replace(snapshot, changed_nodes=dict(changed))

    def forget(self, key: JobKey) -> None:
        """Forget the nodes of a deleted Job."""
        self._changed.pop(key, None)
