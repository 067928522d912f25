"""Results that a task prints long before its token."""

import asyncio

import pytest

from job_controller.kube.resources import PODS
from terminator.back import BACK_BYTES
from terminator.config import Config
from terminator.tail import TAIL_LINES
from tests.contract.terminator.cluster import eventually, running, terminated

pytestmark = pytest.mark.looptime(end=2000)

IP = "dsjob:result ip=10.0.0.1"
RESULTS = [{"name": "ip"}]
MUCH = ["copied a file"] * 3000


async def quick(log):
    log.write(IP, *MUCH, "done")


async def step_by_step(log):
    """The first short read misses the result, the stream brings the token."""
    log.write(IP)
    for _ in range(3000):
        log.write("copied a file")
    await asyncio.sleep(5)
    log.write("done")


@pytest.mark.parametrize("play", [quick, step_by_step])
@pytest.mark.parametrize("streams", [0, 8])
async def test_they_are_found_and_entered_with_the_completion(cluster, server, play, streams):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    if play is step_by_step:
        run.log("a").write(IP, *MUCH)
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await play(run.log("a"))
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}
    assert server.count("PATCH", "/jobreports/") == 1


async def test_they_are_found_in_mode_exit(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": "Exit"}, results=RESULTS)
    cluster.start()
    for node, code in (("a", 0), ("b", 1)):
        run.log(node).write(IP, *MUCH)
        run.set_container(node, terminated(code), "initContainerStatuses")
        server.patch(PODS, run.pod(node), {"status": {"containerStatuses": []}})
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})
    await asyncio.sleep(20)
    # Nothing is looked for in the log of a task that failed.
    assert server.count("GET", f"/pods/{run.pod('b')}/log") == 1


async def test_those_of_the_first_start_stay_when_a_reboot_starts_the_task_again(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": "Exit"}, results=RESULTS)
    cluster.start()
    run.log("a").write(IP)
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})
    entry, writes = run.evidence()["a"], server.count("PATCH", "/jobreports/")

    run.set_container("a", running(restartCount=1), "initContainerStatuses")
    run.log("a").write("dsjob:result ip=10.0.0.2")
    await asyncio.sleep(5)
    again = terminated(0, restarts=1)
    again["state"]["terminated"]["finishedAt"] = "2030-01-01T00:01:00Z"
    run.set_container("a", again, "initContainerStatuses")
    await asyncio.sleep(30)
    assert run.evidence()["a"] == entry
    assert server.count("PATCH", "/jobreports/") == writes


async def test_they_are_found_in_the_log_before_a_restart(cluster):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a", previous=True).write(IP, *MUCH, "done")
    run.log("a").write("once more")
    run.set_container("a", running(restartCount=1))
    cluster.start()
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}


async def test_a_log_that_shows_them_at_its_end_is_not_searched(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), results=RESULTS)
    run.log("a").write(*MUCH, IP, "done")
    run.log("b").write("no result at all", "done")
    cluster.start()
    await eventually(lambda: run.completed() == {"a", "b"})
    assert server.count("GET", "/log") == 2


async def test_the_search_ends_after_a_number_of_bytes(cluster, server):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *["x" * 60] * 100_000, "done")
    terminator, _ = cluster.start()
    await eventually(lambda: run.completed() == {"a"})
    assert "results" not in run.evidence()["a"]
    read = cluster.sample(terminator, "log_bytes_total")
    assert read < BACK_BYTES + 2 * TAIL_LINES * 100 + 64 * 1024


@pytest.mark.parametrize(("times", "results"), [(2, {"ip": "10.0.0.1"}), (10_000, {})])
async def test_a_search_that_fails_is_tried_again_and_holds_up_nobody_for_long(
    cluster, server, times, results
):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *MUCH, "done")
    server.fail_next("GET", "tailLines=2000", 500, times=times)
    cluster.start()
    await eventually(lambda: run.completed() == {"a"}, 10.0)
    assert run.evidence()["a"].get("results", {}) == results


@pytest.mark.parametrize("streams", [0, 8])
async def test_a_completion_is_entered_though_the_pod_goes_during_the_search(
    cluster, server, streams
):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *MUCH)
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await asyncio.sleep(1)
    server.delay_next("GET", "tailLines=2000&limitBytes", 60.0)
    run.log("a").write("done")
    await asyncio.sleep(4)
    assert run.completed() == set()
    server.remove(PODS, run.pod("a"))
    await eventually(lambda: run.completed() == {"a"}, 15.0)
