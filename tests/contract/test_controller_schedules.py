"""Runs of ScheduledJobs: how many requests a start costs."""

import asyncio
from collections import Counter

import pytest

from daemonset_job.api.names import LABEL_SCHEDULED_JOB
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, SCHEDULED_JOBS
from tests.contract.controller_cluster import FakeCluster, running, until, virtual_clock

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


def kind_of(request):
    """Return what a request is for, "" if it is not for a ScheduledJob."""
    path = request.path
    if "/scheduledjobs/nightly" in path:
        return "get the ScheduledJob" if request.method == "GET" else "write the status"
    if "shard%3D0" in path and "job%3Dnightly-" in path:
        return "list the report of the start"
    if "scheduled-job%3Dnightly" in path:
        return "list its Jobs"
    if request.method == "POST" and path.partition("?")[0].endswith("/jobs"):
        return "create the Job"
    return ""


async def test_the_start_of_a_run_costs_few_requests(server):
    """A thousand schedules that start in one minute are a thousand times as many."""
    FakeCluster(server, "a")
    async with running(server):
        spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"image": "example/task:1"}}}
        meta = {"name": "nightly", "namespace": "default"}
        server.put(SCHEDULED_JOBS, {"metadata": meta, "spec": spec})
        await asyncio.sleep(2)
        before = len(server.requests)
        await until(lambda: server.list(JOBS), 600)
        await asyncio.sleep(2)
        found = Counter(map(kind_of, server.requests[before:]))
        (report,) = server.list(JOB_REPORTS)
        assert report["metadata"]["labels"][LABEL_SCHEDULED_JOB] == "nightly"
        del found[""]
        assert found == {
            "get the ScheduledJob": 2,  # for the start, and once more after what that has changed
            "list its Jobs": 2,
            "list the report of the start": 1,
            "create the Job": 1,
            "write the status": 1,
        }
