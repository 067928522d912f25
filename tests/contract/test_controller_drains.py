"""The controller's cordons and drains: budgets, faults, races, crashes, deleted Jobs."""

import asyncio
import contextlib

import pytest

from daemonset_job.api.times import format_time
from daemonset_job.kube.client.resource import CONFIG_MAPS, JOB_REPORTS, JOBS, NODES, PODS
from tests.contract.controller_cluster import (
    FakeCluster,
    gated,
    on_first,
    running,
    until,
    virtual_clock,
)
from tests.fakekube.node_lifecycle import ready

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

MARK = "daemonset.darkowlzz.space/cordoned-by"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
DRAIN = {"drain": {"timeoutSeconds": 60}}
EVICTION = r"/pods/web-1/eviction"


@pytest.fixture
def cluster(server):
    """A cluster of one node, whose kubelet ends pods of other clients as soon as it may."""

    def end(event):
        meta = event.new["metadata"]
        if (
            event.type == "MODIFIED"
            and meta.get("deletionTimestamp")
            and meta["namespace"] == "shop"
        ):
            loop = asyncio.get_running_loop()
            loop.call_soon(server.remove, PODS, meta["name"], meta["namespace"])

    server.storage.listeners.append(end)
    return FakeCluster(server, "a")


def put_pod(server, name="web-1", node="a", kind="ReplicaSet", **spec):
    """Have a pod of another client on a node."""
    status = {"conditions": [ready("True", format_time(server.clock.now()))]}
    server.put(NODES, {"metadata": {"name": node}, "status": status})
    made = server.put(CONFIG_MAPS, {"metadata": {"name": "owner", "namespace": "shop"}})
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": True}
    meta = {"name": name, "namespace": "shop", "ownerReferences": [owner] if kind else []}
    server.put(PODS, {"metadata": meta, "spec": {"nodeName": node, **spec}})


def node(server, name="a"):
    return server.get(NODES, name, "")


def is_cordoned(server, name="a"):
    return bool((node(server, name).get("spec") or {}).get("unschedulable"))


def mark(server, name="a"):
    return (node(server, name)["metadata"].get("annotations") or {}).get(MARK)


def is_clean(server, name="a"):
    return not is_cordoned(server, name) and mark(server, name) is None


def is_started(cluster, name="a"):
    pods = [pod for pod in cluster.server.list(PODS) if pod["metadata"]["namespace"] == "default"]
    return any(not gated(pod) for pod in pods)


def record(server, name="a"):
    reports = server.list(JOB_REPORTS)
    return (reports[0].get("status") or {}).get("nodeStates", {}).get(name, {}) if reports else {}


def is_complete(cluster):
    return cluster.condition("Complete").get("status") == "True"


def evictions(cluster):
    return [r for r in cluster.server.requests if r.path.endswith("/eviction")]


async def test_a_node_is_drained_before_its_task_and_uncordoned_after_it(server, cluster):
    put_pod(server)
    put_pod(server, "agent", kind="DaemonSet")
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: is_started(cluster))
        assert is_cordoned(server)
        job = server.get(JOBS, "sample")
        assert mark(server) == f"default/sample/{job['metadata']['uid']}"
        assert not server.exists(PODS, "web-1", "shop")
        assert server.exists(PODS, "agent", "shop")
        (request,) = evictions(cluster)
        assert request.body["apiVersion"] == "policy/v1"
        assert "gracePeriodSeconds" not in request.body["deleteOptions"]
        await asyncio.sleep(600)
        assert is_cordoned(server)
        cluster.complete("a")
        await until(lambda: is_complete(cluster))
        assert is_clean(server)
        assert len(cluster.writes("/nodes/a")) == 2
        assert "drainStartedAt" not in record(server)


