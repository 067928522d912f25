"""A Job of a ScheduledJob whose deletion the API server refuses, as a policy may."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.api.owners import owner_reference
from daemonset_job.kube.client.errors import Conflict, Forbidden
from daemonset_job.kube.client.resource import JOBS, SCHEDULED_JOBS
from tests.contract.controller_cluster import running, virtual_clock
from tests.contract.schedule_fixtures import emitted, reconciler

__all__ = ["emitted", "reconciler", "virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]
KEY = ("default", "nightly")
FAILED = {
    "phase": "Failed",
    "completionTime": "2026-01-02T03:01:00Z",
    "observedGeneration": 1,
    "conditions": [{"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}],
}
RUNNING = {"phase": "Running", "observedGeneration": 1}


def put_schedule(server, schedule="* * * * *", **spec):
    body = {"schedule": schedule, "jobTemplate": {"spec": {"image": "example/task:1"}}, **spec}
    meta = {"name": KEY[1], "namespace": KEY[0]}
    return server.put(SCHEDULED_JOBS, {"metadata": meta, "spec": body})


def put_jobs(server, scheduled, count, status):
    for number in range(count):
        owner = owner_reference("ScheduledJob", KEY[1], scheduled["metadata"]["uid"])
        labels = {names.LABEL_SCHEDULED_JOB: KEY[1]}
        meta = {"name": f"nightly-{number}", "namespace": KEY[0]}
        meta |= {"labels": labels, "ownerReferences": [owner]}
        body = {"metadata": meta, "spec": {"image": "example/task:1"}, "status": status}
        server.put(JOBS, body)


def refuse(server, job, times=1):
    words = "a policy keeps this Job"
    server.fail_next("DELETE", f"/jobs/{job}", 403, reason="Forbidden", message=words, times=times)


def jobs(server):
    return [job["metadata"]["name"] for job in server.list(JOBS)]


async def test_a_run_that_cannot_be_replaced_is_told_and_tried_again(server, reconciler):
    """Before, the status said that runs start as scheduled, and none did."""
    scheduled = put_schedule(server, concurrencyPolicy="Replace")
    put_jobs(server, scheduled, 1, RUNNING)
    await asyncio.sleep(61)
    refuse(server, "nightly-0")
    assert await reconciler.reconcile(KEY) == pytest.approx(30.0)
    (found,) = server.get(SCHEDULED_JOBS, KEY[1])["status"]["conditions"]
    assert (found["status"], found["reason"]) == ("False", "JobRefused")
    assert "Job nightly-0, which it replaces, cannot be deleted: a policy" in found["message"]
    assert jobs(server) == ["nightly-0"]
    await asyncio.sleep(30)
    await reconciler.reconcile(KEY)
    (found,) = server.get(SCHEDULED_JOBS, KEY[1])["status"]["conditions"]
    assert found["reason"] == "Scheduled"
    assert len(jobs(server)) == 1
    assert jobs(server) != ["nightly-0"]


async def test_each_replaced_run_is_told_also_if_the_next_one_cannot_be_deleted(
    server, reconciler, emitted
):
    scheduled = put_schedule(server, concurrencyPolicy="Replace")
    put_jobs(server, scheduled, 2, RUNNING)
    await asyncio.sleep(61)
    server.fail_next("DELETE", "/jobs/nightly-1", 409, reason="Conflict")
    with pytest.raises(Conflict):
        await reconciler.reconcile(KEY)
    await reconciler.reconcile(KEY)
    assert emitted == ["RunReplaced", "RunReplaced", "RunStarted"]


async def test_a_job_that_cannot_be_deleted_keeps_no_other_one(server, reconciler):
    scheduled = put_schedule(server, suspend=True, failedJobsHistoryLimit=0)
    put_jobs(server, scheduled, 3, FAILED)
    refuse(server, "nightly-0")
    with pytest.raises(Forbidden):
        await reconciler.reconcile(KEY)
    assert jobs(server) == ["nightly-0"]


async def test_a_job_that_cannot_be_deleted_delays_no_start(server):
    """A start with a deadline would be missed, when the next try comes after it."""
    await asyncio.sleep(10)
    limits = {"startingDeadlineSeconds": 5, "failedJobsHistoryLimit": 0}
    scheduled = put_schedule(server, "*/7 * * * *", **limits)
    put_jobs(server, scheduled, 1, FAILED)
    refuse(server, "nightly-0", times=1000)
    async with running(server):
        await asyncio.sleep(7 * 60 - 6)
        assert len(jobs(server)) == 2
        await asyncio.sleep(7 * 60)
        assert len(jobs(server)) == 3


async def test_the_time_that_a_refusal_takes_delays_no_start(server, reconciler):
    scheduled = put_schedule(server, failedJobsHistoryLimit=0)
    put_jobs(server, scheduled, 1, FAILED)
    refuse(server, "nightly-0", times=10)
    now = server.clock.now()
    await asyncio.sleep(100 - now.second - now.microsecond / 1e6)
    server.delay_next("GET", "/jobs.*scheduled-job%3Dnightly", 5)
    with pytest.raises(Forbidden) as refused:
        await reconciler.reconcile(KEY)
    assert refused.value.retry_after_seconds == pytest.approx(15, abs=1.1)


async def test_many_jobs_that_cannot_be_deleted_are_not_tried_each_second(server, reconciler):
    scheduled = put_schedule(server, suspend=True, failedJobsHistoryLimit=0)
    put_jobs(server, scheduled, 25, FAILED)
    refuse(server, "nightly-", times=100)
    with pytest.raises(Forbidden) as refused:
        await reconciler.reconcile(KEY)
    assert refused.value.retry_after_seconds > 15


async def test_many_jobs_beyond_the_history_are_deleted_soon_after_each_other(server, reconciler):
    scheduled = put_schedule(server, suspend=True, failedJobsHistoryLimit=0)
    put_jobs(server, scheduled, 25, FAILED)
    assert await reconciler.reconcile(KEY) == 1.0
    assert len(jobs(server)) == 5
    await reconciler.reconcile(KEY)
    assert jobs(server) == []
