"""Cordons are written and lifted, and the answers are lost; the cache of nodes is late, too."""

import asyncio
import contextlib
import re

import pytest

from daemonset_job.kube.client.resource import NODES, PODS
from tests.contract.controller_cluster import (
    FakeCluster,
    gated,
    running,
    until,
    virtual_clock,
)
from tests.contract.fake_faults import Fault
from tests.contract.test_controller_drains import (
    BUDGET,
    EVICTION,
    cluster,
    is_clean,
    is_complete,
    is_cordoned,
    mark,
    put_pod,
)
from tests.fakekube.daemon_sets import node_of

__all__ = ["FakeCluster", "cluster", "virtual_clock"]

SLOW_DRAIN = {"drain": {"timeoutSeconds": 3600}, "rollout": {"maxParallel": 2}}

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


def on_uncordon(server, act):
    """Act as soon as the cordon of the node is lifted, once."""

    def listen(event):
        was = ((event.old or {}).get("spec") or {}).get("unschedulable")
        if event.kind[1] == NODES.plural and was and not is_cordoned(server):
            server.storage.listeners.remove(listen)
            asyncio.get_running_loop().call_soon(act)

    server.storage.listeners.append(listen)


def is_started(cluster, name="a"):
    """Return whether the task on a node may start."""
    pods = [pod for pod in cluster.server.list(PODS) if node_of(pod) == name]
    return any(not gated(pod) for pod in pods if pod["metadata"]["namespace"] == "default")


@contextlib.asynccontextmanager
async def blocking(server):
    """A running controller, and a Job that has cordoned a node and waits for a pod to leave.

    The task on node b has begun, so that the start of the run is not taken back.
    """
    cluster = FakeCluster(server, "b")
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 10_000, message=BUDGET)
    async with running(server):
        cluster.apply(**SLOW_DRAIN)
        await until(lambda: is_cordoned(server) and is_started(cluster, "b"))
        await asyncio.sleep(5)
        server.faults.clear()
        yield cluster


async def finish(server, cluster):
    """Complete all tasks, and have the run end without a cordon."""
    for name in ("a", "b"):
        cluster.complete(name)
    await until(lambda: is_complete(cluster))
    assert not mark(server)


def note_starts(server, cluster):
    """Return a list that gets, at each change since a task may start, whether it is cordoned."""
    found = []

    def listen(_event):
        if is_started(cluster):
            found.append(is_cordoned(server))

    server.storage.listeners.append(listen)
    return found


def was_to_uncordon(request):
    is_of_node = request.method == "PATCH" and request.path.startswith("/api/v1/nodes/a")
    return is_of_node and request.body["spec"] == {"unschedulable": None}


def resumes(server, cluster):
    server.remove(PODS, "web-1", "shop")
    cluster.apply(**SLOW_DRAIN)


async def test_no_task_starts_on_a_node_that_was_uncordoned_without_the_cache_having_it(server):
    async with blocking(server) as blocked:
        found = note_starts(server, blocked)
        on_uncordon(server, lambda: resumes(server, blocked))
        server.silence_watches(NODES)
        server.lose_answer_next("PATCH", "/nodes/a")
        blocked.apply(**SLOW_DRAIN, suspend=True)
        await until(lambda: is_started(blocked), 600)
        assert found[0]
        await finish(server, blocked)
        assert is_clean(server)


async def test_no_task_is_at_work_when_a_request_to_uncordon_arrives_that_was_given_up(server):
    """The API server carries it out long after the controller has lost the connection."""
    async with blocking(server) as blocked:
        found = note_starts(server, blocked)
        cut_off = Fault("PATCH", re.compile("/nodes/a"), 1, delay_seconds=5, reset=True)
        server.faults.append(cut_off)
        blocked.apply(**SLOW_DRAIN, suspend=True)
        await until(lambda: cut_off.times == 0)
        resumes(server, blocked)
        await until(lambda: is_started(blocked), 600)
        (late, *_) = [each for each in server.requests if was_to_uncordon(each)]
        version = server.get(NODES, "a", "")["metadata"]["resourceVersion"]
        if late.body["metadata"]["resourceVersion"] == version:
            server.patch(NODES, "a", late.body, "")
        await asyncio.sleep(60)
        assert found
        assert all(found)
        await finish(server, blocked)
        assert is_clean(server)


async def test_the_cordon_that_a_person_sets_after_a_lost_uncordon_stays(server):
    async with blocking(server) as blocked:

        def cordon():
            server.patch(NODES, "a", {"spec": {"unschedulable": True}}, "")

        on_uncordon(server, cordon)
        server.lose_answer_next("PATCH", "/nodes/a")
        blocked.apply(**SLOW_DRAIN, suspend=True)
        await asyncio.sleep(60)
        assert is_cordoned(server)
        assert mark(server) is None
        resumes(server, blocked)
        await until(lambda: is_started(blocked))
        await finish(server, blocked)
        assert is_cordoned(server)


async def test_a_cordon_whose_answer_is_lost_is_lifted_at_the_end(server, cluster):
    server.lose_answer_next("PATCH", "/nodes/a")
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
        assert is_cordoned(server)
        cluster.complete("a")
        await until(lambda: is_complete(cluster))
        assert is_clean(server)


@pytest.mark.parametrize("status", [500, 503, 504])
async def test_a_node_whose_uncordon_fails_holds_up_no_write_and_is_prepared_later(server, status):
    async with blocking(server) as blocked:
        found = note_starts(server, blocked)
        server.fail_next("PATCH", "/nodes/a", status, 5, message="failed calling webhook")
        blocked.apply(**SLOW_DRAIN, suspend=True)
        await until(lambda: blocked.condition("Suspended").get("status") == "True")
        resumes(server, blocked)
        await until(lambda: is_started(blocked), 300)
        assert found[0]
        await finish(server, blocked)
        assert is_clean(server)