async def test_a_refused_eviction_is_told_and_tried_again(server, cluster):
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 3, message=BUDGET)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: cluster.condition("Progressing").get("reason") == "DrainBlocked")
        assert BUDGET in cluster.condition("Progressing")["message"]
        assert record(server)["reason"] == "DrainBlocked"
        assert not is_started(cluster)
        await until(lambda: is_started(cluster))
        assert len(evictions(cluster)) == 4
        await until(lambda: cluster.condition("Progressing").get("reason") == "NodesActive")


async def test_a_job_that_is_suspended_while_pods_are_listed_does_not_start(server, cluster):
    """The lists of the pods take time, and what they say is decided with the Job as it is then."""
    put_pod(server)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: not server.exists(PODS, "web-1", "shop"))
        server.delay_next("GET", r"fieldSelector=spec.nodeName", 0.5)
        before = len(server.requests)
        await until(lambda: any("spec.nodeName" in str(r) for r in server.requests[before:]))
        cluster.apply(**DRAIN, suspend=True)
        await asyncio.sleep(5)
        assert not is_started(cluster)
        assert is_clean(server)


@pytest.mark.parametrize("status", [429, 500, 403, 400])
async def test_a_drain_that_is_blocked_for_too_long_fails_the_node_and_frees_it(
    server, cluster, status
):
    put_pod(server)
    server.fail_next("POST", EVICTION, status, 10_000, message=BUDGET)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: cluster.condition("Failed").get("status") == "True", 90)
        found = record(server)
        assert (found["state"], found["reason"]) == ("Failed", "DrainTimedOut")
        assert "shop/web-1" in found["message"]
        assert BUDGET in found["message"]
        assert is_clean(server)
        assert server.exists(PODS, "web-1", "shop")
        assert not is_started(cluster)
        # kubectl drain asks every five seconds, too.
        assert len(evictions(cluster)) <= 14


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict")])
async def test_a_pod_that_has_left_meanwhile_is_no_trouble(server, cluster, status, reason):
    put_pod(server)
    server.fail_next("POST", EVICTION, status, reason=reason, message="it is gone")
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: len(evictions(cluster)) == 1)
        server.remove(PODS, "web-1", "shop")
        await until(lambda: is_started(cluster))


async def test_a_pod_that_must_not_be_evicted_fails_the_node_and_none_is_evicted(server, cluster):
    put_pod(server)
    put_pod(server, "web-2", volumes=[{"name": "cache", "emptyDir": {}}])
    put_pod(server, "alone", kind="")
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: record(server).get("reason") == "DrainRefused")
        assert "shop/alone" in record(server)["message"]
        assert "shop/web-2" in record(server)["message"]
        await until(lambda: is_clean(server))
    assert evictions(cluster) == []


async def test_a_person_cordons_at_the_same_time_and_that_cordon_stays(server, cluster):
    def cordon():
        # The controller has read the node when the other client changes it.
        server.delay_next("PATCH", "/nodes/a", 5)
        body = {"spec": {"unschedulable": True}}
        asyncio.get_running_loop().call_later(2, server.patch, NODES, "a", body, "")

    on_first(server, JOB_REPORTS, "ADDED", cordon)
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
        cluster.complete("a")
        await until(lambda: is_complete(cluster))
        assert is_cordoned(server)
        assert mark(server) is None


async def test_a_person_keeps_a_cordon_by_removing_its_mark(server, cluster):
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
        server.patch(NODES, "a", {"metadata": {"annotations": {MARK: None}}}, "")
        cluster.complete("a")
        await until(lambda: is_complete(cluster))
        await asyncio.sleep(60)
    assert is_cordoned(server)


async def test_a_person_uncordons_meanwhile_and_the_mark_goes_at_the_end(server, cluster):
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
        server.patch(NODES, "a", {"spec": {"unschedulable": None}}, "")
        await asyncio.sleep(60)
        assert not is_cordoned(server)
        cluster.complete("a")
        await until(lambda: is_complete(cluster))
    assert is_clean(server)


