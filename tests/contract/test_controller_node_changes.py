"""The controller's changes of completed nodes: faults, races, restarts, refusals."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, NODES
from tests.contract.controller_cluster import FakeCluster, running, until, virtual_clock

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

KEY = "example.com/prepared"
TAINT = "example.com/not-prepared"
SPEC = {"onSuccess": {"labels": {KEY: "yes"}, "removeTaints": [TAINT]}}


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


def is_complete(cluster):
    return cluster.condition("Complete").get("status") == "True"


def labels(server, node):
    return server.get(NODES, node, "")["metadata"].get("labels") or {}


def taint(server, node, *keys):
    taints = [{"key": key, "effect": "PreferNoSchedule"} for key in keys]
    server.patch(NODES, node, {"spec": {"taints": taints}}, "")


def taints(server, node):
    found = server.get(NODES, node, "")["spec"].get("taints") or ()
    return [each["key"] for each in found]


def records(server):
    (report,) = server.list(JOB_REPORTS)
    return report["status"]["nodeStates"]


async def test_nodes_are_changed_once_and_the_run_completes(server, cluster):
    async with running(server):
        cluster.apply(**SPEC)
        await until(cluster.is_settled)
        taint(server, "a", "other", TAINT)
        cluster.complete("a")
        await until(lambda: labels(server, "a").get(KEY) == "yes")
        assert taints(server, "a") == ["other"]
        assert KEY not in labels(server, "b")
        cluster.complete("b")
        await until(lambda: is_complete(cluster))
        assert all(record["nodeChangedAt"] for record in records(server).values())
        server.patch(NODES, "a", {"metadata": {"labels": {KEY: None}}}, "")
        await asyncio.sleep(600)
    async with running(server):
        await asyncio.sleep(600)
    assert KEY not in labels(server, "a")
    assert len(cluster.writes("/nodes/")) == 2


async def test_a_taint_that_is_added_meanwhile_is_not_lost(server, cluster):
    async with running(server):
        cluster.apply(**SPEC)
        await until(cluster.is_settled)
        taint(server, "a", TAINT)
        server.fail_next("PATCH", "/nodes/a", 409, 2, message="the object has been modified")
        cluster.complete("a")
        await until(lambda: labels(server, "a").get(KEY) == "yes")
        (patch, *_) = [r.body for r in cluster.writes("/nodes/a") if r.status == 200]
        assert patch["metadata"]["resourceVersion"]
        assert patch["metadata"]["uid"] == server.get(NODES, "a", "")["metadata"]["uid"]


async def test_a_failing_webhook_on_nodes_delays_nothing_else(server, cluster):
    async with running(server):
        cluster.apply(**SPEC)
        await until(cluster.is_settled)
        server.fail_next("PATCH", "/nodes/", 500, 10_000, message="failed calling webhook")
        cluster.complete("a")
        await until(lambda: cluster.completed() == 1)
        cluster.complete("b")
        await until(lambda: cluster.completed() == 2)
        assert records(server)["b"]["state"] == "Completed"
        await asyncio.sleep(60)
        assert not is_complete(cluster)
        assert cluster.condition("Progressing")["reason"] == "NodeChangeRefused"
        assert "failed calling webhook" in cluster.condition("Progressing")["message"]
        server.faults.clear()
        await until(lambda: is_complete(cluster), 600)


async def test_one_refused_node_does_not_hold_up_the_others(server, cluster):
    async with running(server):
        cluster.apply(**SPEC)
        await until(cluster.is_settled)
        server.fail_next("PATCH", "/nodes/a", 403, 10_000, message="the policy says no")
        cluster.complete("a")
        cluster.complete("b")
        await until(lambda: labels(server, "b").get(KEY) == "yes")
        await until(lambda: cluster.condition("Progressing")["reason"] == "NodeChangeRefused")
        assert cluster.condition("Progressing")["message"].endswith("the policy says no")
        await until(lambda: records(server)["b"].get("nodeChangedAt"))
        # Tried again at growing distances, and nothing is written meanwhile.
        before, since = len(cluster.writes("/nodes/")), server.storage.version
        await asyncio.sleep(600)
        assert 1 <= len(cluster.writes("/nodes/")) - before <= 6
        assert server.storage.version == since
        server.faults.clear()
        await until(lambda: is_complete(cluster), 600)


async def test_a_crash_between_change_and_record_repeats_nothing_that_is_done(server, cluster):
    async with running(server):
        cluster.apply(**SPEC)
        await until(cluster.is_settled)
        server.fail_next("PATCH", "/jobreports/.*/status", 500, 10_000, message="down")
        cluster.complete("a")
        await asyncio.sleep(60)
    server.faults.clear()
    async with running(server):
        cluster.complete("b")
        await until(lambda: is_complete(cluster), 600)
    assert len([r for r in cluster.writes("/nodes/a") if r.status == 200]) == 1
    assert all(record["nodeChangedAt"] for record in records(server).values())


async def test_a_node_that_is_deleted_before_its_change_needs_none(server, cluster):
    async with running(server):
        cluster.apply(**SPEC)
        await until(cluster.is_settled)
        server.fail_next("PATCH", "/nodes/a", 500, 10_000, message="down")
        cluster.complete("a")
        cluster.complete("b")
        await until(lambda: cluster.completed() == 2)
        server.remove(NODES, "a", "")
        await until(lambda: is_complete(cluster), 600)


async def test_a_run_that_may_not_change_nodes_starts_once_it_may(server, cluster):
    server.fail_next("PATCH", "/nodes/", 403, 10_000, message='cannot patch resource "nodes"')
    async with running(server):
        cluster.apply(**SPEC)
        await until(lambda: cluster.condition("Progressing").get("reason") == "NodeChangeRefused")
        assert "deploy/components/node-changes" in cluster.condition("Progressing")["message"]
        assert "startTime" not in cluster.status()
        assert not server.list(JOB_REPORTS)
        tries = len(server.requests)
        await asyncio.sleep(120)
        assert len([r for r in server.requests[tries:] if "/nodes/" in r.path]) <= 6
        server.faults.clear()
        await until(cluster.is_settled, 600)
