"""The stop of all Jobs when the API server is slow, refuses, or goes away."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import CONFIG_MAPS
from tests.contract.controller_cluster import FakeCluster, running, until, virtual_clock

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]
SYSTEM = {"lease_namespace": "system", "lease_name": "lock"}
PATH = "/api/v1/namespaces/system/configmaps"


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


def stop(server, text):
    metadata = {"name": "daemonset-job-stop", "namespace": "system"}
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"stop": text, "reason": "fire"}})


def reason(cluster, name="sample"):
    return cluster.condition("Suspended", name).get("reason", "")


async def test_one_name_is_followed_and_a_stop_holds_at_once(server, cluster):
    stop(server, "true")
    async with running(server, **SYSTEM):
        cluster.apply()
        await until(lambda: reason(cluster) == "ClusterStopped")
        asked = [each for each in server.requests if "/configmaps" in each.path]
        assert asked
        assert all("daemonset-job-stop" in str(each.query) for each in asked)
        await asyncio.sleep(60)
        assert cluster.daemon_set_patches() == 0
        stop(server, "false")
        await until(cluster.is_settled)
        assert reason(cluster) == "Resumed"


async def test_a_run_at_work_says_so_and_goes_on_when_the_stop_is_deleted(server, cluster):
    async with running(server, **SYSTEM):
        cluster.apply()
        await until(cluster.is_settled)
        stop(server, "true")
        await until(lambda: reason(cluster) == "ClusterStopped")
        cluster.join("c")
        await asyncio.sleep(30)
        assert cluster.status()["nodes"]["active"] == 2
        cluster.complete("a")
        await until(lambda: cluster.completed() == 1)
        server.remove(CONFIG_MAPS, "daemonset-job-stop", "system")
        await until(lambda: cluster.status()["nodes"]["active"] == 2)
        assert reason(cluster) == "Resumed"


async def test_without_the_right_to_read_it_no_node_starts_and_each_job_says_why(server, cluster):
    server.fail_next("GET", PATH, 403, times=10)
    async with running(server, **SYSTEM):
        cluster.apply()
        await until(lambda: reason(cluster) == "ClusterStopped")
        words = cluster.condition("Suspended")["message"]
        assert (
            "the controller cannot read ConfigMap daemonset-job-stop in namespace system" in words
        )
        assert "apply deploy/ again" in words
        # Once it can be read, the Job goes on by itself.
        await until(cluster.is_settled)


async def test_an_api_server_that_is_slow_at_the_start_pauses_no_job(server, cluster):
    server.delay_next("GET", PATH, 5.0)
    async with running(server, **SYSTEM):
        cluster.apply()
        await until(cluster.is_settled)
        assert reason(cluster) == ""


async def test_what_was_read_holds_while_the_watch_is_broken(server, cluster):
    stop(server, "true")
    async with running(server, **SYSTEM):
        cluster.apply()
        await until(lambda: reason(cluster) == "ClusterStopped")
        server.fail_next("GET", PATH, 500, times=5)
        server.drop_watches(CONFIG_MAPS)
        await asyncio.sleep(30)
        assert cluster.daemon_set_patches() == 0


async def test_a_stop_that_cannot_be_read_has_no_effect_if_there_was_none_before(server, cluster):
    async with running(server, **SYSTEM):
        cluster.apply()
        await until(cluster.is_settled)
        server.fail_next("GET", PATH, 403, times=10_000)
        server.drop_watches(CONFIG_MAPS)
        stop(server, "true")
        cluster.join("c")
        await until(lambda: cluster.status()["nodes"]["active"] == 3)
        assert reason(cluster) == ""
        server.faults.clear()
        await until(lambda: reason(cluster) == "ClusterStopped")


async def test_without_a_namespace_of_the_system_nothing_is_stopped(server, cluster):
    stop(server, "true")
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
