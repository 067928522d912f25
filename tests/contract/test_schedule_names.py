"""A start of a ScheduledJob whose name another Job has, or had."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.api.report import new_report, of_schedule
from daemonset_job.kube.client.errors import Conflict
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, SCHEDULED_JOBS
from job_controller.core.scheduled.starts import run_name
from tests.contract.controller_cluster import virtual_clock
from tests.contract.schedule_fixtures import emitted, reconciler

__all__ = ["emitted", "reconciler", "virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]
KEY = ("default", "nightly")


async def due_start(server):
    """Have a start due; return the name of its Job."""
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"image": "example/task:1"}}}
    server.put(SCHEDULED_JOBS, {"metadata": {"name": KEY[1], "namespace": KEY[0]}, "spec": spec})
    await asyncio.sleep(61)
    return run_name(KEY[1], server.clock.now())


def put_report(server, job, *, of="", uid="other"):
    raw = new_report(namespace=KEY[0], name=f"{job}-r", job_name=job, job_uid=uid, shard=0, spec={})
    server.put(JOB_REPORTS, of_schedule(raw, of))


def reason(server):
    (found,) = server.get(SCHEDULED_JOBS, KEY[1])["status"]["conditions"]
    return found["reason"]


async def test_the_job_of_another_that_has_run_is_told(server, reconciler):
    job = await due_start(server)
    server.put(JOBS, {"metadata": {"name": job, "namespace": KEY[0]}, "spec": {"image": "x"}})
    put_report(server, job)
    await reconciler.reconcile(KEY)
    assert reason(server) == "JobNameTaken"
    await reconciler.reconcile(KEY)  # as after each change of the status
    assert reason(server) == "JobNameTaken"
    await asyncio.sleep(60)
    await reconciler.reconcile(KEY)
    assert reason(server) == "Scheduled"


async def test_the_report_of_another_job_of_that_name_does_not_count(server, reconciler):
    job = await due_start(server)
    put_report(server, job)
    await reconciler.reconcile(KEY)
    assert server.exists(JOBS, job)
    assert server.get(JOBS, job)["metadata"]["labels"][names.LABEL_SCHEDULED_JOB] == KEY[1]


async def test_a_start_whose_job_is_gone_and_has_a_report_happens_once(server, reconciler):
    job = await due_start(server)
    put_report(server, job, of=KEY[1])
    await reconciler.reconcile(KEY)
    assert not server.exists(JOBS, job)
    assert reason(server) == "Scheduled"


async def test_a_start_is_one_event_also_if_the_status_cannot_be_written(
    server, reconciler, emitted
):
    """A user changes the ScheduledJob in the moment of the start."""
    job = await due_start(server)
    server.fail_next("PATCH", f"/scheduledjobs/{KEY[1]}/status", 409, reason="Conflict")
    with pytest.raises(Conflict):
        await reconciler.reconcile(KEY)
    await reconciler.reconcile(KEY)
    assert server.exists(JOBS, job)
    assert emitted == ["RunStarted"]
