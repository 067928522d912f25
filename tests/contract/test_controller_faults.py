"""The controller when the API server does what API servers do. All times are the loop's own."""

import asyncio
import contextlib
import itertools

import pytest

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Unavailable
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, LEASES, NODES, PODS
from job_controller.config import Config
from job_controller.main import new_controller
from job_controller.metrics import Metrics
from tests.contract.controller_cluster import (
    DAEMON_SET,
    FakeCluster,
    gated,
    on_first,
    running,
    until,
    virtual_clock,
)
from tests.contract.controller_runs import finish, now

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


async def test_an_undisturbed_run_makes_these_writes_and_no_others(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        await asyncio.sleep(30)
        await finish(cluster)
        await asyncio.sleep(600)

    assert len(cluster.writes("/daemonsets/")) == 2  # made, and the gate put up
    assert len(cluster.writes("/jobreports")) <= 6
    assert len(cluster.writes("/jobs/")) <= 6
    assert len(cluster.writes("/pods/")) == 0
    assert cluster.events() == ["Completed", "Started"]
    assert len(cluster.writes("/events")) == 2
    # Every write of a status changed it: the fake server, like a real one, gives no new version
    # to a change that changes nothing.
    versions = [event.version for event in server.storage.history if event.kind[1] == "jobs"]
    assert len(versions) == 1 + len(cluster.writes("/jobs/"))


# --- readiness ---------------------------------------------------------------------------


async def test_one_refused_watch_makes_the_program_unready_until_it_recovers(server, cluster):
    async with KubeClient(server.url) as client:
        metrics = Metrics()
        controller = new_controller(client, Config(), metrics)
        task = asyncio.create_task(controller.run())
        assert not controller.caches.healthy
        await until(lambda: controller.caches.healthy)
        await asyncio.sleep(2000)
        assert controller.caches.healthy
        server.fail_next("GET", "/jobreports", 403, times=10_000)
        server.drop_watches()
        await asyncio.sleep(360)
        assert controller.caches.healthy
        await asyncio.sleep(20)
        assert not controller.caches.healthy
        name = "dsj_watch_silence_seconds"
        assert (
            metrics.registry.get_sample_value(
                name, {"component": "controller", "resource": "jobreports"}
            )
            > 370
        )
        assert (
            metrics.registry.get_sample_value(name, {"component": "controller", "resource": "jobs"})
            < 70
        )
        server.faults.clear()
        await until(lambda: controller.caches.healthy)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_namespace_forbidden_from_the_start_affects_no_other(server, cluster):
    server.fail_next("GET", "/namespaces/two/pods", 403, times=10_000)
    cluster.apply()
    cluster.apply("other", namespace="two")
    async with running(server, namespaces=("default", "two")):
        await finish(cluster)
        # What is not known completely is not acted on.
        assert cluster.writes("/namespaces/two/") == []
        server.faults.clear()
        await until(lambda: server.exists(DAEMON_SETS, "other-daemonset-job", "two"))


@pytest.mark.parametrize(
    ("status", "result"),
    [(403, "forbidden"), (422, "retried"), (500, "retried")],
)
async def test_a_refused_status_counts_as_what_it_is(server, cluster, status, result):
    metrics = Metrics()

    def counted(result: str) -> float | None:
        labels = {"component": "controller", "result": result}
        return metrics.registry.get_sample_value("dsj_reconciles_total", labels)

    server.fail_next("PATCH", "/jobs/sample/status", status, times=3)
    async with running(server, metrics=metrics):
        cluster.apply()
        await until(cluster.is_settled)
    expected = {"retried": 0, "forbidden": 0, "failed": 0, result: 3}
    assert {each: counted(each) for each in expected} == expected


# --- conflicts ---------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 4])
async def test_a_conflict_on_the_status_leads_to_another_decision(server, cluster, times):
    server.fail_next("PATCH", "/jobs/sample/status", 409, times, reason="Conflict")
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        assert [r.status for r in cluster.writes("/jobs/")][: times + 1] == [409] * times + [200]
        server.fail_next("PATCH", "/jobs/sample/status", 409, times, reason="Conflict")
        await finish(cluster)


async def test_what_others_write_between_is_kept(server, cluster):
    def meddle():
        server.patch(JOBS, "sample", {"metadata": {"annotations": {"example.com/x": "y"}}})

    on_first(server, JOB_REPORTS, "ADDED", meddle)
    async with running(server):
        cluster.apply()
        await finish(cluster)
    assert server.get(JOBS, "sample")["metadata"]["annotations"] == {"example.com/x": "y"}


@pytest.mark.parametrize("times", [1, 4])
async def test_a_gate_whose_opening_met_a_conflict_is_opened_later(server, cluster, times):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        await asyncio.sleep(30)
        # Nothing else happens afterwards that would have the controller look again.
        server.fail_next("PATCH", "/pods/", 409, times, reason="Conflict")
        cluster.join("c")
        await until(lambda: len(server.list(PODS)) == 3 and not gated(cluster.pod("c")))


# --- too busy, and failing ---------------------------------------------------------------


async def test_a_server_that_asks_for_time_gets_it(server, cluster):
    async with running(server):
        await asyncio.sleep(1)
        server.fail_next("PATCH", "/daemonsets/", 429, 1, retry_after=4)
        cluster.apply()
        await until(lambda: cluster.daemon_set_tries() == 1)
        asked_at = now()
        await until(lambda: cluster.daemon_set_tries() > 1)
        assert now() - asked_at >= 3.5  # looked at every quarter of a second
        await finish(cluster)


async def test_retry_after_longer_than_a_call_is_left_to_the_caller(server, cluster):
    for path in ("/daemonsets/", "/jobreports", "/jobs/"):
        for method in ("PATCH", "POST"):
            server.fail_next(method, path, 429, 2, retry_after=40)
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled, 600)
        await finish(cluster)


