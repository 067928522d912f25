"""Writes that a former leader has sent, and that the API server carries out under its successor."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS
from tests.contract.controller_cluster import FakeCluster, running, until, virtual_clock
from tests.contract.fake_receiver import configured

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

# How long an API server carries out a write at most (apiserver requestTimeoutUpperBound: 34 s),
# and longer: no time makes such a write harmless.
LATE_SECONDS = 58


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


def hold_first_status(server, matches):
    """Have the first status that matches carried out late, also if its client is gone by then.

    Returns a list, which has that request once it has arrived.
    """
    held, route = [], server._route

    async def late(http, request):
        await asyncio.sleep(LATE_SECONDS)
        return await route(http, request)

    async def maybe_late(http, request):
        if held or not is_status_of_report(request) or not matches(request.body["status"]):
            return await route(http, request)
        held.append(request)
        return await asyncio.shield(asyncio.create_task(late(http, request)))

    server._route = maybe_late
    return held


def is_status_of_report(request):
    path = request.path.partition("?")[0]
    return request.method == "PATCH" and "/jobreports/" in path and path.endswith("/status")


def recorded(server):
    (report,) = server.list(JOB_REPORTS)
    return report.get("status") or {}


def recorded_node(server, node):
    return (recorded(server).get("nodeStates") or {}).get(node) or {}


def sent_last(server):
    return recorded(server)["notifications"]["ops"].get("event")


async def start_and_lose_the_leader(server, cluster, **spec):
    """Have a controller start a run, and end while its first status of the report is under way."""
    held = hold_first_status(server, lambda status: "phase" in status)
    async with running(server):
        cluster.apply(**spec)
        await until(lambda: held)
    assert held[0].body["status"]["phase"] == "Running"


async def test_a_failure_that_is_recorded_stays(server, cluster):
    await start_and_lose_the_leader(
        server, cluster, backoffLimit=0, failurePolicy={"maxFailedNodes": 1}
    )
    async with running(server):
        await until(lambda: cluster.status().get("nodes"))
        cluster.fail("a")
        await until(lambda: recorded_node(server, "a").get("state") == "Failed")
        await asyncio.sleep(LATE_SECONDS)
        assert recorded_node(server, "a")["state"] == "Failed"
        assert cluster.status()["nodes"]["failed"] == 1


async def test_the_end_of_a_run_stays(server, cluster):
    await start_and_lose_the_leader(server, cluster)
    async with running(server):
        for node in ("a", "b"):
            await until(lambda: cluster.status().get("nodes", {}).get("desired") == 2)
            cluster.complete(node)
        await until(lambda: cluster.condition("Complete").get("status") == "True")
        server.remove(JOBS, "sample")
        await asyncio.sleep(LATE_SECONDS + 10)
        assert recorded(server)["phase"] == "Succeeded"
        assert recorded_node(server, "a")["state"] == "Completed"


async def test_what_was_sent_stays_sent(server, cluster, receiver, tmp_path):
    held = hold_first_status(server, lambda status: list(status) == ["notifications"])
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, receivers=receivers):
        cluster.apply(notify=[{"receiver": "ops"}])
        await until(lambda: held)
    assert receiver.events == ["default/sample Started"]
    # A second later, so that the notifications of the start and of the end have other times.
    await asyncio.sleep(1)
    async with running(server, receivers=receivers):
        for node in ("a", "b"):
            await until(lambda: cluster.status().get("nodes", {}).get("desired") == 2)
            cluster.complete(node)
        await until(lambda: sent_last(server) == "Succeeded")
        await asyncio.sleep(LATE_SECONDS + 60)
    # That the first one was sent is recorded late, so it is repeated. The second one is not.
    assert receiver.events == [*["default/sample Started"] * 2, "default/sample Succeeded"]
    assert sent_last(server) == "Succeeded"


async def test_evidence_that_is_added_meanwhile_delays_no_status(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        before = len(server.requests)
        server.delay_next("PATCH", "/jobreports/.*/status", 1)
        cluster.fail("a")
        await asyncio.sleep(0.5)
        cluster.complete("b")
        await until(lambda: recorded_node(server, "a").get("exitCode") == 1)
        writes = [r for r in server.requests[before:] if is_status_of_report(r)]
        assert [request.status for request in writes[:2]] == [409, 200]
        assert writes[0].body["status"] == writes[1].body["status"]
