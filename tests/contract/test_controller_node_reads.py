"""Which nodes the controller reads before it calls them unreachable."""

import asyncio
import re

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.resource import CONFIG_MAPS, JOBS, NODES, PODS
from tests.contract.controller_cluster import (
    FakeCluster,
    gated,
    running,
    until,
    virtual_clock,
)
from tests.contract.controller_runs import finish, now
from tests.contract.fake_faults import Fault
from tests.fakekube.containers import terminated

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


def make_ready(server, node, status):
    """Have a node say whether it is Ready."""
    raw = server.get(NODES, node, "")
    (ready,) = raw["status"]["conditions"]
    server.put(NODES, {**raw, "status": {"conditions": [{**ready, "status": status}]}})


@pytest.mark.parametrize("fault", [None, 503, 403])
async def test_a_node_whose_return_the_cache_lacks_does_not_fail_the_run(server, cluster, fault):
    async with running(server):
        await lose_sight(server, cluster)
        make_ready(server, "a", "True")
        await asyncio.sleep(35)
        if fault == 503:
            server.fail_next("GET", "/nodes", fault, 5)
        assert cluster.status()["phase"] == "Running"
        reads = len(node_reads(server))
        if fault == 403:
            # The node cannot be read: what is known of it counts.
            server.fail_next("GET", "/nodes", fault, 10_000, reason="Forbidden")
            await until(lambda: cluster.status()["phase"] == "Failed")
            return
        await asyncio.sleep(60)
        assert cluster.status()["nodes"]["unreachable"] == 0
        assert 1 <= len(node_reads(server)) - reads <= 7
        await finish(cluster)


@pytest.mark.parametrize("delay_seconds", [0.0, 3600.0])
async def test_while_a_node_cannot_be_read_all_else_of_its_job_goes_on(
    server, cluster, delay_seconds
):
    async with running(server):
        cluster.apply(failurePolicy={"action": "Continue"})
        await until(cluster.is_settled)
        make_ready(server, "a", "False")
        await asyncio.sleep(50)
        failing = Fault("GET", re.compile("/nodes"), 10_000, 503, delay_seconds=delay_seconds)
        server.faults.append(failing)
        await until(lambda: failing.times < 10_000, 20)
        await asyncio.sleep(10)
        cluster.complete("b")
        await until(lambda: cluster.completed() == 1, 10)
        await asyncio.sleep(300)
        # What becomes of the node itself waits for its read, which is not tried all the time.
        assert cluster.status()["nodes"]["unreachable"] == 0
        assert 10 < 10_000 - failing.times < 100
        server.faults.remove(failing)
        await until(lambda: cluster.status()["nodes"]["unreachable"] == 1, 20)
        assert cluster.completed() == 1


async def lose_sight(server, cluster, **changes):
    """Start a run, let node `a` be not Ready for 20 s, and break the watch of nodes unnoticed."""
    cluster.apply(**changes)
    await until(cluster.is_settled)
    make_ready(server, "a", "False")
    await asyncio.sleep(20)
    server.silence_watches(NODES)


async def test_nodes_of_which_none_can_be_read_take_no_longer_than_one(server):
    count = 200
    cluster = FakeCluster(server, "z", *(f"n{number}" for number in range(count)))
    async with running(server):
        cluster.apply(failurePolicy={"action": "Continue"})
        await until(cluster.is_settled)
        for number in range(count):
            make_ready(server, f"n{number}", "False")
        await asyncio.sleep(50)
        failing = Fault("GET", re.compile("/nodes"), 10_000, 503, delay_seconds=3600.0)
        server.faults.append(failing)
        await until(lambda: failing.times < 10_000, 20)
        await asyncio.sleep(1)
        cluster.complete("z")
        await until(lambda: cluster.completed() == 1, 15)
        assert cluster.status()["nodes"]["unreachable"] == 0


