"""Causes that only events have: why pods are refused, and why a pod cannot be set up.

Layer: beside the reconciler. Events are listed only while a cause is looked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from daemonset_job.api.job import JobKey
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.runtime.clock import Clock
from job_controller.core.plan import Plan
from job_controller.core.state.snapshot import Snapshot
from job_controller.read_pace import ReadPaces
from job_controller.warning_events import WarningEvents

# Of the kubelet and of the attach-detach controller (kubernetes pkg/kubelet/events/event.go).
_SETUP_REASONS: Final = (
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "NetworkNotReady",
)


class EventCauses:
    """The newest event of each Job about refused pods, and about pods that cannot be set up."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        """Begin without any."""
        paces = ReadPaces()
        self._failed_creates = WarningEvents(client, clock, ("FailedCreate",), paces)
        self._failed_mounts = WarningEvents(client, clock, _SETUP_REASONS, paces)

    def forget(self, key: JobKey) -> None:
        """Drop what is known of a Job that is gone."""
        self._failed_creates.forget(key)
        self._failed_mounts.forget(key)

    def with_causes(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the causes that are known."""
        uid = snapshot.daemon_set.uid if snapshot.daemon_set is not None else ""
        return replace(
            snapshot,
            failed_create_message=self._failed_creates.message(key, uid),
            failed_create_reads=self._failed_creates.completed(key, uid),
            failed_mount=self._failed_mounts.newest(key),
        )

    async def look(self, key: JobKey, snapshot: Snapshot, plan: Plan) -> float | None:
        """Read events if the plan lacks a cause; return the seconds until the next read."""
        waits: list[float] = []
        daemon_set = snapshot.owned_daemon_set
        if daemon_set is not None and plan.has_missing_pods:
            waits.append(await self._failed_creates.look(key, daemon_set.uid))
        elif daemon_set is None or daemon_set.is_observed:
            self._failed_creates.forget(key)
        if plan.unexplained_pod:
            waits.append(await self._failed_mounts.look(key, plan.unexplained_pod))
        else:
            self._failed_mounts.forget(key)
        return min(waits, default=None)
