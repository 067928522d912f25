"""Nodes that the DaemonSet chooses, and that its controller does not count.

Nothing in the caches says why. That of OpenShift also obeys the node selector of the namespace.
"""

from __future__ import annotations

from datetime import datetime

from daemonset_job.api.states import ConditionType
from job_controller.core.state.desired_count import find_completed
from job_controller.core.state.first_seen import OVERLOOKED, node_overlooked
from job_controller.core.state.left_nodes import find_chosen_others
from job_controller.core.state.placement_wait import STALLED_AFTER
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records


def find_overlooked(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes that are to run a pod, have none, and are not counted.

    Nodes without a pod are looked at only once all that have one have completed or failed. Until
    then the run waits for these in any case.
    """
    ours = snapshot.owned_daemon_set
    if ours is None or ours.is_terminating or not ours.is_observed:
        return frozenset()
    if ours.scheduled < ours.desired or snapshot.job.is_true(ConditionType.FAILED):
        return frozenset()
    with_pod = {pod.node_name for pod in snapshot.pods} & snapshot.nodes.keys()
    if len(with_pod) < ours.scheduled + ours.misscheduled:
        # A node whose pod is not in the cache yet is counted.
        return frozenset()
    retry, records = snapshot.job.retry_request, merge_records(snapshot)
    completed = find_completed(snapshot, merge_evidence(snapshot))
    current = {pod.node_name for pod in snapshot.pods if not pod.is_terminating} & with_pod
    if any(
        (record := records.get(name)) is None or not record.has_failed(retry)
        for name in current - completed
    ):
        return frozenset()
    return find_chosen_others(snapshot, with_pod | completed)


def find_overlooked_for_long(
    snapshot: Snapshot, now: datetime
) -> tuple[frozenset[str], datetime | None]:
    """Return the nodes that are overlooked for STALLED_AFTER, and when there may be more."""
    if not any(fact.kind == OVERLOOKED for fact in snapshot.seen):
        return frozenset(), None
    found: set[str] = set()
    later: list[datetime] = []
    for name in find_overlooked(snapshot):
        sighting = snapshot.seen.get(node_overlooked(snapshot.nodes[name]))
        due_at = (sighting.first if sighting is not None else now) + STALLED_AFTER
        if now >= due_at:
            found.add(name)
        else:
            later.append(due_at)
    return frozenset(found), min(later, default=None)
