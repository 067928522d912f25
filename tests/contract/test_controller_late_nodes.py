"""Cordons while the watch of the nodes is late: the controller waits for its own writes."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import NODES, PODS
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock
from tests.contract.test_controller_drains import is_clean, is_cordoned, is_started

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a")


async def test_no_gate_is_removed_for_a_cordon_that_only_the_cache_has(server, cluster):
    """The pod of a node goes, the node is uncordoned, and the next pod comes at once."""
    opened = []

    def look(event):
        raw = event.new
        if event.type == "MODIFIED" and raw.get("kind") == "Pod" and not gated(raw):
            opened.append(is_cordoned(server))

    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
        server.storage.listeners.append(look)
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
