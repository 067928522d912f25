"""What one namespace's faults cost another one."""

import asyncio
import re

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS
from tests.contract.controller_cluster import DAEMON_SET, running, until, virtual_clock
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