async def test_a_deleted_job_leaves_no_cordon(server, cluster):
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 10_000, message=BUDGET)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: is_cordoned(server))
        server.remove(JOBS, "sample")
        await until(lambda: is_clean(server), 30)


async def test_a_job_whose_deletion_takes_long_leaves_no_cordon(server, cluster):
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 10_000, message=BUDGET)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: is_cordoned(server))
        # As in a foreground deletion, which waits for the last pod.
        job, now = server.get(JOBS, "sample"), format_time(server.clock.now())
        deletion = {"deletionTimestamp": now, "finalizers": ["foregroundDeletion"]}
        deleted = {**job, "metadata": {**job["metadata"], **deletion}}
        server.storage.commit((JOBS.group, JOBS.plural), "MODIFIED", deleted, job)
        await until(lambda: is_clean(server), 30)
        assert server.exists(JOBS, "sample")


async def test_a_job_that_is_deleted_while_no_controller_runs_leaves_no_cordon(server, cluster):
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
    server.remove(JOBS, "sample")
    for report in server.list(JOB_REPORTS):
        server.remove(JOB_REPORTS, report["metadata"]["name"])
    await asyncio.sleep(60)
    assert is_cordoned(server)
    async with running(server):
        await until(lambda: is_clean(server), 30)


async def test_a_cordon_of_a_namespace_that_it_does_not_look_after_stays(server, cluster):
    of_other = {"metadata": {"name": "a", "annotations": {MARK: "other/gone/some-uid"}}}
    of_own = {"metadata": {"name": "b", "annotations": {MARK: "default/gone/some-uid"}}}
    for raw in (of_other, of_own):
        server.put(NODES, {**raw, "spec": {"unschedulable": True}})
    async with running(server, namespaces=("default",)):
        await until(lambda: is_clean(server, "b"), 30)
        await asyncio.sleep(300)
    assert is_cordoned(server)
    assert mark(server) == "other/gone/some-uid"
    async with running(server):
        await until(lambda: is_clean(server), 30)


async def test_the_next_job_of_that_name_lifts_the_cordon_of_the_one_before(server, cluster):
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
    server.remove(JOBS, "sample")
    cluster.apply(nodes={"exclude": ["a"]})
    async with running(server):
        await until(lambda: is_clean(server), 30)


async def test_a_cordon_that_cannot_be_lifted_is_tried_again(server, cluster):
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
        server.fail_next("PATCH", "/nodes/a", 500, 5, message="failed calling webhook")
        server.remove(JOBS, "sample")
        await until(lambda: is_clean(server), 300)


async def test_a_job_that_the_cache_does_not_have_yet_keeps_its_cordon(server, cluster):
    async with running(server):
        cluster.apply(cordon=True)
        await until(lambda: is_started(cluster))
    uid = server.get(JOBS, "sample")["metadata"]["uid"]
    # The list of Jobs that the next controller gets has it not.
    server.answer_next(
        "GET", r"/jobs\?", b'{"kind":"JobList","metadata":{"resourceVersion":"1"},"items":[]}'
    )
    async with running(server):
        await asyncio.sleep(300)
        assert mark(server) == f"default/sample/{uid}"
    assert len(cluster.writes("/nodes/a")) == 1


async def test_a_suspended_job_gives_back_a_node_that_has_not_started(server, cluster):
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 10_000, message=BUDGET)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: cluster.condition("Progressing").get("reason") == "DrainBlocked")
        cluster.apply(**DRAIN, suspend=True)
        await until(lambda: is_clean(server), 30)
        before = len(evictions(cluster))
        await asyncio.sleep(120)
        assert len(evictions(cluster)) == before
        # No task had begun, so the start of the run is taken back.
        assert "startTime" not in cluster.status()
        server.faults.clear()
        cluster.apply(**DRAIN, suspend=False)
        await until(lambda: is_started(cluster))
        assert is_cordoned(server)


