"""Keeps, between the reconciles of a Job, when its timers started in this process.

Layer: beside the reconciler. What is kept may be lost in a restart: each timer then starts again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from daemonset_job.api.job import JobKey
from daemonset_job.api.states import NodeState
from daemonset_job.runtime.clock import Clock
from job_controller.core.owned_jobs.outcome import find_failed
from job_controller.core.owned_jobs.rollback_targets import find_not_ready
from job_controller.core.state.absence import find_kept_off
from job_controller.core.state.first_seen import (
    ObservedObjects,
    Sightings,
    has_limits,
    shift_sightings,
    update_sightings,
)
from job_controller.core.state.ledger_room import has_ledger_room
from job_controller.core.state.left_nodes import find_ending
from job_controller.core.state.node_changes import nodes_without_results
from job_controller.core.state.node_exits import find_ends_of_rules
from job_controller.core.state.node_pods import current_pods, pods_without_node
from job_controller.core.state.overlooked_nodes import find_overlooked
from job_controller.core.state.placement_wait import find_waiting
from job_controller.core.state.snapshot import Snapshot, merge_records

# Two clocks that differ by less run at slightly different rates; by more, one of them was set.
_CLOCK_SET = timedelta(seconds=1)


class SightingStore:
    """The sightings of each Job since its last reconcile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # UID, sightings, and the time of the last reconcile by both clocks.
        self._seen: dict[JobKey, tuple[str, Sightings, datetime, float]] = {}

    def with_sightings(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the sightings: when each timer started in this process."""
        job = snapshot.job
        now, moment = self._clock.now(), self._clock.monotonic()
        uid, before, at, at_moment = self._seen.get(key, ("", {}, now, moment))
        step = (now - at) - timedelta(seconds=moment - at_moment)
        if abs(step) >= _CLOCK_SET:
            before = shift_sightings(before, step)
        # What another start of the Job had to wait for is over, see `taken_back_start`.
        is_same_start = uid == job.uid and job.status.start_time is not None
        before = before if is_same_start else {}
        seen = update_sightings(before, observe(snapshot), now)
        self._seen[key] = job.uid, seen, now, moment
        return replace(snapshot, seen=seen)

    def forget(self, key: JobKey) -> None:
        """Forget the sightings of a deleted Job."""
        self._seen.pop(key, None)


def observe(snapshot: Snapshot) -> ObservedObjects:
    """Return the objects of a Job from which the facts follow that timers count from."""
    pods, records = current_pods(snapshot), merge_records(snapshot)
    return ObservedObjects(
        pods,
        snapshot.nodes,
        failed=frozenset(
            name for name, record in records.items() if record.state == NodeState.FAILED
        ),
        tainted=find_kept_off(snapshot, pods),
        not_ready=find_not_ready(snapshot),
        retry=snapshot.job.retry_request,
        without_node=pods_without_node(snapshot),
        has_ledger_room=has_ledger_room(snapshot),
        without_results=nodes_without_results(snapshot),
        draining={
            name: record.drain_started_at
            for name, record in records.items()
            if record.drain_started_at is not None and name in snapshot.nodes
        },
        ending=find_ending(snapshot, pods),
        waiting=find_waiting(snapshot),
        failed_owned=find_failed(snapshot.owned_jobs),
        ended={
            record.pod_uid: record.finished_in_pod
            for record in records.values()
            if record.finished_in_pod
        },
        ended_by_rule=find_ends_of_rules(snapshot, pods.values()),
        limits=has_limits(snapshot.job.spec),
        overlooked=find_overlooked(snapshot),
    )
