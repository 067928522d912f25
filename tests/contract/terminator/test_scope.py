"""When, where and how often the terminator acts."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import JOBS, LEASES
from terminator.config import LEASE_NAME, Config, Options
from tests.contract.terminator.cluster import eventually

pytestmark = pytest.mark.looptime(end=2000)


async def test_only_the_holder_of_the_lease_acts(cluster, server):
    options = [Options(lease_namespace="system", identity=f"pod-{number}") for number in (1, 2)]
    first, first_task = cluster.start(options=options[0])
    await eventually(lambda: server.exists(LEASES, LEASE_NAME, "system"))
    run = cluster.add_job(nodes=("a",))
    second, _ = cluster.start(options=options[1])
    await eventually(lambda: second.is_ready)
    await asyncio.sleep(20)
    assert cluster.sample(first, "is_leader", component="terminator") == 1
    assert cluster.sample(second, "is_leader", component="terminator") == 0
    assert cluster.sample(second, "log_targets") == 0
    await cluster.stop(first_task)
    run.log("a").write("done")
    run.agree()
    await eventually(lambda: not run.exists, 10.0)
    assert cluster.sample(second, "is_leader", component="terminator") == 1


async def test_other_namespaces_are_none_of_its_business(cluster, server):
    ours, theirs = cluster.add_job(namespace="ours"), cluster.add_job(namespace="theirs")
    terminator, _ = cluster.start(Config(namespaces=("ours",)))
    for run in (ours, theirs):
        run.print_tokens()
    await eventually(lambda: ours.completed() == set(ours.nodes))
    assert server.count("GET", "/namespaces/theirs/") == 0
    terminator.apply(Config(namespaces=("theirs",)))
    await eventually(lambda: theirs.completed() == set(theirs.nodes))


async def test_another_word_applies_to_nodes_not_yet_completed(cluster):
    run = cluster.add_job(nodes=("a", "b"))
    terminator, _ = cluster.start()
    run.log("a").write("done")
    run.log("b").write("fini")
    await eventually(lambda: run.completed() == {"a"})
    terminator.apply(Config(termination_word="fini", max_streams=1, short_reads=1))
    await eventually(lambda: run.completed() == {"a", "b"})


async def test_nothing_is_asked_or_written_without_need(cluster, server):
    run = cluster.add_job(nodes=tuple(f"n{number:03}" for number in range(60)))
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    await asyncio.sleep(100)
    assert server.count("GET", "/log") == 60
    assert server.count("PATCH") <= 3
    asked = {
        request.path.partition("?")[0].split("/")[-1]
        for request in server.requests
        if request.method == "GET"
    }
    assert asked == {"jobs", "pods", "nodes", "daemonsets", "jobreports", "log"}
    assert all(
        "PartialObjectMetadata" in request.headers["Accept"]
        for request in server.requests
        if request.path.partition("?")[0].endswith("/nodes")
    )
    server.remove(JOBS, run.name)
    await asyncio.sleep(1)
