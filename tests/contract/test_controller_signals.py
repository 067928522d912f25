"""A signal to stop the controller at any moment: it ends in order, and another goes on."""

import asyncio
import os
import signal

import pytest

from daemonset_job.kube.client.errors import ConfigurationError
from daemonset_job.kube.client.resource import JOB_REPORTS, LEASES
from job_controller.config import Config
from job_controller.main import run
from tests.contract.controller_cluster import FakeCluster, until

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def config(kubeconfig) -> Config:
    return Config(
        kubeconfig=str(kubeconfig),
        lease_namespace="system",
        lease_name="lock",
        probe_host="127.0.0.1",
        probe_port=0,
    )


async def stop(process: asyncio.Task[None], number: signal.Signals = signal.SIGTERM) -> float:
    """Send this process a signal, for which `run` has a handler; return how long it took to end."""
    started = asyncio.get_running_loop().time()
    os.kill(os.getpid(), number)
    async with asyncio.timeout(5):
        await process
    return asyncio.get_running_loop().time() - started


IN_FLIGHT = {
    "start": ("PATCH", "/jobs/sample/status"),
    "report": ("POST", "/jobreports"),
    "daemon set": ("PATCH", "/daemonsets/"),
    "record": ("PATCH", "/jobreports/.*/status"),
    "event": ("POST", "/events"),
}


@pytest.mark.parametrize(
    ("write", "number"),
    [*((write, signal.SIGTERM) for write in IN_FLIGHT), ("start", signal.SIGINT)],
)
async def test_a_signal_in_the_middle_of_a_write_ends_it_in_order(server, config, write, number):
    cluster = FakeCluster(server, "a", "b")
    method, path = IN_FLIGHT[write]
    server.delay_next(method, path, 60)
    cluster.apply()
    process = asyncio.create_task(run(config))
    await until(lambda: server.count(method, path), 10)

    assert await stop(process, number) < 3
    assert not server.get(LEASES, "lock", "system")["spec"].get("holderIdentity")

    second = asyncio.create_task(run(config))
    await until(cluster.is_settled, 10)
    for node in ("a", "b"):
        cluster.complete(node)
    await until(lambda: cluster.condition("Complete").get("status") == "True", 10)
    assert len(server.list(JOB_REPORTS)) == 1
    await stop(second)


async def test_a_signal_while_the_server_is_away_ends_it_too(server, config):
    server.reset_next("GET", "", 10_000)
    process = asyncio.create_task(run(config))
    await until(lambda: server.count("GET") > 3, 10)
    assert await stop(process) < 3


async def test_a_signal_also_ends_a_standby_replica(server, config):
    first = asyncio.create_task(run(config))
    await until(lambda: server.exists(LEASES, "lock", "system"), 10)
    await stop(first)
    lease = server.get(LEASES, "lock", "system")
    lease["spec"] |= {"holderIdentity": "another", "leaseDurationSeconds": 3600}
    server.put(LEASES, lease)
    asked = server.count("GET", "/leases/")
    second = asyncio.create_task(run(config))
    await until(lambda: server.count("GET", "/leases/") > asked, 10)
    assert await stop(second) < 3
    assert server.get(LEASES, "lock", "system")["spec"]["holderIdentity"] == "another"


async def test_without_a_cluster_to_connect_to_it_says_so(config, tmp_path):
    with pytest.raises(ConfigurationError, match="no kubeconfig at"):
        await run(Config(kubeconfig=str(tmp_path / "none")))
