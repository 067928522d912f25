"""What one namespace's faults cost another one."""

import asyncio
import re

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, LEASES, PODS
from job_controller.actions.pods import PODS_AT_ONCE
from job_controller.config import Config
from job_controller.metrics import Metrics
from tests.contract.controller_cluster import (
    DAEMON_SET,
    FakeCluster,
    running,
    until,
    virtual_clock,
)
from tests.contract.fake_faults import Fault

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=2000), pytest.mark.usefixtures("virtual_clock")]

BAD_JOBS = 5000


@pytest.fixture
def tenant(server):
    """A namespace of 5,000 Jobs whose DaemonSets a slow webhook refuses after a second each."""
    path = re.compile("/namespaces/tenant/daemonsets/")
    server.faults.append(Fault("PATCH", path, 100_000, 422, delay_seconds=1.0))

    def add() -> None:
        for index in range(BAD_JOBS):
            metadata = {"name": f"bad-{index}", "namespace": "tenant"}
            server.put(JOBS, {"metadata": metadata, "spec": {"image": "bad"}})

    return add


async def test_bad_jobs_delay_another_namespace_by_less_than_two_seconds(server, tenant):
    tenant()
    async with running(server):
        await asyncio.sleep(5)
        refused = server.count("PATCH", "/namespaces/tenant/daemonsets/")
        assert 0 < refused < 100  # nearly all of them wait for a worker
        metadata = {"name": "sample", "namespace": "default"}
        server.put(JOBS, {"metadata": metadata, "spec": {"image": "good"}})
        started = asyncio.get_running_loop().time()
        await until(lambda: server.exists(DAEMON_SETS, DAEMON_SET), 2.0)
        assert asyncio.get_running_loop().time() - started < 2.0


async def test_hanging_writes_of_all_workers_leave_connections_to_the_lease(server, client):
    server.put(LEASES, {"metadata": {"name": "lease", "namespace": "system"}})
    server.delay_next("PATCH", "/namespaces/tenant/pods/", 1000.0, times=100_000)
    hanging: list[asyncio.Task[object]] = []
    for _ in range(Config().workers + 1):  # one after the other, as a server takes connections
        for number in range(PODS_AT_ONCE):
            write = client.merge_patch(PODS, f"pod-{number}", {}, "tenant")
            hanging.append(asyncio.create_task(write))
        await until(lambda: server.count("PATCH", "/pods/") == len(hanging), 3.0)
    await client.get(LEASES, "lease", "system", timeout_seconds=1)
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_client_that_changes_a_job_all_the_time_costs_a_few_reconciles_a_second(server):
    cluster, metrics = FakeCluster(server, "a", "b"), Metrics()

    def count() -> float:
        found = metrics.registry.get_sample_value("dsj_reconcile_duration_seconds_count")
        assert found is not None
        return found

    async with running(server, metrics=metrics):
        cluster.apply()
        await until(cluster.is_settled)
        await asyncio.sleep(5)
        # The first change is looked at now, as a request of a person is.
        before = count()
        cluster.apply(suspend=True)
        await asyncio.sleep(0.1)
        assert cluster.condition("Suspended")["status"] == "True"
        for number in range(500):
            text = {"metadata": {"annotations": {"example.com/number": str(number)}}}
            server.patch(JOBS, "sample", text)
            await asyncio.sleep(0.02)
        assert count() - before < 60
        cluster.apply(suspend=False)
        await asyncio.sleep(1)
        assert cluster.condition("Suspended")["status"] == "False"
