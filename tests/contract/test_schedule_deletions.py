"""A Job that a person changes in the moment in which a ScheduledJob deletes it."""

import asyncio
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from daemonset_job.api import names
from daemonset_job.api.owners import owner_reference
from daemonset_job.kube.client.errors import Conflict
from daemonset_job.kube.client.resource import JOBS, SCHEDULED_JOBS
from job_controller.core.settings import Settings
from job_controller.dependencies import Dependencies
from job_controller.schedules.metrics import ScheduleMetrics
from job_controller.schedules.reconciler import ScheduleReconciler
from tests.contract.controller_cluster import virtual_clock

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]
KEY = ("default", "nightly")
JOB = "nightly-1"
FAILED = {
    "phase": "Failed",
    "startTime": "2026-01-02T03:00:00Z",
    "completionTime": "2026-01-02T03:01:00Z",
    "observedGeneration": 1,
    "conditions": [{"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}],
}
RUNNING = {"phase": "Running", "startTime": "2026-01-02T03:00:00Z", "observedGeneration": 1}


def put_schedule(server, minute="0", **spec):
    template = {"spec": {"image": "example/task:1"}}
    meta = {"name": KEY[1], "namespace": KEY[0]}
    body = {"schedule": f"{minute} * * * *", "jobTemplate": template, **spec}
    return server.put(SCHEDULED_JOBS, {"metadata": meta, "spec": body})


def put_job(server, scheduled, status):
    owner = owner_reference("ScheduledJob", KEY[1], scheduled["metadata"]["uid"])
    labels = {names.LABEL_SCHEDULED_JOB: KEY[1]}
    meta = {"name": JOB, "namespace": KEY[0], "labels": labels, "ownerReferences": [owner]}
    body = {"metadata": meta, "spec": {"image": "example/task:1"}, "status": status}
    return server.put(JOBS, body)


@pytest.fixture
def reconciler(server, client):
    events = SimpleNamespace(emit=lambda *_: None)
    metrics = ScheduleMetrics(CollectorRegistry(), lambda: 1)
    given = Dependencies(client, events, server.clock, None, Settings)
    return ScheduleReconciler(given, metrics)


async def reconcile_while(server, reconciler, change):
    """Reconcile, and change the Job when its deletion is on its way."""
    server.delay_next("DELETE", f"/jobs/{JOB}", 2.0)
    going = asyncio.ensure_future(reconciler.reconcile(KEY))
    await asyncio.sleep(1)
    assert not going.done()
    server.patch(JOBS, JOB, change)
    with pytest.raises(Conflict):
        await going
    assert server.exists(JOBS, JOB)
    await reconciler.reconcile(KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {names.ANNOTATION_RETRY: "1"}}},
        {"spec": {"nodes": {"include": ["b"]}}},
        {"spec": {"suspend": True}},
    ],
    ids=["retry", "nodes", "suspend"],
)
async def test_a_job_beyond_the_history_that_is_changed_meanwhile_stays(server, reconciler, change):
    put_job(server, put_schedule(server, suspend=True, failedJobsHistoryLimit=0), FAILED)
    await reconcile_while(server, reconciler, change)
    assert server.exists(JOBS, JOB)


async def test_a_job_whose_run_is_open_again_stays(server, reconciler):
    put_job(server, put_schedule(server, suspend=True, failedJobsHistoryLimit=0), FAILED)
    await reconcile_while(server, reconciler, {"status": {**RUNNING, "conditions": None}})
    assert server.exists(JOBS, JOB)


async def test_a_change_that_asks_for_nothing_only_delays_the_deletion(server, reconciler):
    put_job(server, put_schedule(server, suspend=True, failedJobsHistoryLimit=0), FAILED)
    await reconcile_while(server, reconciler, {"metadata": {"annotations": {"looked-at": "by me"}}})
    assert not server.exists(JOBS, JOB)


async def test_a_replaced_job_is_judged_again_before_the_next_one_is_created(server, reconciler):
    """The run to be replaced has just begun to be rolled back."""
    scheduled = put_schedule(server, "*", concurrencyPolicy="Replace")
    put_job(server, scheduled, RUNNING)
    await asyncio.sleep(61)
    failed = {**FAILED, "rollback": {"startTime": "2026-01-02T03:01:00Z", "reason": "OnFailure"}}
    await reconcile_while(server, reconciler, {"status": failed})
    assert [job["metadata"]["name"] for job in server.list(JOBS)] == [JOB]