async def test_a_task_that_fails_leaves_no_cordon(server, cluster):
    async with running(server):
        cluster.apply(**DRAIN, backoffLimit=0)
        await until(lambda: is_started(cluster))
        cluster.fail("a")
        await until(lambda: cluster.condition("Failed").get("status") == "True")
        await until(lambda: is_clean(server))


async def test_without_the_right_the_job_does_not_start_and_says_what_to_apply(server, cluster):
    words = 'nodes "a" is forbidden: User "x" cannot patch resource "nodes" in API group ""'
    server.fail_next("PATCH", r"/nodes/a\?.*dryRun", 403, 5, message=words)
    put_pod(server)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: cluster.condition("Progressing").get("reason") == "CordonRefused")
        assert "deploy/components/drain" in cluster.condition("Progressing")["message"]
        assert "startTime" not in cluster.status()
        await until(lambda: is_started(cluster), 600)


async def test_without_the_right_to_evict_the_job_says_what_to_apply(server, cluster):
    put_pod(server)
    words = 'pods "web-1" is forbidden: User "x" cannot create resource "pods/eviction"'
    server.fail_next("POST", EVICTION, 403, 20, message=words)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: cluster.condition("Progressing").get("reason") == "CordonRefused")
        assert "deploy/components/drain" in cluster.condition("Progressing")["message"]
        await until(lambda: is_started(cluster), 600)


async def test_pods_that_cannot_be_listed_open_no_gate(server, cluster):
    put_pod(server)
    async with running(server):
        server.fail_next("GET", r"/pods\?.*spec.nodeName", 500, 10, message="no")
        cluster.apply(**DRAIN)
        await until(lambda: record(server).get("reason") == "Draining")
        await asyncio.sleep(5)
        assert not is_started(cluster)
        await until(lambda: is_started(cluster))
        assert not server.exists(PODS, "web-1", "shop")


@pytest.mark.parametrize("writes", range(1, 12))
async def test_a_crash_after_each_write_leads_to_the_same_end(server, cluster, writes):
    put_pod(server)
    stopped = asyncio.Event()
    seen = 0

    def count(event):
        nonlocal seen
        seen += 1
        if seen == writes:
            stopped.set()

    async with running(server):
        cluster.apply(**DRAIN)
        server.storage.listeners.append(count)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), 60)
    server.storage.listeners.remove(count)
    async with running(server):
        await until(lambda: is_started(cluster))
        assert is_cordoned(server)
        assert not server.exists(PODS, "web-1", "shop")
        cluster.complete("a")
        await until(lambda: is_complete(cluster))
        assert is_clean(server)


async def test_a_node_that_is_deleted_while_it_is_drained_holds_nothing_up(server, cluster):
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 10_000, message=BUDGET)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: record(server).get("reason") == "DrainBlocked")
        server.remove(NODES, "a", "")
        cluster.join("b")
        await until(lambda: is_started(cluster))
        assert is_cordoned(server, "b")


async def leave_during_a_drain(server, cluster):
    """Have a controller begin a drain that a budget blocks, and be away beyond its time-out."""
    put_pod(server)
    server.fail_next("POST", EVICTION, 429, 1, message=BUDGET)
    async with running(server):
        cluster.apply(**DRAIN)
        await until(lambda: record(server).get("reason") == "DrainBlocked")
    await asyncio.sleep(600)


async def test_a_drain_goes_on_after_a_controller_was_away_for_longer_than_its_timeout(
    server, cluster
):
    await leave_during_a_drain(server, cluster)
    async with running(server):
        await until(lambda: is_started(cluster))
    assert len(evictions(cluster)) == 2


async def test_a_list_that_fails_at_the_return_of_the_controller_is_no_failure_of_the_drain(
    server, cluster
):
    await leave_during_a_drain(server, cluster)
    server.fail_next("GET", "fieldSelector=spec.nodeName", 500, 5)
    async with running(server):
        await until(lambda: is_started(cluster))
    assert server.faults == []
    assert len(evictions(cluster)) == 2