async def test_nodes_due_one_after_the_other_that_cannot_be_read_hold_up_nothing(server):
    count = 60
    cluster = FakeCluster(server, "z", *(f"n{number}" for number in range(count)))
    async with running(server):
        cluster.apply(failurePolicy={"action": "Continue"})
        await until(cluster.is_settled)
        failing = Fault("GET", re.compile("/nodes"), 10_000, 503, delay_seconds=3600.0)
        for number in range(count):
            make_ready(server, f"n{number}", "False")
            await asyncio.sleep(4)
            if number == 12:
                server.faults.append(failing)
            if number == 20:
                cluster.complete("z")
                done_at = now()
            if number > 20 and cluster.completed() == 1:
                break
        assert now() - done_at <= 20


async def test_a_node_whose_read_is_redirected_is_not_unreachable(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        make_ready(server, "a", "False")
        await asyncio.sleep(50)
        failing = Fault("GET", re.compile("/nodes"), 10_000, 302)
        server.faults.append(failing)
        await until(lambda: failing.times < 10_000, 20)
        await asyncio.sleep(60)
        assert cluster.status()["nodes"]["unreachable"] == 0


async def test_a_node_that_is_due_while_another_is_read_is_read_as_well(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        make_ready(server, "a", "False")
        await asyncio.sleep(5)
        make_ready(server, "b", "False")
        await asyncio.sleep(5)
        server.silence_watches(NODES)
        make_ready(server, "a", "True")
        make_ready(server, "b", "True")
        await asyncio.sleep(30)
        server.delay_next("GET", "/nodes", 8)
        await asyncio.sleep(60)
        assert cluster.status()["phase"] == "Running"


async def test_a_node_that_is_due_while_a_write_is_refused_is_read_as_well(server, cluster):
    async with running(server):
        cluster.apply(backoffLimit=0, failurePolicy={"action": "Continue", "pods": "Delete"})
        await until(cluster.is_settled)
        make_ready(server, "b", "False")
        await asyncio.sleep(5)
        server.silence_watches(NODES)
        make_ready(server, "b", "True")
        await asyncio.sleep(10)
        # The exit is judged after 30 seconds, its pod is deleted after 10 more, and b is due after
        # another 5: in the midst of the deletion.
        refused = Fault("DELETE", re.compile("/pods/"), 10_000, 403, delay_seconds=8)
        server.faults.append(refused)
        cluster.fail("a")
        for _ in range(280):
            await asyncio.sleep(0.25)
            assert cluster.status()["nodes"]["unreachable"] == 0
        assert refused.times < 10_000
        assert node_reads(server)


@pytest.mark.parametrize("fault", [503, 403])
async def test_what_was_read_of_a_node_counts_while_it_cannot_be_read_once_more(
    server, cluster, fault
):
    async with running(server):
        await lose_sight(server, cluster)
        make_ready(server, "a", "True")
        await until(lambda: node_reads(server))
        await asyncio.sleep(1)
        failing = Fault("GET", re.compile("/nodes"), 10_000, fault)
        server.faults.append(failing)
        for _ in range(600):
            await asyncio.sleep(0.25)
            assert cluster.status()["phase"] == "Running"
            assert cluster.status()["nodes"].get("unreachable", 0) == 0
        # The cache is tried more often.
        reads = [each for each in node_reads(server) if "watch" not in each.query]
        assert 2 <= len(reads) <= 10


async def test_a_node_of_which_the_cache_has_all_is_not_read_once_more(server, cluster):
    async with running(server):
        await lose_sight(server, cluster, failurePolicy={"action": "Continue"})
        server.patch(NODES, "a", {"metadata": {"labels": {"late": "1"}}}, "")
        # So the list of one node has a version above that of the node.
        server.patch(JOBS, "sample", {"metadata": {"labels": {"other": "1"}}})
        await until(lambda: cluster.status()["nodes"]["unreachable"] == 1, 90)
        server.drop_watches(NODES)
        await asyncio.sleep(60)
        reads = len(node_reads(server))
        await asyncio.sleep(300)
        assert len(node_reads(server)) == reads


async def test_node_that_returned_unseen_is_checked_again(server, cluster):
    async with running(server):
        await lose_sight(server, cluster)
        make_ready(server, "a", "True")
        await until(lambda: node_reads(server))
        await asyncio.sleep(5)
        assert cluster.status()["phase"] == "Running"
        make_ready(server, "a", "False")
        # The next list has the node as the cache has it, so that it wakes no Job.
        server.expire()
        server.drop_watches(NODES)
        await until(lambda: cluster.status()["phase"] == "Failed", 300)


async def test_completed_nodes_that_are_away_are_not_read_after_a_retry(server, cluster):
    async with running(server):
        cluster.apply(backoffLimit=0)
        await until(cluster.is_settled)
        cluster.complete("a")
        await until(lambda: cluster.completed() == 1)
        cluster.fail("b")
        await until(lambda: cluster.status()["phase"] == "Failed")
        retry = {"metadata": {"annotations": {names.ANNOTATION_RETRY: "1"}}}
        server.patch(JOBS, "sample", retry)
        await until(lambda: cluster.status()["phase"] == "Running")
        make_ready(server, "a", "False")
        await asyncio.sleep(70)
        for number in range(10):
            labels = {"metadata": {"labels": {"number": str(number)}}}
            server.patch(PODS, cluster.pod("b")["metadata"]["name"], labels)
            await asyncio.sleep(5)
        assert cluster.status()["nodes"]["unreachable"] == 0
        assert not node_reads(server)


async def test_a_deleted_node_that_the_cache_still_has_does_not_fail_the_run(server, cluster):
    async with running(server):
        await lose_sight(server, cluster)
        cluster.plays = False
        server.remove(NODES, "a", "")
        await asyncio.sleep(45)
        assert cluster.status()["phase"] == "Running"


def lose_task(server, cluster, node="a"):
    """Have the kubelet of a node report that it lost the task's container, and started another."""
    pod = cluster.pod(node)
    kind = "containerStatuses"
    if "initContainerStatuses" in pod["status"]:
        kind = "initContainerStatuses"
    (task,) = pod["status"][kind]
    lost = terminated(137, reason="ContainerStatusUnknown")
    # In mode Exit the first start of the task has ended already.
    again = {"state": {"running": {"startedAt": cluster.stamp()}}, "restartCount": 2}
    body = {"status": {kind: [{**task, **again, "lastState": lost}]}}
    server.patch(PODS, pod["metadata"]["name"], body)


@pytest.mark.parametrize("mode", ["Log", "Exit"])
@pytest.mark.parametrize("seconds", [0, 15, 45])
async def test_a_new_machine_does_not_fail_for_the_end_of_the_old_one(
    server, cluster, seconds, mode
):
    """The cache does not have it, and for some seconds it cannot be read either."""
    async with running(server):
        cluster.apply(backoffLimit=0, completion={"mode": mode})
        await until(cluster.is_settled)
        server.silence_watches(NODES)
        cluster.plays = False
        await asyncio.sleep(5)
        node = server.get(NODES, "a", "")
        server.remove(NODES, "a", "")
        server.put(NODES, {"metadata": {"name": "a"}, "status": node["status"]})
        failing = Fault("GET", re.compile("/nodes"), 10_000 if seconds else 0, 503)
        # In mode Log a node fails half a minute after such an end, in mode Exit soon.
        if mode == "Exit":
            server.faults.append(failing)
        lose_task(server, cluster)
        if mode == "Log":
            await asyncio.sleep(20)
            server.faults.append(failing)
        await asyncio.sleep(seconds)
        server.faults.remove(failing)
        await asyncio.sleep(100)
        assert cluster.condition("Failed") == {}


@pytest.mark.parametrize("mode", ["Log", "Exit"])
async def test_a_new_machine_does_not_fail_for_the_end_of_one_that_was_unreachable(
    server, cluster, mode
):
    """The cache does not have it yet, when its kubelet reports the pod of the old one."""
    async with running(server):
        policy = {"action": "Continue", "pods": "Keep"}
        cluster.apply(backoffLimit=0, completion={"mode": mode}, failurePolicy=policy)
        await until(cluster.is_settled)
        node = server.get(NODES, "a", "")
        make_ready(server, "a", "False")
        await until(lambda: cluster.status()["nodes"]["unreachable"] == 1, 90)
        server.silence_watches(NODES)
        cluster.plays = False
        await asyncio.sleep(5)
        server.remove(NODES, "a", "")
        server.put(NODES, {"metadata": {"name": "a"}, "status": node["status"]})
        lose_task(server, cluster)
        await asyncio.sleep(40)
        # Whatever changes has the Job looked at again.
        labels = {"metadata": {"labels": {"number": "1"}}}
        server.patch(PODS, cluster.pod("b")["metadata"]["name"], labels)
        await asyncio.sleep(15)
        assert cluster.status()["nodes"]["failed"] == 0


@pytest.mark.parametrize("mode", ["Log", "Exit"])
async def test_a_node_fails_for_a_lost_end_although_it_cannot_be_read(server, cluster, mode):
    async with running(server):
        cluster.apply(backoffLimit=0, completion={"mode": mode})
        await until(cluster.is_settled)
        server.faults.append(Fault("GET", re.compile("/nodes"), 10_000, 503))
        lose_task(server, cluster)
        await until(lambda: cluster.condition("Failed"), 180)
        assert len(node_reads(server)) < 40


async def test_nodes_with_lost_ends_are_read_when_they_may_fail_and_not_before(server):
    """After the failure of a zone there are many, and their Job changes all the time."""
    lost = [f"n{number}" for number in range(20)]
    cluster = FakeCluster(server, "z", *lost)
    async with running(server):
        cluster.apply(backoffLimit=0, failurePolicy={"action": "Continue"})
        await until(cluster.is_settled)
        for name in lost:
            lose_task(server, cluster, name)
        for number in range(80):
            await asyncio.sleep(0.5)
            labels = {"metadata": {"labels": {"number": str(number)}}}
            server.patch(PODS, cluster.pod("z")["metadata"]["name"], labels)
        await until(lambda: cluster.status()["nodes"]["failed"] == len(lost))
        assert len(lost) <= len(node_reads(server)) <= 3 * len(lost)


async def test_nodes_that_stay_away_are_read_once_for_all_jobs(server, cluster):
    async with running(server):
        for name in ("sample", "other", "third"):
            cluster.apply(name, failurePolicy={"action": "Continue"})
        for name in ("sample", "other", "third"):
            await until(lambda of=name: (cluster.status(of).get("nodes") or {}).get("active") == 2)
        make_ready(server, "a", "False")
        await until(lambda: cluster.status("third")["nodes"]["unreachable"] == 1, 70)
        await asyncio.sleep(60)
        assert cluster.status("other")["nodes"]["unreachable"] == 1
        assert len(node_reads(server)) <= 3


def node_reads(server):
    """Return the requests for single nodes."""
    return [r for r in server.requests if "nodes" in r.path and "fieldSelector" in r.query]


async def test_a_node_that_is_due_while_another_is_drained_is_read_as_well(server, cluster):
    """The pods of the drained node are listed after the nodes that are due were read."""
    async with running(server):
        spec = {"drain": {"timeoutSeconds": 3000}, "rollout": {"maxParallel": 2}}
        cluster.apply(**spec, suspend=True)
        made = server.put(CONFIG_MAPS, {"metadata": {"name": "owner", "namespace": "shop"}})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
        owners = [{**owner, "uid": made["metadata"]["uid"]}]
        web = {"name": "web", "namespace": "shop", "ownerReferences": owners}
        server.put(PODS, {"metadata": web, "spec": {"nodeName": "a"}})
        budget = Fault("POST", re.compile("/eviction"), 10_000, 429)
        server.faults.append(budget)
        cluster.apply(**spec)
        await until(lambda: (cluster.status().get("nodes") or {}).get("active") == 1)
        assert not gated(cluster.pod("b"))
        make_ready(server, "b", "False")
        await asyncio.sleep(20)
        server.silence_watches(NODES)
        make_ready(server, "b", "True")
        slow = Fault("GET", re.compile("/pods.*nodeName"), 10_000, delay_seconds=4)
        server.faults.append(slow)
        for _ in range(400):
            await asyncio.sleep(0.25)
            assert not cluster.status()["nodes"].get("unreachable", 0)
        assert slow.times < 10_000
        assert node_reads(server)
