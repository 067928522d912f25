"""Cordons while the watch of the nodes is late: the controller waits for its own writes."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import NODES, PODS
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock
from tests.contract.test_controller_drains import (
    BUDGET,
    DRAIN,
    EVICTION,
    is_clean,
    is_cordoned,
    is_started,
    put_pod,
    record,
)

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a")


@pytest.fixture
def opened(server):
    """Whether the node was cordoned whenever a pod without a gate was changed."""
    found = []

    def look(event):
        raw = event.new
        is_own = raw.get("kind") == "Pod" and raw["metadata"]["namespace"] == "default"
        if event.type == "MODIFIED" and is_own and not gated(raw):
            found.append(is_cordoned(server))

    server.storage.listeners.append(look)
    return found


async def test_no_gate_is_removed_for_a_cordon_that_only_the_cache_has(server, cluster, opened):
    """The pod of a node goes, the node is uncordoned, and the next pod comes at once."""
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
        opened.clear()
        server.silence_watches(NODES)
        cluster.plays = False
        server.remove(PODS, cluster.pod("a")["metadata"]["name"])
        await until(lambda: is_clean(server))
        cluster.plays = True
        await asyncio.sleep(0)
        server.patch(NODES, "a", {"metadata": {"labels": {"x": "y"}}}, "")
        await until(lambda: is_started(cluster), 600)
        assert opened
        assert all(opened)


async def block_drain(server, cluster):
    """Have the drain of node a wait for a pod, and the watch of nodes be late from then on."""
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 10_000, message=BUDGET)
    cluster.apply(**DRAIN)
    await until(lambda: record(server).get("reason") == "DrainBlocked")
    server.silence_watches(NODES)
    cluster.plays = False


def register_again(server, cluster):
    """Have another machine take the name of node a; it has no cordon, and gets a pod."""
    cluster.join("a")
    cluster.plays = True
    server.patch(NODES, "a", {"metadata": {"labels": {"x": "y"}}}, "")


async def test_no_gate_is_removed_for_the_cordon_of_a_former_node(server, cluster, opened):
    """A new machine takes the name of the node that is drained, and the watch of nodes is late."""
    async with running(server):
        await block_drain(server, cluster)
        server.remove(PODS, "web-1", "shop")
        server.remove(PODS, cluster.pod("a")["metadata"]["name"])
        server.remove(NODES, "a", "")
        register_again(server, cluster)
        before = len(server.requests)
        await asyncio.sleep(20)
        assert not opened
        assert len(server.requests) < before + 100
        await until(lambda: is_started(cluster), 600)
        assert opened
        assert all(opened)


async def test_no_gate_is_removed_for_the_cordon_of_a_node_that_is_gone(server, cluster, opened):
    """Its pod waits for any node of that name, and would start on the next one."""
    async with running(server):
        await block_drain(server, cluster)
        server.remove(NODES, "a", "")
        server.remove(PODS, "web-1", "shop")
        before = len(server.requests)
        await asyncio.sleep(20)
        assert not is_started(cluster)
        assert len(server.requests) < before + 100
        register_again(server, cluster)
        await until(lambda: opened, 600)
        assert all(opened)
