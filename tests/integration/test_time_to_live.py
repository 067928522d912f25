"""Jobs that have ended stay for their time to live, and are deleted after it."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS
from tests.integration.harness import open_harness
from tests.integration.task_runs import (
    DAEMON_SET,
    EXIT,
    FAILS,
    HOLD,
    SOON,
    SUCCEEDS,
    failed,
    fails,
    script,
    spec,
)

pytestmark = pytest.mark.timeout(90)


async def test_a_failed_run_without_pods_takes_a_time_to_live(kube_env, namespace):
    behaviour = script(a=[FAILS], b=[SUCCEEDS])
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply(spec(**EXIT, backoffLimit=0, failurePolicy={"pods": "Delete"}))
        await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)
        await harness.wait_deleted(DAEMON_SETS, DAEMON_SET, seconds=SOON)
        await harness.change(JOBS, "sample", {"spec": {"ttlSecondsAfterFinished": 0}})
        await harness.wait_deleted(JOBS, "sample", seconds=4)


async def test_complete_job_whose_nodes_have_left_is_deleted_after_its_ttl(kube_env, namespace):
    async with open_harness(kube_env, namespace, nodes=("a",)) as harness:
        await harness.apply(spec(ttlSecondsAfterFinished=3))
        await harness.wait_reason("Complete", "AllNodesCompleted", seconds=SOON)
        await harness.nodes.leave("a")
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert (await harness.report())["status"]["phase"] == "Succeeded"


async def test_complete_job_with_a_later_failure_is_deleted_after_its_ttl(kube_env, namespace):
    behaviour = script(a=[SUCCEEDS], late=[FAILS])
    async with open_harness(kube_env, namespace, nodes=("a",), behaviour=behaviour) as harness:
        await harness.apply(spec(**EXIT, ttlSecondsAfterFinished=4, backoffLimit=0))
        await harness.wait_reason("Complete", "AllNodesCompleted", seconds=SOON)
        await harness.nodes.join("late")
        await harness.wait_started("late", seconds=3)
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert (await harness.report())["status"]["phase"] == "Succeeded"


async def test_a_completed_job_stays_for_its_time_to_live(kube_env, namespace):
    async with open_harness(kube_env, namespace) as harness:
        await harness.apply(spec(ttlSecondsAfterFinished=6))
        await harness.wait_reason("Complete", "AllNodesCompleted")
        await asyncio.sleep(1)
        assert (await harness.find(JOBS, "sample"))["status"]["phase"] == "Succeeded"
        await harness.wait_deleted(JOBS, "sample")


async def test_a_failed_job_goes_when_its_time_to_live_says_so(kube_env, namespace):
    async with open_harness(kube_env, namespace, behaviour=script(a=[fails(1), HOLD])) as harness:
        await harness.apply(spec(backoffLimit=0, ttlSecondsAfterFinished=3))
        await failed(harness)
        await harness.wait_deleted(JOBS, "sample")
        await harness.wait_deleted(DAEMON_SETS, DAEMON_SET)
        assert (await harness.report())["status"]["phase"] == "Failed"
