"""All that this process remembers of a Job between its reconciles, in one place.

Layer: between the reconciler and what it remembers. All of it may be lost in a restart.
"""

from __future__ import annotations

from daemonset_job.api.job import JobKey
from daemonset_job.runtime.expectations import VersionExpectations
from daemonset_job.runtime.write_pacer import WritePacer
from job_controller.dependencies import Dependencies
from job_controller.event_causes import EventCauses
from job_controller.node_change_store import NodeChangeStore
from job_controller.outbound import Outbound
from job_controller.pod_checks import PodChecks
from job_controller.preview_pace import PreviewPaces
from job_controller.reapply_backoff import ReapplyBackoff
from job_controller.refusal_backoff import RefusalBackoff
from job_controller.sightings import SightingStore
from job_controller.source_checks import SourceChecks


class ProgressPacers:
    """The pauses between writes that show nothing but progress, by Job."""

    def __init__(self) -> None:
        self._pacers: dict[JobKey, WritePacer] = {}

    def forget(self, key: JobKey) -> None:
        """Forget the pause of a deleted Job."""
        self._pacers.pop(key, None)

    def remaining_seconds(self, key: JobKey, now: float) -> float:
        """Return what is left of the Job's pause, 0 for none."""
        pacer = self._pacers.get(key)
        return pacer.remaining_seconds(now) if pacer is not None else 0.0

    def record(self, key: JobKey, duration_seconds: float, nodes: int, now: float) -> None:
        """Begin a pause after writes about `nodes` that ended `now`."""
        self._pacers.setdefault(key, WritePacer()).record(duration_seconds, nodes, now)


class Memories:
    """What is remembered by Job. Each attribute has a method that forgets one."""

    def __init__(self, dependencies: Dependencies, written: VersionExpectations[JobKey]) -> None:
        self.written = written
        self.progress_pacers = ProgressPacers()
        self.sightings = SightingStore(dependencies.clock)
        self.refusal_backoff = RefusalBackoff()
        self.reapply_backoff = ReapplyBackoff()
        self.node_changes = NodeChangeStore()
        self.event_causes = EventCauses(dependencies.client, dependencies.clock)
        self.pod_checks = PodChecks(dependencies.client, dependencies.clock)
        self.preview_paces = PreviewPaces()
        self.source_checks = SourceChecks(
            lambda: dependencies.settings().sources, dependencies.clock, Outbound()
        )

    def forget(self, key: JobKey) -> None:
        """Forget all of a deleted Job."""
        for memory in vars(self).values():
            memory.forget(key)
