"""Evidence that the API server refuses is reported by an event on the Job."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import EVENTS
from tests.contract.terminator.cluster import eventually

pytestmark = pytest.mark.looptime(end=5000)

REPORTS = "/jobreports/"


def reported(server):
    return [(raw["reason"], raw.get("count")) for raw in server.list(EVENTS)]


@pytest.mark.parametrize("status", [403, 422])
async def test_a_refusal_that_lasts_is_reported_after_a_minute(cluster, server, status):
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start()
    words = "admission webhook says no"
    server.fail_next("PATCH", REPORTS, status, times=1000, message=words)
    run.print_tokens()
    await asyncio.sleep(55)
    assert reported(server) == []
    await asyncio.sleep(100)
    (event,) = server.list(EVENTS)
    assert (event["type"], event["reason"]) == ("Warning", "EvidenceRefused")
    assert event["involvedObject"]["uid"] == run.uid
    assert "refuses to record what 2 nodes reported (a,b)" in event["message"]
    assert words in event["message"]
    # It is not repeated with each try.
    await asyncio.sleep(300)
    assert [count for _, count in reported(server)] in ([1], [None])
    server.faults.clear()
    await eventually(lambda: run.completed() == {"a", "b"}, 120.0)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (422, "no"),
        (403, 'admission webhook "policy.example.com" denied the request: no'),
        (
            403,
            "\"r\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        ),
    ],
)
async def test_one_node_among_many_is_named(cluster, server, status, words):
    run = cluster.add_job(nodes=tuple("abcd"))
    cluster.start()
    # The batch, its half, and "a" alone, again and again; the others are taken.
    server.fail_next("PATCH", REPORTS, status, times=3, message=words)
    run.print_tokens()
    await eventually(lambda: run.completed() == set("bcd"))
    server.fail_next("PATCH", REPORTS, status, times=1000, message=words)
    await asyncio.sleep(180)
    (event,) = server.list(EVENTS)
    assert "what 1 node reported (a)" in event["message"]


async def test_a_report_that_stays_full_is_reported(cluster, server):
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start()
    words = "etcdserver: request is too large"
    server.fail_next("PATCH", REPORTS, 500, times=1000, message=words)
    run.print_tokens()
    await asyncio.sleep(180)
    (event,) = server.list(EVENTS)
    assert event["reason"] == "EvidenceRefused"
    assert "what 2 nodes reported (a,b)" in event["message"]
    assert words in event["message"]
    # Another report has room.
    server.faults.clear()
    run.add_report(shard=1)
    await eventually(lambda: run.completed() == {"a", "b"}, 120.0)


async def test_a_right_that_lacks_is_not_looked_for_in_each_node(cluster, server):
    run = cluster.add_job(nodes=tuple("abcd"))
    cluster.start()
    words = 'jobreports "r" is forbidden: User "u" cannot patch resource "jobreports"'
    server.fail_next("PATCH", REPORTS, 403, times=2, message=words)
    run.print_tokens()
    await eventually(lambda: run.completed() == set("abcd"))
    assert server.count("PATCH", REPORTS) == 3


@pytest.mark.parametrize(("status", "times"), [(422, 2), (503, 40)])
async def test_what_ends_soon_and_a_server_in_trouble_are_not_reported(
    cluster, server, status, times
):
    run = cluster.add_job()
    cluster.start()
    server.fail_next("PATCH", REPORTS, status, times=times)
    run.print_tokens()
    await asyncio.sleep(600)
    assert run.completed() == set(run.nodes)
    assert reported(server) == []
