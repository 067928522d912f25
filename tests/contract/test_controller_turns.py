"""No more nodes at work than `maxParallel`: watched from outside, after every single write."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, PODS
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock
from tests.fakekube.daemon_sets import node_of

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

NODES = ("a", "b", "c", "d", "e", "f")
LIMIT = 2
SPEC = {"rollout": {"maxParallel": LIMIT}, "ttlSecondsAfterFinished": 3600}


class Watch:
    """Sees which nodes are at work: the pod may start, and the node is not in the ledger."""

    def __init__(self, server):
        self.server = server
        self.most = 0
        self.begun = []
        server.storage.listeners.append(self._look)

    def at_work(self):
        done = {name for r in self.server.list(JOB_REPORTS) for name in r.get("evidence") or ()}
        return {node_of(pod) for pod in self.server.list(PODS) if not gated(pod)} - done

    def _look(self, _event):
        found = self.at_work()
        self.begun += sorted(found.difference(self.begun))
        self.most = max(self.most, len(found))


@pytest.fixture
def cluster(server):
    return FakeCluster(server, *NODES)


def is_complete(cluster):
    return cluster.condition("Complete").get("status") == "True"


async def work(cluster, watch, seconds):
    """Complete a node each second or so, the last one that has begun first."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end and not is_complete(cluster):
        await asyncio.sleep(0.7)
        if at_work := watch.at_work():
            cluster.complete(max(at_work))


async def test_controllers_that_take_over_one_after_the_other_keep_the_limit(server, cluster):
    watch = Watch(server)
    async with running(server):
        cluster.apply(**SPEC)
        await until(watch.at_work)
    for seconds in (0.2, 0.5, 1, 1.5, 2, 3, 60):
        async with running(server):
            await work(cluster, watch, seconds)
    assert is_complete(cluster)
    assert watch.most == LIMIT
    assert watch.begun == list(NODES)


@pytest.mark.parametrize("count", [2, 3])
async def test_controllers_that_all_believe_to_lead_keep_the_limit(server, cluster, count):
    """As after a pause of a process that has lost its Lease and has not noticed it yet."""
    watch = Watch(server)
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(running(server))
        cluster.apply(**SPEC)
        await work(cluster, watch, 300)
    assert is_complete(cluster)
    assert watch.most == LIMIT
    assert set(watch.begun) == set(NODES)


@pytest.mark.parametrize("verb", ["PATCH /pods/", "PATCH /jobreports/"])
async def test_writes_that_are_late_or_whose_answer_is_lost_keep_the_limit(server, cluster, verb):
    watch = Watch(server)
    method, path = verb.split()
    async with running(server):
        cluster.apply(**SPEC)
        for fault in (server.lose_answer_next, server.reset_next):
            fault(method, path)
            await work(cluster, watch, 2)
        server.delay_next(method, path, 3.0, 2)
        await work(cluster, watch, 300)
    assert is_complete(cluster)
    assert watch.most == LIMIT
