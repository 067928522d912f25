"""Jobs that a rollout creates, on an API server that fails: pulls of images, scripts of checks."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, NODES, PODS
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock
from tests.fakekube.daemon_sets import node_of

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

PULL, CHECK = "sample-image-pull", "sample-check-1"
FIRST = {"maxParallel": 1, "pullImagesFirst": True}
CHECKED = {"steps": [{"nodes": 1, "check": {"script": {"script": "true"}, "timeoutSeconds": 60}}]}


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


def pods(server, job):
    return [p for p in server.list(PODS) if p["metadata"]["labels"][names.LABEL_JOB] == job]


def begun(server, job="sample"):
    """Return the nodes on which a pod of a Job may be at work."""
    return {node_of(pod) for pod in pods(server, job) if not gated(pod)}


def complete(server, cluster, job, *nodes):
    """Enter nodes in the ledger of a Job, as the terminator does."""
    (report,) = [r for r in server.list(JOB_REPORTS) if r["spec"]["job"]["name"] == job]
    for pod in pods(server, job):
        if (node := node_of(pod)) in nodes:
            entry = {
                "nodeUID": server.get(NODES, node, "")["metadata"]["uid"],
                "completedAt": cluster.stamp(),
                "pod": pod["metadata"]["name"],
                "podUID": pod["metadata"]["uid"],
            }
            name = report["metadata"]["name"]
            server.patch(JOB_REPORTS, name, {"evidence": {node: entry}})


def made(cluster):
    """Return how many Jobs the controller has created."""
    return len([each for each in cluster.writes("/jobs") if each.method == "POST"])


async def pull(server, cluster, *nodes):
    await until(lambda: begun(server, PULL) == {"a", "b"})
    assert begun(server) == set()
    complete(server, cluster, PULL, *(nodes or ("a", "b")))


async def rolls_out(server, cluster):
    """See that the run goes on from node to node, and that nothing is left of its parts."""
    await until(lambda: begun(server) == {"a"})
    complete(server, cluster, "sample", "a")
    await until(lambda: begun(server) == {"a", "b"})
    complete(server, cluster, "sample", "b")
    await until(lambda: cluster.condition("Complete").get("status") == "True")
    assert [job["metadata"]["name"] for job in server.list(JOBS)] == ["sample"]


async def test_a_rollout_pulls_on_all_nodes_and_then_goes_on(server, cluster):
    async with running(server):
        cluster.apply(rollout=FIRST)
        await pull(server, cluster)
        await rolls_out(server, cluster)
    assert made(cluster) == 1


async def test_a_node_without_the_images_holds_all_others(server, cluster):
    async with running(server):
        cluster.apply(rollout=FIRST)
        await pull(server, cluster, "a")
        await asyncio.sleep(120)
        assert begun(server) == set()
        assert "1 of 2 nodes have the images" in cluster.condition("Progressing")["message"]
        complete(server, cluster, PULL, "b")
        await rolls_out(server, cluster)


@pytest.mark.parametrize("fault", ["lost", "reset", "500", "429"])
async def test_a_creation_that_fails_or_whose_answer_is_lost_is_one(server, cluster, fault):
    where = ("POST", r"/jobs(\?|$)")
    match fault:
        case "lost":
            server.lose_answer_next(*where)
        case "reset":
            server.reset_next(*where)
        case status:
            server.fail_next(*where, int(status))
    async with running(server):
        cluster.apply(rollout=FIRST)
        await pull(server, cluster)
        await rolls_out(server, cluster)
    assert len([r for r in server.list(JOB_REPORTS) if r["spec"]["job"]["name"] == PULL]) == 1


async def test_a_deletion_that_fails_is_repeated(server, cluster):
    server.fail_next("DELETE", r"/jobs/", 500, times=3)
    async with running(server):
        cluster.apply(rollout=FIRST)
        await pull(server, cluster)
        await rolls_out(server, cluster)


async def test_a_deletion_that_is_refused_does_not_hold_the_run(server, cluster):
    server.fail_next("DELETE", r"/jobs/", 403, times=1000)
    async with running(server):
        cluster.apply(rollout=FIRST)
        await pull(server, cluster)
        await until(lambda: begun(server) == {"a"})


async def test_a_job_of_the_name_holds_the_run_until_it_is_gone(server, cluster):
    async with running(server):
        cluster.apply(PULL, suspend=True)
        cluster.apply(rollout=FIRST)
        await until(lambda: PULL in cluster.condition("Progressing").get("message", ""))
        await asyncio.sleep(60)
        assert begun(server) == set()
        server.remove(JOBS, PULL)
        await pull(server, cluster)
        await rolls_out(server, cluster)


@pytest.mark.parametrize("moment", ["created", "pulled", "on record"])
async def test_another_controller_goes_on_with_what_the_first_one_began(server, cluster, moment):
    async with running(server):
        cluster.apply(rollout=FIRST)
        await until(lambda: begun(server, PULL) == {"a", "b"})
        if moment == "on record":
            complete(server, cluster, PULL, "a", "b")
            await until(lambda: cluster.status().get("rollout", {}).get("imagesPulled"))
    if moment == "pulled":
        complete(server, cluster, PULL, "a", "b")
    async with running(server):
        if moment == "created":
            await pull(server, cluster)
        await rolls_out(server, cluster)
    assert made(cluster) == 1


async def test_a_script_holds_the_second_step_until_it_has_passed(server, cluster):
    async with running(server):
        cluster.apply(rollout=CHECKED)
        await until(lambda: begun(server) == {"a"})
        complete(server, cluster, "sample", "a")
        await until(lambda: begun(server, CHECK) == {"a"})
        await asyncio.sleep(30)
        assert begun(server) == {"a"}
        complete(server, cluster, CHECK, "a")
        await rolls_out(server, cluster)


async def test_a_script_that_cannot_be_run_asks_a_person(server, cluster):
    server.fail_next("POST", r"/jobs(\?|$)", 403, times=1000)
    async with running(server):
        cluster.apply(rollout=CHECKED)
        await until(lambda: begun(server) == {"a"})
        complete(server, cluster, "sample", "a")
        await until(lambda: cluster.condition("Suspended").get("status") == "True", 300)
        assert cluster.condition("Suspended")["reason"] == "CheckInconclusive"
        assert begun(server) == {"a"}