WRITES_OF_A_RUN = ["/jobs/sample/status", "/jobreports", "/jobreports/.*/status", "/daemonsets/"]


@pytest.mark.parametrize("path", WRITES_OF_A_RUN)
@pytest.mark.parametrize("status", [500, 503, 504])
async def test_an_error_before_the_effect_is_tried_again(server, cluster, path, status):
    for method in ("PATCH", "POST"):
        server.fail_next(method, path, status, 3)
    async with running(server):
        cluster.apply()
        await finish(cluster)


@pytest.mark.parametrize("path", WRITES_OF_A_RUN)
@pytest.mark.parametrize("skipped", [0, 1])
async def test_an_answer_lost_after_the_effect_does_nothing_twice(server, cluster, path, skipped):
    async with running(server):
        if skipped:
            cluster.apply()
            await until(cluster.is_settled)
        for method in ("PATCH", "POST"):
            server.lose_answer_next(method, path, 2)
        cluster.apply()
        await finish(cluster)


async def test_a_lost_answer_to_opened_gates_does_nothing_twice(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        server.lose_answer_next("PATCH", "/pods/", 1)
        cluster.join("c")
        await until(lambda: len(cluster.server.list(PODS)) == 3 and not gated(cluster.pod("c")))
        for node in ("a", "b", "c"):
            cluster.complete(node)
        await until(lambda: cluster.condition("Complete").get("status") == "True")


async def test_the_server_is_away_for_a_minute(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        for method in ("GET", "PATCH", "POST", "DELETE"):
            server.reset_next(method, "", 10**6)
        server.drop_watches()
        await asyncio.sleep(30)
        cluster.complete("a")
        cluster.join("c")
        await asyncio.sleep(30)
        asked = len(server.requests)
        assert asked < 400, "it asked without pause"
        server.faults.clear()
        await until(lambda: cluster.completed() == 1 and not gated(cluster.pod("c")), 60)
        for node in ("b", "c"):
            cluster.complete(node)
        await until(lambda: cluster.condition("Complete").get("status") == "True")


async def test_it_starts_while_the_server_is_away(server, cluster):
    server.fail_next("GET", "", 503, 40)  # ten for each watch; that of reports waits for Jobs
    cluster.apply()
    async with running(server):
        await until(cluster.is_settled)
        await finish(cluster)


# --- watches -----------------------------------------------------------------------------


@pytest.mark.parametrize("as_event", [False, True])
async def test_expired_history_is_listed_again(server, cluster, as_event):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        server.silence_watches()
        cluster.complete("a")
        server.expire(as_event=as_event)
        server.drop_watches()
        await until(lambda: cluster.completed() == 1, 60)
        await finish(cluster)


async def test_dropped_watches_are_opened_again(server, cluster):
    async with running(server):
        cluster.apply()
        for _ in range(20):
            await asyncio.sleep(0.3)
            server.drop_watches()
        await until(cluster.is_settled)
        await finish(cluster)


async def test_silent_watches_are_found_out(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        server.silence_watches()
        cluster.complete("a")
        await until(lambda: cluster.completed() == 1, 150)
        await finish(cluster)


# --- caches behind our own writes --------------------------------------------------------


async def test_a_cache_behind_our_own_status_makes_no_second_write(server, cluster):
    on_first(server, JOBS, "MODIFIED", lambda: server.silence_watches(JOBS))
    async with running(server):
        await until(lambda: len(server.open_watches(JOBS)) == 1)
        cluster.apply()
        await until(lambda: len(cluster.writes("/jobs/")) == 1)
        for name in "cdefg":  # whatever else happens: the Job has yet to be seen as started
            cluster.join(name)
            await asyncio.sleep(5)
        assert len(cluster.writes("/jobs/")) == 1
        assert cluster.events() == ["Started"]
        await until(cluster.is_settled)


async def test_a_cache_behind_our_own_daemon_set_makes_no_second_one(server, cluster):
    on_first(server, DAEMON_SETS, "ADDED", lambda: server.silence_watches(DAEMON_SETS))
    async with running(server):
        await until(lambda: len(server.open_watches(DAEMON_SETS)) == 1)
        cluster.apply()
        await until(lambda: server.exists(DAEMON_SETS, DAEMON_SET))
        for name in "cdefg":
            cluster.join(name)
            await asyncio.sleep(5)
        assert cluster.daemon_set_patches() == 1
        await until(cluster.is_settled)
        assert cluster.daemon_set_patches() == 2


async def test_a_cache_behind_our_own_report_makes_no_second_one(server, cluster):
    on_first(server, JOB_REPORTS, "ADDED", lambda: server.silence_watches(JOB_REPORTS))
    async with running(server):
        await until(lambda: len(server.open_watches(JOB_REPORTS)) == 1)
        cluster.apply()
        await until(lambda: server.list(JOB_REPORTS))
        for name in "cdefg":
            cluster.join(name)
            await asyncio.sleep(5)
        assert len([r for r in cluster.writes("/jobreports") if r.method == "POST"]) == 1
        await until(cluster.is_settled)


async def test_a_cache_behind_our_own_opening_opens_no_gate_twice(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        cluster.starts_tasks = False

        def opened() -> bool:
            return len(server.list(PODS)) == 3 and not gated(cluster.pod("c"))

        on_first(server, PODS, "MODIFIED", lambda: server.silence_watches(PODS))
        cluster.join("c")
        await until(opened)
        for _ in range(5):
            server.patch(JOBS, "sample", {"metadata": {"annotations": {"n": str(now())}}})
            await asyncio.sleep(5)
        assert len(cluster.writes("/pods/")) == 1


@pytest.mark.parametrize("completed", ["before", "after"])
async def test_a_node_registered_again_that_the_cache_lacks_runs_once(server, cluster, completed):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        if completed == "before":
            # By the machine that was there before: the new one has its work to do.
            cluster.complete("a")
            await asyncio.sleep(5)
        server.silence_watches(NODES)
        cluster.plays = False
        server.remove(NODES, "a", "")
        cluster.join("a")
        if completed == "after":
            cluster.complete("a")
        await asyncio.sleep(1)
        cluster.starts_tasks = False
        cluster.plays = True
        server.remove(PODS, cluster.pod("a")["metadata"]["name"])
        await asyncio.sleep(20 if completed == "after" else 400)
        assert gated(cluster.pod("a")) == (completed == "after")
        # No scheduler of this cluster looks at a pod that is not to start.
        await finish(cluster, "NotScheduled")


async def test_a_node_whose_label_arrives_late_starts_late_and_the_run_waits_for_it(
    server, cluster
):
    async with running(server):
        await until(lambda: len(server.open_watches(NODES)) == 1)
        cluster.apply(nodes={"selector": {"matchLabels": {"zone": "a"}}})
        for node in ("a", "b"):
            server.patch(NODES, node, {"metadata": {"labels": {"zone": "a"}}}, "")
        cluster.join("c")
        await until(cluster.is_settled)
        await asyncio.sleep(5)
        server.silence_watches(NODES)
        server.patch(NODES, "c", {"metadata": {"labels": {"zone": "a"}}}, "")
        await until(lambda: len(server.list(PODS)) == 3)
        for node in ("a", "b"):
            cluster.complete(node)
        await asyncio.sleep(10)
        # As far as the controller knows, the pod of c is about to be deleted.
        assert gated(cluster.pod("c"))
        assert cluster.condition("Complete") == {}
        await until(lambda: not gated(cluster.pod("c")))
        cluster.complete("c")
        await until(lambda: cluster.condition("Complete").get("status") == "True")


# --- two of them -------------------------------------------------------------------------


class Cut(KubeClient):
    """A client that can be cut off from its Lease, and from nothing else."""

    is_cut = False

    async def get(self, resource, *args, **options):
        if self.is_cut and resource == LEASES:
            raise Unavailable("cut off")
        return await super().get(resource, *args, **options)

    async def replace(self, resource, *args, **options):
        if self.is_cut and resource == LEASES:
            raise Unavailable("cut off")
        return await super().replace(resource, *args, **options)


def actors(cluster):
    """Return who wrote, one after the other, Leases aside."""
    agents = [
        request.headers["User-Agent"]
        for request in cluster.writes()
        if "/leases" not in request.path
    ]
    return [agent for agent, _ in itertools.groupby(agents)]


async def test_two_with_one_lease_never_act_at_once(server, cluster):
    one = Cut(server.url, user_agent="one")
    two = Cut(server.url, user_agent="two")
    lease = {"lease_namespace": "system", "lease_name": "lock"}
    cluster.plays = False  # only who writes is of interest
    async with (
        running(server, client=one, identity="one", **lease),
        running(server, client=two, identity="two", **lease),
    ):
        await until(lambda: server.exists(LEASES, "lock", "system"))
        holder = server.get(LEASES, "lock", "system")["spec"]["holderIdentity"]
        first, other = (one, two) if holder.startswith("one") else (two, one)
        for number in range(45):
            cluster.apply(f"job-{number}")
            if number == 15:
                first.is_cut = True
            if number == 35:
                first.is_cut, other.is_cut = False, True
            await asyncio.sleep(2)
        one_first = first is one
        assert actors(cluster) == (["one", "two", "one"] if one_first else ["two", "one", "two"])
        await until(lambda: all("startTime" in raw["status"] for raw in server.list(JOBS)))
        assert len(server.list(JOB_REPORTS)) == 45


async def test_one_that_stops_in_order_is_followed_at_once(server, cluster):
    lease = {"lease_namespace": "system", "lease_name": "lock"}
    async with running(server, client=KubeClient(server.url, user_agent="one"), **lease):
        cluster.apply()
        await until(cluster.is_settled)
    async with running(server, client=KubeClient(server.url, user_agent="two"), **lease):
        since = now()
        cluster.complete("a")
        await until(lambda: cluster.completed() == 1)
        assert now() - since < 5
    assert actors(cluster) == ["one", "two"]
