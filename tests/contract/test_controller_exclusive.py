"""Two Jobs with the same key `rollout.exclusive` never run on a node at the same time."""

import asyncio
from collections import defaultdict

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, NODES, PODS
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock
from tests.fakekube.daemon_sets import node_of

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

KEY = {"rollout": {"exclusive": "disk"}}
NAMES = ("first", "second", "third")


class Watch:
    """Watches from outside which Jobs are at work on which node, after every single write."""

    def __init__(self, server):
        self.server = server
        self.done = set()
        self.most = 0
        server.storage.listeners.append(self._look)

    def _look(self, _event):
        at_work = defaultdict(set)
        for pod in self.server.list(PODS):
            if not gated(pod) and pod["metadata"]["uid"] not in self.done:
                at_work[node_of(pod)].add(pod["metadata"]["labels"]["job"])
        self.most = max([self.most, *map(len, at_work.values())])


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b", "c")


def pods_at_work(server, watch):
    return [
        pod
        for pod in server.list(PODS)
        if not gated(pod) and pod["metadata"]["uid"] not in watch.done
    ]


def complete(server, cluster, watch, pod):
    """Enter a node in the ledger of the Job of a pod."""
    name = pod["metadata"]["labels"]["job"]
    (report,) = [r for r in server.list(JOB_REPORTS) if r["spec"]["job"]["name"] == name]
    node = node_of(pod)
    entry = {
        "nodeUID": server.get(NODES, node, "")["metadata"]["uid"],
        "completedAt": cluster.stamp(),
        "pod": pod["metadata"]["name"],
        "podUID": pod["metadata"]["uid"],
    }
    watch.done.add(pod["metadata"]["uid"])
    server.patch(JOB_REPORTS, report["metadata"]["name"], {"evidence": {node: entry}})


def are_complete(cluster):
    return all(cluster.condition("Complete", name).get("status") == "True" for name in NAMES)


async def play(server, cluster, watch):
    """Complete tasks one after the other, until all Jobs are complete."""
    for _ in range(3 * len(NAMES) + 3):
        if are_complete(cluster):
            return
        await until(lambda: pods_at_work(server, watch) or are_complete(cluster))
        if are_complete(cluster):
            return
        pod = pods_at_work(server, watch)[0]
        await asyncio.sleep(3)
        complete(server, cluster, watch, pod)
    await until(lambda: are_complete(cluster))


async def test_jobs_with_one_key_share_the_nodes_one_at_a_time(server, cluster):
    watch = Watch(server)
    async with running(server):
        for name in NAMES:
            cluster.apply(name, **KEY, ttlSecondsAfterFinished=600)
        await play(server, cluster, watch)
    assert watch.most == 1
    assert len(watch.done) == 9


@pytest.mark.parametrize("watched", [(), ("default", "team-b")], ids=["all", "named"])
@pytest.mark.parametrize("is_named", [True, False])
async def test_a_key_that_the_administrator_names_holds_over_all_namespaces(
    server, cluster, is_named, watched
):
    watch = Watch(server)
    keys = ("di*",) if is_named else ("other",)
    async with running(server, cluster_keys=keys, namespaces=watched):
        cluster.apply("first", **KEY)
        await until(lambda: len(pods_at_work(server, watch)) == 3)
        cluster.apply("second", namespace="team-b", **KEY)
        if not is_named:
            await until(lambda: len(pods_at_work(server, watch)) == 6)
            return
        await until(lambda: progressing(server, "second").get("reason") == "NodeInUse")
        assert "Job of another namespace" in progressing(server, "second")["message"]
        assert "first" not in progressing(server, "second")["message"]
        await asyncio.sleep(60)
        for pod in pods_at_work(server, watch):
            complete(server, cluster, watch, pod)
        await until(lambda: len(pods_at_work(server, watch)) == 3)
    assert watch.most == 1
    assert {pod["metadata"]["namespace"] for pod in pods_at_work(server, watch)} == {"team-b"}


def progressing(server, name):
    found = server.get(JOBS, name, "team-b").get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == "Progressing"), {})


async def test_the_condition_names_the_job_that_is_at_work(server, cluster):
    async with running(server):
        cluster.apply("first", **KEY)
        await until(lambda: len(pods_at_work(server, Watch(server))) == 3)
        cluster.apply("second", **KEY)
        await until(lambda: cluster.condition("Progressing", "second").get("reason") == "NodeInUse")
        assert "Job first" in cluster.condition("Progressing", "second")["message"]
        # A Job with another key does not wait.
        cluster.apply("third", rollout={"exclusive": "other"})
        await until(lambda: len(pods_at_work(server, Watch(server))) == 6)


async def test_a_change_of_leader_in_the_middle_keeps_them_apart(server, cluster):
    watch = Watch(server)
    for _ in range(6):
        async with running(server):
            for name in NAMES:
                cluster.apply(name, **KEY, ttlSecondsAfterFinished=600)
            await asyncio.sleep(1.5)
            for pod in pods_at_work(server, watch)[:2]:
                complete(server, cluster, watch, pod)
            await asyncio.sleep(0.1)
    async with running(server):
        await play(server, cluster, watch)
    assert watch.most == 1
    assert len(watch.done) == 9


@pytest.mark.parametrize("namespace", ["default", "team-b"])
async def test_a_watch_that_is_late_does_not_start_a_second_job(server, cluster, namespace):
    watch = Watch(server)
    async with running(server, cluster_keys=("disk",)):
        cluster.apply("first", **KEY)
        cluster.apply("second", namespace=namespace, **KEY)
        # The caches see the changes of pods late.
        server.delay_next("PATCH", "/pods/first", 0.5, 2)
        await until(lambda: len(pods_at_work(server, watch)) == 3)
        await asyncio.sleep(60)
    assert watch.most == 1


async def test_a_deleted_job_makes_room_when_its_pods_are_gone(server, cluster):
    watch = Watch(server)
    async with running(server):
        cluster.apply("first", **KEY)
        await until(lambda: len(pods_at_work(server, watch)) == 3)
        cluster.apply("second", **KEY)
        await until(lambda: cluster.condition("Progressing", "second").get("reason") == "NodeInUse")
        server.remove(JOBS, "first")
        await until(
            lambda: (
                sum(
                    pod["metadata"]["labels"]["job"] == "second"
                    for pod in pods_at_work(server, watch)
                )
                == 3
            )
        )
    assert watch.most == 1


async def test_a_namespace_whose_writes_hang_holds_up_only_jobs_with_its_key(server):
    cluster = FakeCluster(server, "a", "b", "c", "d", "e", "f")
    server.delay_next("PATCH", "/namespaces/tenant/pods/", 1000.0, times=1000)
    async with running(server, cluster_keys=("disk",)):
        cluster.apply("sample", "tenant", nodes={"include": ["a"]}, **KEY)
        await until(lambda: server.count("PATCH", "/namespaces/tenant/pods/"))
        for node in "bcde":
            cluster.apply("sample", f"space-{node}", nodes={"include": [node]}, **KEY)
        await asyncio.sleep(5)
        cluster.apply("other", nodes={"include": ["f"]}, rollout={"maxParallel": 1})
        await until(lambda: started_in(server, "default"), 3.0)
        # And those go on once the hanging write is given up.
        await until(lambda: all(started_in(server, f"space-{node}") for node in "bcde"), 60.0)


def started_in(server, namespace):
    pods = [pod for pod in server.list(PODS) if pod["metadata"]["namespace"] == namespace]
    return bool(pods) and not any(map(gated, pods))
