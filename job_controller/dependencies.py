"""What a reconciler is given when it is created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.recorder import EventRecorder
from daemonset_job.runtime.clock import Clock
from job_controller.core.settings import Settings
from job_controller.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a reconciler is given, its caches aside. `settings` returns the current ones."""

    client: KubeClient
    events: EventRecorder
    clock: Clock
    metrics: Metrics
    settings: Callable[[], Settings]
