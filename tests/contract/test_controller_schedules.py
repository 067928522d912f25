"""Runs of ScheduledJobs: how many requests a start costs."""

import asyncio
from collections import Counter

import pytest

from daemonset_job.api.names import LABEL_SCHEDULED_JOB
from daemonset_job.kube.client.resource import EVENTS, JOB_REPORTS, JOBS, SCHEDULED_JOBS
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


def put_nightly(server, schedule):
    spec = {"schedule": schedule, "jobTemplate": {"spec": {"image": "example/task:1"}}}
    meta = {"name": "nightly", "namespace": "default"}
    server.put(SCHEDULED_JOBS, {"metadata": meta, "spec": spec})


def refusals(server):
    return [each for each in server.list(EVENTS) if each["reason"] == "JobRefused"]


async def test_the_start_of_a_run_costs_few_requests(server):
    """A thousand schedules that start in one minute are a thousand times as many."""
    FakeCluster(server, "a")
    async with running(server):
        put_nightly(server, "*/5 * * * *")
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


async def test_a_refusal_with_other_words_each_time_is_tried_again_after_a_while(server):
    """A webhook may name its request in each answer, and each one changes the status."""
    FakeCluster(server, "a")
    async with running(server):
        put_nightly(server, "0 * * * *")
        for number in range(1000):
            server.fail_next("POST", "/jobs", 403, reason="Forbidden", message=f"request {number}")
        await asyncio.sleep(3600 + 300)
        tries = [each for each in server.requests if kind_of(each) == "create the Job"]
        assert 9 <= len(tries) <= 12
        # A change of the spec is tried at once.
        server.patch(SCHEDULED_JOBS, "nightly", {"spec": {"failedJobsHistoryLimit": 2}})
        await asyncio.sleep(2)
        assert sum(kind_of(each) == "create the Job" for each in server.requests) == len(tries) + 1


async def test_a_start_that_a_webhook_holds_up_is_reported_and_done_once_it_answers(server):
    FakeCluster(server, "a")
    words = 'Internal error occurred: failed calling webhook "policy.example"'
    async with running(server):
        put_nightly(server, "0 * * * *")
        server.fail_next("POST", "/jobs", 500, times=1000, message=words)
        await asyncio.sleep(3600 + 120)
        (found,) = server.get(SCHEDULED_JOBS, "nightly")["status"]["conditions"]
        assert (found["status"], found["reason"]) == ("False", "JobRefused")
        assert found["message"].endswith(words)
        assert len(refusals(server)) == 1
        server.faults.clear()
        await until(lambda: server.list(JOBS), 31)
        await asyncio.sleep(2)
        (found,) = server.get(SCHEDULED_JOBS, "nightly")["status"]["conditions"]
        assert found["reason"] == "Scheduled"


async def test_an_error_that_passes_is_not_reported_and_hardly_delays_the_start(server):
    FakeCluster(server, "a")
    async with running(server):
        put_nightly(server, "0 * * * *")
        server.fail_next("POST", "/jobs", 500, times=2)
        await asyncio.sleep(3600 + 10)
        assert server.list(JOBS)
        assert not refusals(server)


async def test_slow_answers_just_before_a_start_do_not_delay_it_more(server):
    """The ScheduledJob is looked at every ten minutes, here ten seconds before its start."""
    FakeCluster(server, "a")
    async with running(server):
        await asyncio.sleep(590)
        put_nightly(server, "20 * * * *")
        await asyncio.sleep(590)
        server.delay_next("GET", "/jobs.*scheduled-job%3Dnightly", 20.0)
        await asyncio.sleep(20 + 13)
        assert not server.faults, "there was no look before the start"
        assert server.list(JOBS)
