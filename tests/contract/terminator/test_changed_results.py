"""The results that a Job lists change during its run."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import JOBS, PODS
from terminator.config import Config
from tests.contract.terminator.cluster import eventually, terminated

pytestmark = pytest.mark.looptime(end=2000)

IP, KERNEL = "dsjob:result ip=10.0.0.1", "dsjob:result kernel=6.1"
MUCH = ["copied a file"] * 3000
ONE = [{"name": "ip"}]
BOTH = {"ip": "10.0.0.1", "kernel": "6.1"}
SEARCH = "tailLines=2000&limitBytes"


def list_results(run, *names):
    found = [{"name": name} for name in names] or None
    run.server.patch(JOBS, run.name, {"spec": {"results": found}}, run.namespace)


@pytest.mark.parametrize("streams", [0, 8])
@pytest.mark.parametrize("more", [[], MUCH])
async def test_a_name_that_is_added_before_the_token_counts(cluster, streams, more):
    run = cluster.add_job(nodes=("a",), results=ONE)
    run.log("a").write(IP, KERNEL, *more)
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await asyncio.sleep(5)
    list_results(run, "ip", "kernel")
    await asyncio.sleep(1)
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == BOTH


@pytest.mark.parametrize("streams", [0, 8])
async def test_a_name_that_is_added_during_the_search_counts(cluster, server, streams):
    run = cluster.add_job(nodes=("a",), results=ONE)
    run.log("a").write(IP, KERNEL, *MUCH)
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await asyncio.sleep(1)
    server.delay_next("GET", SEARCH, 5.0)
    run.log("a").write("done")
    await asyncio.sleep(2)
    list_results(run, "ip", "kernel")
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == BOTH


def end_well(server, run):
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})


@pytest.mark.parametrize("more", [[], MUCH])
@pytest.mark.parametrize("completion", [{}, {"failureToken": "boom"}])
async def test_in_mode_exit_the_log_of_a_completed_node_is_read_again(
    cluster, server, more, completion
):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit", **completion}, results=ONE)
    run.log("a").write(IP, KERNEL, *more)
    cluster.start()
    end_well(server, run)
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})
    assert run.evidence()["a"]["omittedResults"] == ["kernel"]
    list_results(run, "ip", "kernel")
    await eventually(lambda: run.evidence()["a"]["results"] == BOTH)
    assert "omittedResults" not in run.evidence()["a"]
    # What is on record stays, whatever is listed.
    entry, writes = run.evidence()["a"], server.count("PATCH", "/jobreports/")
    for names in (("kernel",), (), ("kernel", "ip")):
        list_results(run, *names)
        await asyncio.sleep(10)
    assert run.evidence()["a"] == entry
    assert server.count("PATCH", "/jobreports/") == writes


async def test_the_job_is_not_deleted_before_results_of_new_names_are_read(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"})
    run.log("a").write(IP, KERNEL, *MUCH)
    cluster.start()
    end_well(server, run)
    await eventually(lambda: run.completed() == {"a"})
    server.delay_next("GET", "/log", 3.0)
    list_results(run, "ip", "kernel")
    run.agree(observedGeneration=2)
    await eventually(lambda: not run.exists)
    assert run.evidence()["a"]["results"] == BOTH
