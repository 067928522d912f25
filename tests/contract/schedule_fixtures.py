"""A reconciler of ScheduledJobs that works on the fake API server, and the events that it emits."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from daemonset_job.kube.client.client import KubeClient
from job_controller.core.settings import Settings
from job_controller.dependencies import Dependencies
from job_controller.schedules.metrics import ScheduleMetrics
from job_controller.schedules.reconciler import ScheduleReconciler
from tests.contract.fake_api import FakeApiServer


@pytest.fixture
def emitted() -> list[str]:
    """Return the reasons of events, in their order."""
    return []


@pytest.fixture
def reconciler(server: FakeApiServer, client: KubeClient, emitted: list[str]) -> ScheduleReconciler:
    events: Any = SimpleNamespace(emit=lambda _about, _type, reason, _text: emitted.append(reason))
    unused: Any = None
    metrics = ScheduleMetrics(CollectorRegistry(), lambda: 1)
    dependencies = Dependencies(client, events, server.clock, unused, Settings)
    return ScheduleReconciler(dependencies, metrics)
