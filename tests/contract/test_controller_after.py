"""Runs that start after others have succeeded: `spec.after`."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS
from tests.contract.controller_cluster import FakeCluster, running, until, virtual_clock

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a")


def waits(cluster, name="second"):
    return cluster.condition("Progressing", name).get("reason") == "WaitingForJob"


def message(cluster, name="second"):
    return cluster.condition("Progressing", name)["message"]


def has_started(cluster, name="second"):
    return "startTime" in cluster.status(name)


async def succeed(cluster, **spec):
    """Have a run of the Job `sample` end with success."""
    cluster.apply(**spec)
    await until(cluster.is_settled)
    cluster.complete("a")
    await until(lambda: cluster.condition("Complete").get("status") == "True")


async def test_a_run_starts_when_the_other_job_has_succeeded(server, cluster):
    async with running(server):
        cluster.apply("second", after=["sample"])
        await until(lambda: waits(cluster))
        assert "neither a Job nor a report" in message(cluster)
        cluster.apply(ttlSecondsAfterFinished=600)
        await until(lambda: "which is" in message(cluster))
        await until(cluster.is_settled)
        await asyncio.sleep(600)
        assert not has_started(cluster)
        cluster.complete("a")
        await until(lambda: has_started(cluster), 10)


async def test_the_other_job_is_looked_at_once_more_after_a_slow_dry_run(server, cluster):
    """A webhook takes long, and the Job is created again meanwhile."""
    async with running(server):
        await succeed(cluster, ttlSecondsAfterFinished=600)
        server.delay_next("PATCH", "/daemonsets/", 9.0)
        cluster.apply("second", after=["sample"])
        await asyncio.sleep(4)
        server.remove(JOBS, "sample")
        cluster.apply()
        await until(lambda: waits(cluster))
        assert not has_started(cluster)


async def test_the_report_of_a_deleted_job_has_its_success(server, cluster):
    async with running(server):
        await succeed(cluster)
        server.remove(JOBS, "sample")
        await until(lambda: server.list(JOB_REPORTS))
        cluster.apply("second", after=["sample"])
        await until(lambda: has_started(cluster), 10)


async def test_a_failed_job_is_waited_for_until_its_retry_succeeds(server, cluster):
    async with running(server):
        cluster.apply(backoffLimit=0)
        await until(cluster.is_settled)
        cluster.fail("a")
        await until(lambda: cluster.condition("Failed").get("status") == "True")
        cluster.apply("second", after=["sample"])
        await until(lambda: waits(cluster))
        assert "retry Job sample" in message(cluster)


async def test_a_circle_is_told_to_each_of_its_jobs(server, cluster):
    async with running(server):
        cluster.apply("first", after=["second"])
        cluster.apply("second", after=["first"])
        for name in ("first", "second"):
            await until(lambda name=name: waits(cluster, name))
            await until(lambda name=name: "waits for this one" in message(cluster, name))
        cluster.apply("first", after=[])
        await until(lambda: has_started(cluster, "first"), 10)
        assert not has_started(cluster)
