"""The Job of a rollback when its name is taken, and when its creation is refused or uncertain."""

import asyncio

import pytest

from daemonset_job.api.owners import owner_reference
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, NODES, PODS
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock
from tests.contract.fake_receiver import configured, listening
from tests.fakekube.daemon_sets import node_of

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

SPEC = {
    "backoffLimit": 0,
    "rollback": {"args": ["undo"]},
    "failurePolicy": {"action": "Rollback"},
    "rollout": {"maxParallel": 1},
}
ROLLBACK = "sample-rollback"


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b", "c")


def has_begun(cluster, node):
    return any(node_of(pod) == node and not gated(pod) for pod in cluster.server.list(PODS))


async def fail_on_b(cluster, **spec):
    """Run a rollout in which a completes and b fails; c has no turn."""
    cluster.apply(**SPEC, **spec)
    await until(lambda: has_begun(cluster, "a"))
    cluster.complete("a")
    await until(lambda: has_begun(cluster, "b"))
    cluster.fail("b")
    await until(lambda: cluster.condition("Failed").get("status") == "True")
    await until(lambda: "deletionTimestamp" in cluster.pod("b")["metadata"])
    # While the kubelet ends the pod of the failed node, its task may be at work.
    await asyncio.sleep(60)
    assert cluster.condition("RolledBack")["reason"] == "RollbackWaiting"
    assert creations(cluster) == []
    cluster.server.remove(PODS, cluster.pod("b")["metadata"]["name"])


def undo(cluster, node):
    """Enter a node in the ledger of the rollback, as the terminator does."""
    (report,) = [
        raw for raw in cluster.server.list(JOB_REPORTS) if raw["spec"]["job"]["name"] == ROLLBACK
    ]
    (pod,) = [
        raw
        for raw in cluster.server.list(PODS)
        if node_of(raw) == node and raw["metadata"]["labels"]["job"] == ROLLBACK
    ]
    entry = {
        "nodeUID": cluster.server.get(NODES, node, "")["metadata"]["uid"],
        "completedAt": cluster.stamp(),
        "pod": pod["metadata"]["name"],
        "podUID": pod["metadata"]["uid"],
    }
    cluster.server.patch(JOB_REPORTS, report["metadata"]["name"], {"evidence": {node: entry}})


def undoes(cluster, node):
    return any(
        node_of(pod) == node and pod["metadata"]["labels"]["job"] == ROLLBACK and not gated(pod)
        for pod in cluster.server.list(PODS)
    )


async def finish(cluster):
    """Complete the rollback, one node after the other, and see that it ends as it should."""
    for node in ("a", "b"):
        await until(lambda node=node: undoes(cluster, node), 600)
        undo(cluster, node)
    await until(lambda: cluster.condition("RolledBack").get("status") == "True")
    assert cluster.condition("RolledBack")["reason"] == "RolledBack"
    assert cluster.server.get(JOBS, ROLLBACK)["spec"]["nodes"] == {"include": ["a", "b"]}
    assert not has_begun(cluster, "c")
    assert cluster.status()["phase"] == "Failed"
    await asyncio.sleep(60)
    assert len(creations(cluster, status=201)) == 1
    events = [event for event in cluster.events() if "Roll" in event]
    assert sorted(set(events)) == sorted(events), "each is said once"


def creations(cluster, status=0):
    return [
        request
        for request in cluster.server.requests
        if request.method == "POST" and "/jobs?" in request.path and status in {0, request.status}
    ]


async def test_a_run_that_fails_is_rolled_back(server, cluster):
    async with running(server):
        await fail_on_b(cluster)
        await finish(cluster)


async def test_receivers_are_notified_of_the_end_and_of_the_rollback(server, cluster, tmp_path):
    async with listening() as receiver:
        receivers = (configured(tmp_path, "ops", receiver.url),)
        async with running(server, receivers=receivers):
            await fail_on_b(cluster, notify=[{"receiver": "ops"}])
            await finish(cluster)
        events = [each["event"] for each in receiver.taken]
    assert events == ["Started", "Failed", "RolledBack"]
    assert receiver.taken[-1]["message"] == "rollback ended: 2 of 2 nodes are rolled back"


async def test_a_name_that_another_job_has_is_said_and_waited_for(server, cluster):
    async with running(server):
        server.put(
            JOBS,
            {
                "metadata": {"name": ROLLBACK, "namespace": "default"},
                "spec": {"image": "example/other:v1", "suspend": True},
            },
        )
        await fail_on_b(cluster)
        await until(
            lambda: cluster.condition("RolledBack").get("reason") == "RollbackNameTaken", 600
        )
        assert ROLLBACK in cluster.condition("RolledBack")["message"]
        before = len(creations(cluster))
        await asyncio.sleep(1800)
        assert 1 <= len(creations(cluster)) - before <= 12, "tried again, ever more slowly"
        assert server.get(JOBS, ROLLBACK)["spec"]["image"] == "example/other:v1"
        server.remove(JOBS, ROLLBACK)
        await finish(cluster)


async def test_a_refused_creation_is_said_and_tried_again(server, cluster):
    server.fail_next("POST", "/jobs", 403, 10_000, reason="Forbidden", message="the quota is used")
    async with running(server):
        await fail_on_b(cluster)
        await until(lambda: cluster.condition("RolledBack").get("reason") == "RollbackRefused", 600)
        assert "the quota is used" in cluster.condition("RolledBack")["message"]
        await asyncio.sleep(1800)
        assert cluster.status()["phase"] == "Failed"
        server.faults.clear()
        await finish(cluster)


@pytest.mark.parametrize("fault", ["lose_answer_next", "reset_next"])
async def test_a_creation_of_unknown_outcome_is_done_once(server, cluster, fault):
    getattr(server, fault)("POST", "/jobs")
    async with running(server):
        await fail_on_b(cluster)
        await finish(cluster)


async def test_a_restart_between_the_two_goes_on(server, cluster):
    async with running(server):
        await fail_on_b(cluster)
        await until(lambda: "rollback" in cluster.status())
    async with running(server):
        await finish(cluster)


async def test_a_forged_job_is_said_and_never_taken_for_the_rollback(server, cluster):
    """It has the name and the owner reference, and does something else."""
    async with running(server):
        cluster.apply(**SPEC)
        uid = server.get(JOBS, "sample")["metadata"]["uid"]
        owner = owner_reference("Job", "sample", uid)
        meta = {"name": ROLLBACK, "namespace": "default", "ownerReferences": [owner]}
        spec = {"image": "example/other:v1", "nodes": {"include": ["a", "b"]}, "suspend": True}
        server.put(JOBS, {"metadata": meta, "spec": spec})
        await fail_on_b(cluster)
        await until(
            lambda: cluster.condition("RolledBack").get("reason") == "RollbackNameTaken", 600
        )
        assert f"Job {ROLLBACK} does not run" in cluster.condition("RolledBack")["message"]
        await asyncio.sleep(600)
        assert creations(cluster) == []
        server.remove(JOBS, ROLLBACK)
        await finish(cluster)
