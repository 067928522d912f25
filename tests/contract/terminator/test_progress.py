"""Progress that tasks print, as the terminator writes it: late, together, and rarely."""

import asyncio

import pytest

from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.kube.client.resource import JOBS
from terminator.config import Config
from tests.contract.terminator.cluster import eventually, running, terminated

pytestmark = pytest.mark.looptime(end=4000)


def patches(server):
    return server.count("PATCH", "/jobreports/")


def progress_of(run, node):
    entry = run.evidence().get(node, {}).get("progress")
    return entry and (entry["attempt"], entry["done"], entry["total"])


@pytest.mark.parametrize("streams", [0, 8])
async def test_it_is_written_at_most_every_ten_seconds_and_ends_with_the_token(
    cluster, server, streams
):
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    for step in range(600):
        run.log("a").write(f"dsjob:progress {step}/1000")
        run.log("b").write(f"dsjob:progress {2 * step}/1500")
        await asyncio.sleep(0.1)
    await eventually(lambda: (progress_of(run, "a") or (0, 0))[1] >= 300)
    assert progress_of(run, "b")[2] == 1500
    assert patches(server) <= 7  # both nodes in one
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a"})
    assert "progress" not in run.evidence()["a"]
    assert progress_of(run, "b")
    before = patches(server)
    await asyncio.sleep(100)
    assert patches(server) <= before + 1  # what has not changed is not written again


async def test_a_short_task_causes_no_write_of_its_own(cluster, server):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    run.log("a").write("dsjob:progress 1/2")
    await asyncio.sleep(8)
    assert patches(server) == 0
    run.log("a").write("dsjob:progress 2/2", "done")
    await eventually(lambda: run.completed() == {"a"})
    await asyncio.sleep(30)
    assert patches(server) == 1
    assert "progress" not in run.evidence()["a"]


async def test_that_of_an_earlier_attempt_goes(cluster, server):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    run.log("a").write("dsjob:progress 5/10")
    await eventually(lambda: progress_of(run, "a") == (1, 5, 10))
    run.set_container("a", terminated(1))
    await eventually(lambda: run.evidence()["a"].get("lastReadAttempt") == 1)
    assert progress_of(run, "a") is None
    server.logs.pop((run.namespace, run.pod("a"), CONTAINER_NAME, False))
    run.log("a").write("dsjob:progress 1/10")
    run.set_container("a", running(restartCount=1))
    await eventually(lambda: progress_of(run, "a") == (2, 1, 10))
    assert run.evidence()["a"]["lastReadAttempt"] == 1


async def test_garbage_is_no_progress(cluster, server):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    lines = ("2/1", "-1/3", "1", "1/0", "x/y", "1/" + "9" * 16, "1/2 ", "1.5/3")
    run.log("a").write(*(f"dsjob:progress {text}" for text in lines if text != "1/2 "))
    await asyncio.sleep(60)
    assert patches(server) == 0


async def test_mode_exit_reads_no_log_for_it(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"})
    cluster.start()
    run.log("a").write("dsjob:progress 5/10")
    await asyncio.sleep(60)
    assert server.count("GET", "/log") == 0
    assert patches(server) == 0


async def test_with_a_failure_token_the_log_is_read_anyway(cluster):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit", "failureToken": "broken"})
    cluster.start()
    run.log("a").write("dsjob:progress 5/10")
    await eventually(lambda: progress_of(run, "a") == (1, 5, 10))


async def test_after_the_end_of_a_job_nothing_is_written(cluster, server):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    run.log("a").write("dsjob:progress 5/10")
    await asyncio.sleep(5)
    server.remove(JOBS, run.name)
    await asyncio.sleep(60)
    assert patches(server) == 0
