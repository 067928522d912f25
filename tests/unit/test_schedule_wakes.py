"""Which changes of a Job wake the ScheduledJob that it is a run of."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from daemonset_job.api.job import parse_job
from daemonset_job.kube.client.client import KubeClient
from job_controller.schedules.cache import KnownSchedule, ScheduleCache
from tests.clocks import FakeClock

NOW = datetime(2026, 1, 2, 3, 10, tzinfo=UTC)
FAILED = {
    "phase": "Failed",
    "startTime": "2026-01-02T03:00:00Z",
    "completionTime": "2026-01-02T03:01:00Z",
    "observedGeneration": 1,
    "conditions": [{"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}],
}
BEGUN = {"startTime": "2026-01-02T03:01:00Z", "reason": "OnFailure"}
ENDED = {**BEGUN, "completionTime": "2026-01-02T03:02:00Z"}


def job(**status):
    meta = {"name": "nightly-1", "namespace": "default", "uid": "u", "generation": 1}
    spec = {"image": "x", "rollback": {"script": "undo"}}
    return parse_job({"metadata": meta, "spec": spec, "status": status})


@pytest.fixture
def woken():
    return []


@pytest.fixture
def cache(woken):
    found = ScheduleCache(KubeClient.__new__(KubeClient), (), FakeClock(NOW), woken.append)
    found._reflector.store.put(KnownSchedule("default", "nightly", "s", "1"))
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, job(phase="Running")),
        (job(phase="Running"), None),
        (job(phase="Running"), job(**FAILED)),
        (job(**FAILED, rollback=BEGUN), job(**FAILED, rollback=ENDED)),
        (job(**FAILED), job(**FAILED, rollback=BEGUN)),
    ],
    ids=["created", "deleted", "failed", "rolled back", "to be rolled back"],
)
def test_it_is_woken_when_a_run_begins_or_has_ended(cache, woken, old, new):
    cache.job_changed(old, new)
    assert woken == [("default", "nightly")]


def test_it_is_not_woken_for_the_progress_of_a_run(cache, woken):
    running = job(phase="Running")
    cache.job_changed(running, replace(running, resource_version="2"))
    rolling = job(**FAILED, rollback=BEGUN)
    cache.job_changed(rolling, replace(rolling, resource_version="2"))
    assert woken == []
