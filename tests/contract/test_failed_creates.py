"""Why pods of a DaemonSet are refused: asked while pods are missing, and only then."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.resource import DAEMON_SETS, EVENTS, PODS
from job_controller.warning_events import PAGE_EVENTS
from tests.contract.controller_cluster import DAEMON_SET, FakeCluster, running, until, virtual_clock
from tests.fakekube.daemon_sets import node_of

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]
QUOTA = "pods is forbidden: exceeded quota: none"


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


def progressing(cluster):
    return cluster.condition("Progressing")


async def wait_for_message(cluster, words, seconds=5.0):
    """Return once the status says that pods are refused, in these words."""

    def look():
        found = progressing(cluster)
        return found.get("reason") == "FailedCreate" and words in found["message"]

    await until(look, seconds)


def lists(server):
    """Return the requests for lists of events; the recorder gets single ones."""
    return [
        request
        for request in server.requests
        if request.method == "GET" and request.path.partition("?")[0].endswith("/events")
    ]


def request_bodies(server):
    """Return what was sent to change the DaemonSet."""
    return [
        request.body
        for request in server.requests
        if request.method == "PATCH" and request.path.partition("?")[0].endswith(DAEMON_SET)
    ]


def changes(server):
    return len(request_bodies(server))


async def test_a_refusal_is_reported_within_seconds_until_the_pods_exist(server, cluster):
    cluster.failed_create_message = QUOTA
    async with running(server):
        cluster.apply()
        await wait_for_message(cluster, f"2 of 2 pods cannot be created: {QUOTA}")
        cluster.allow_pods()
        await until(lambda: progressing(cluster)["reason"] == "NodesActive", 5.0)
        for node in ("a", "b"):
            cluster.complete(node)
        await until(lambda: cluster.condition("Complete").get("status") == "True")


async def test_where_no_pods_are_missing_nothing_is_asked(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        await asyncio.sleep(600)
        cluster.complete("a")
        cluster.join("c")
        await asyncio.sleep(600)
    assert lists(server) == []


async def test_events_are_listed_rarely_per_namespace_and_bounded(server, cluster):
    cluster.failed_create_message = QUOTA
    async with running(server):
        cluster.apply()
        await until(lambda: server.exists(DAEMON_SETS, DAEMON_SET))
        await asyncio.sleep(60)
        assert len(lists(server)) in {5, 6}  # 2, 6, 14, 29 and 44 s after pods were found missing
        await asyncio.sleep(600)
        assert len(lists(server)) <= 46
        uid = server.get(DAEMON_SETS, DAEMON_SET)["metadata"]["uid"]
        for request in lists(server):
            assert request.path.partition("?")[0] == "/api/v1/namespaces/default/events"
            assert request.query == {
                "fieldSelector": f"involvedObject.uid={uid},reason=FailedCreate",
                "limit": str(PAGE_EVENTS),
            }
        # A reason that changes is in the status after a minute at the latest.
        cluster.failed_create_message = "violates PodSecurity"
        cluster._on_event(None)
        await wait_for_message(cluster, "violates PodSecurity", seconds=65)
        cluster.allow_pods()
        await until(cluster.is_settled)
        before = len(lists(server))
        await asyncio.sleep(600)
        assert len(lists(server)) == before


async def test_an_event_from_before_the_controller_started_is_reported(server, cluster):
    cluster.failed_create_message = QUOTA
    async with running(server):
        cluster.apply()
        await until(lambda: server.list(EVENTS))
    assert progressing(cluster).get("reason") != "FailedCreate"
    async with running(server):
        await wait_for_message(cluster, QUOTA)


async def test_a_restart_takes_nothing_back_that_still_holds(server, cluster):
    cluster.failed_create_message = QUOTA
    async with running(server):
        cluster.apply()
        await wait_for_message(cluster, QUOTA)
    before = cluster.status()
    async with running(server):
        await asyncio.sleep(300)
    assert cluster.status() == before


async def test_pods_are_created_within_seconds_once_nothing_refuses_them(server, cluster):
    """The DaemonSet controller would wait for up to 15 minutes; each read of the events ends it."""
    cluster.failed_create_message = QUOTA
    async with running(server):
        cluster.apply()
        await wait_for_message(cluster, QUOTA)
        await asyncio.sleep(600)
        meta = server.get(DAEMON_SETS, DAEMON_SET)["metadata"]
        assert 600 / 15 <= int(meta["annotations"][names.ANNOTATION_CREATE_AGAIN]) <= 46
        before = changes(server)
        await asyncio.sleep(1200)
        assert 1200 / 60 - 1 <= changes(server) - before <= 1200 / 60 + 1
        assert len(request_bodies(server)[-1]) < 500
        generation = meta["generation"]
        cluster.failed_create_message = ""
        await until(cluster.is_settled)
        await asyncio.sleep(60)
        after = server.get(DAEMON_SETS, DAEMON_SET)["metadata"]
        assert after["generation"] - generation <= 1  # the gate, and nothing else


async def test_events_of_another_namespace_do_not_count(server, cluster):
    cluster.failed_create_message = QUOTA
    async with running(server):
        cluster.apply()
        await wait_for_message(cluster, QUOTA)
        real = server.get(DAEMON_SETS, DAEMON_SET)
        there = {**real, "metadata": {**real["metadata"], "namespace": "elsewhere"}}
        cluster.refuse_pods(there, "forged", lastTimestamp="9999-01-01T00:00:00Z")
        await asyncio.sleep(200)
        assert QUOTA in progressing(cluster)["message"]


async def test_forged_events_do_not_hide_a_real_failed_create(server, cluster):
    """Neither by a time that is to come, nor by their number, nor by names that come first."""
    cluster.failed_create_message = "at first"
    async with running(server):
        cluster.apply()
        await wait_for_message(cluster, "at first")
        real = server.get(DAEMON_SETS, DAEMON_SET)
        for number in range(5 * PAGE_EVENTS):
            name = {"name": f"a-{number}", "namespace": "default"}
            future = "9999-01-01T00:00:00Z"
            cluster.refuse_pods(real, "forged", metadata=name, lastTimestamp=future)
        await wait_for_message(cluster, "forged", seconds=90)
        cluster.failed_create_message = QUOTA
        cluster._on_event(None)
        await wait_for_message(cluster, QUOTA, seconds=90)
        await asyncio.sleep(300)
        assert QUOTA in progressing(cluster)["message"]


async def test_an_event_of_a_megabyte_does_not_hide_the_others(server, cluster):
    cluster.failed_create_message = QUOTA
    async with running(server):
        cluster.apply()
        await until(lambda: server.list(EVENTS))
        name = {"name": "a", "namespace": "default"}
        cluster.refuse_pods(server.get(DAEMON_SETS, DAEMON_SET), "x" * 1_100_000, metadata=name)
        await wait_for_message(cluster, QUOTA, seconds=20)


@pytest.mark.parametrize("status", [403, 500, 410])
async def test_lists_that_fail_hold_up_nothing_and_are_tried_again(server, cluster, status):
    cluster.failed_create_message = QUOTA
    server.fail_next("GET", "/events", status, times=1000)
    async with running(server):
        cluster.apply()
        await until(lambda: len(lists(server)) >= 3)
        assert progressing(cluster)["reason"] != "FailedCreate"
        server.faults.clear()
        await wait_for_message(cluster, QUOTA, seconds=65)
        server.fail_next("GET", "/events", status, times=1000)
        await asyncio.sleep(200)
        assert QUOTA in progressing(cluster)["message"]
        cluster.allow_pods()
        await until(cluster.is_settled)
        assert len(server.list(PODS)) == 2


async def test_a_list_that_hangs_is_given_up_and_others_go_on(server, cluster):
    cluster.failed_create_message = QUOTA
    server.delay_next("GET", "/events", 1000, times=2)
    async with running(server):
        cluster.apply()
        await wait_for_message(cluster, QUOTA, seconds=150)


@pytest.mark.parametrize("reason", ["FailedMount", "FailedCreatePodSandBox"])
async def test_a_pod_that_cannot_be_set_up_is_reported_in_the_kubelets_words(
    server, cluster, reason
):
    cluster.starts_tasks = False
    async with running(server):
        cluster.apply()
        await until(lambda: len(server.list(PODS)) == 2)
        for pod in server.list(PODS):
            cluster.hold_pod(pod)
        first = min(server.list(PODS), key=node_of)
        missing = 'MountVolume.SetUp failed for volume "script": configmap "nocm" not found'
        server.put(
            EVENTS,
            {
                "metadata": {"name": "mount.1", "namespace": "default"},
                "involvedObject": {"kind": "Pod", "uid": first["metadata"]["uid"]},
                "type": "Warning",
                "reason": reason,
                "message": missing,
            },
        )
        await until(lambda: missing in progressing(cluster)["message"], 60.0)
        assert progressing(cluster)["reason"] == "TaskNotStarted"
        assert progressing(cluster)["message"] == (
            f"2 of 2 nodes have not started the task (a,b): {missing}"
        )
