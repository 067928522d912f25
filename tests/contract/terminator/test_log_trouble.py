"""Logs that cannot be read for a while, break off, or have no end."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import PODS
from tests.contract.terminator.cluster import eventually, running

pytestmark = pytest.mark.looptime(end=5000)


@pytest.mark.parametrize("status", [400, 403, 404, 410, 500, 503])
async def test_a_log_that_cannot_be_read_is_retried_and_delays_no_other(cluster, server, status):
    run = cluster.add_job()
    server.fail_next("GET", f"/pods/{run.pod('a')}/log", status, times=4)
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() >= {"b", "c"}, 2.0)
    await eventually(lambda: run.completed() == set(run.nodes))


async def test_a_container_that_is_still_being_created(cluster, server):
    run = cluster.add_job(nodes=("a",))
    run.set_container("a", {"state": {"waiting": {"reason": "ContainerCreating"}}})
    cluster.start()
    await asyncio.sleep(30)
    assert server.count("GET", "/log") == 0
    run.set_container("a", running())
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a"}, 2.0)


async def test_streams_that_break_are_taken_up_again(cluster):
    run = cluster.add_job()
    cluster.start()
    await asyncio.sleep(1)
    for second in range(10):
        for node in run.nodes:
            run.log(node).write(f"line {second}")
            run.log(node).break_followers()
        await asyncio.sleep(1)
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes), 5.0)


async def test_a_token_that_the_stream_lost_is_found_by_the_check(cluster, server):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    run.log("a").write("hello")
    await asyncio.sleep(2)
    log = run.log("a")
    # Rotation: the line is in the file, but the follower never receives it.
    log.entries.append((server.clock.now(), b"done\n"))
    await asyncio.sleep(5)
    await eventually(lambda: run.completed() == {"a"}, 15.0)


async def test_an_endless_line(cluster):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    await asyncio.sleep(1)
    for _ in range(20):
        run.log("a").write_raw(b"x" * 65536)
    run.log("a").write("")
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a"})


async def test_a_pod_that_is_deleted_in_the_middle(cluster, server):
    run = cluster.add_job()
    terminator, _ = cluster.start()
    await eventually(lambda: cluster.sample(terminator, "log_streams") == 3)
    server.remove(PODS, run.pod("a"))
    await eventually(lambda: cluster.sample(terminator, "log_targets") == 2)
    await eventually(lambda: cluster.sample(terminator, "log_streams") == 2)
    run.add_pod("a", "successor")
    server.log("successor").write("done")
    await eventually(lambda: run.completed() == {"a"})
