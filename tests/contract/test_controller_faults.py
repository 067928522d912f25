"""The controller when the API server does what API servers do. All times are the loop's own."""

import asyncio
import contextlib
import itertools
import re
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.report import new_report
from daemonset_job.api.times import parse_time
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Unavailable
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, LEASES, NODES, PODS
from job_controller.config import Config
from job_controller.main import new_controller
from job_controller.metrics import Metrics
from tests.contract.controller_cluster import (
    DAEMON_SET,
    START,
    FakeCluster,
    gated,
    on_first,
    running,
    until,
    virtual_clock,
)
from tests.contract.fake_api import Fault

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


async def finish(cluster, *besides):
    """Complete both nodes and see that the run ends as it should, with nothing made twice."""
    for node in ("a", "b"):
        await until(lambda: cluster.status().get("nodes", {}).get("desired") == 2)
        cluster.complete(node)
    await until(lambda: cluster.condition("Complete").get("status") == "True")
    (report,) = cluster.server.list(JOB_REPORTS)
    assert report["status"]["phase"] == "Succeeded"
    assert set(report["status"]["nodeStates"]) == {"a", "b"}
    assert len(cluster.server.list(DAEMON_SETS)) == 1
    assert len(cluster.server.list(PODS)) == 2
    # An event follows a write that is known to have succeeded: one may be lost, none is doubled.
    await asyncio.sleep(60)
    told = [event for event in cluster.events() if event not in besides]
    assert set(told) <= {"Completed", "Started"}
    assert len(told) <= 2


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


@pytest.mark.parametrize("status", [403, 422, 500])
async def test_a_refused_status_counts_as_retried_and_not_as_failed(server, cluster, status):
    metrics = Metrics()

    def counted(result: str) -> float | None:
        labels = {"component": "controller", "result": result}
        return metrics.registry.get_sample_value("dsj_reconciles_total", labels)

    server.fail_next("PATCH", "/jobs/sample/status", status, times=3)
    async with running(server, metrics=metrics):
        cluster.apply()
        await until(cluster.is_settled)
    assert (counted("retried"), counted("failed")) == (3, 0)


# --- what cannot be read -----------------------------------------------------------------


@pytest.mark.parametrize("levels", [900, 1100])
async def test_too_deeply_nested_job_is_reported_and_delays_no_other(server, cluster, levels):
    deep = {"template": {"spec": {"containers": [{"x": f"@deep:{levels}"}]}}}
    async with running(server):
        cluster.apply("deep", **deep)
        await until(lambda: cluster.condition("Progressing", "deep"))
        condition = cluster.condition("Progressing", "deep")
        assert (condition["status"], condition["reason"]) == ("False", "Unreadable")
        assert "delete it and create it again" in condition["message"]
        assert cluster.status("deep")["observedGeneration"] == 1
        cluster.apply()
        await until(cluster.is_settled)
        await asyncio.sleep(600)
        assert len(cluster.writes("/jobs/deep")) == 1
    # After a restart it is as unreadable, and nothing is new to say.
    async with running(server):
        await finish(cluster)
        assert len(cluster.writes("/jobs/deep")) == 1
        # Another generation of it is told of once more.
        cluster.apply("deep", **deep, image="other")
        await until(lambda: cluster.status("deep")["observedGeneration"] == 2)
        await asyncio.sleep(60)
        assert len(cluster.writes("/jobs/deep")) == 2
        # Mended, it is taken up as any other.
        cluster.apply("deep", suspend=True)
        await until(lambda: cluster.condition("Suspended", "deep"))
        assert cluster.condition("Progressing", "deep")["reason"] == "Paused"
        assert cluster.status("deep")["phase"] == "Paused"
        server.remove(JOBS, "deep")


async def test_a_job_that_became_unreadable_is_left_alone(server, cluster):
    async with running(server):
        cluster.apply("sample", suspend=True)
        await until(lambda: cluster.condition("Suspended"))
        cluster.apply("sample", template={"spec": {"volumes": ["@deep:1100"]}})
        await until(lambda: cluster.condition("Progressing").get("reason") == "Unreadable")
        assert cluster.condition("Suspended")["status"] == "True"  # as it was
        await asyncio.sleep(600)
        assert server.list(DAEMON_SETS) == []
        cluster.apply("sample")
        await until(cluster.is_settled)
        await finish(cluster)


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


# --- refusals ----------------------------------------------------------------------------

REFUSALS = {
    "invalid": (422, "Invalid", "spec.template.spec.containers[0].image: Required value"),
    "size": (
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    ),
    "quota": (403, "Forbidden", "exceeded quota: none, requested: count/daemonsets.apps=1"),
    "bad": (400, "BadRequest", "strict decoding error: unknown field"),
    "typed": (
        500,
        "InternalError",
        "failed to create typed patch object: .spec.template.spec.tolerance: not in schema",
    ),
}


async def test_a_refused_pod_deletion_does_not_block_other_nodes(server, cluster):
    async with running(server):
        cluster.apply(backoffLimit=0, failurePolicy={"action": "Continue"})
        await until(cluster.is_settled)
        cluster.fail("a")
        await until(lambda: cluster.status()["nodes"]["failed"] == 1)
        server.fail_next("DELETE", "/pods/", 403, 10_000, message="the policy says no")
        retry = {"metadata": {"annotations": {names.ANNOTATION_RETRY: "1"}}}
        server.patch(JOBS, "sample", retry)
        await until(lambda: cluster.condition("Progressing")["reason"] == "PodChangeRefused")
        assert "the policy says no" in cluster.condition("Progressing")["message"]

        cluster.join("c")
        await until(lambda: len(server.list(PODS)) == 3 and not gated(cluster.pod("c")), 20)
        # Said once, and tried again: nothing else is written meanwhile.
        await asyncio.sleep(30)
        before, since = len(cluster.writes("/pods/")), server.storage.version
        await asyncio.sleep(120)
        assert 1 <= len(cluster.writes("/pods/")) - before <= 6
        assert server.storage.version == since

        server.faults.clear()
        await until(lambda: len(server.list(PODS)) == 3 and not gated(cluster.pod("a")))
        await until(lambda: cluster.status()["nodes"]["failed"] == 0)


async def test_unreadable_daemon_set_is_reported_and_retried_rarely(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        # Somebody changed it and nested its managedFields deeper than anybody reads.
        server.answer_next("PATCH", "/daemonsets/", b'{"a":' * 3000 + b"0" + b"}" * 3000, 10_000)
        server.remove(DAEMON_SETS, DAEMON_SET)
        await until(lambda: cluster.condition("Progressing").get("reason") == "DaemonSetRefused")
        assert "managedFields are nested too deep" in cluster.condition("Progressing")["message"]
        before = len(cluster.writes("/daemonsets/"))
        await asyncio.sleep(900)
        assert len(cluster.writes("/daemonsets/")) - before <= 8

        server.faults.clear()
        await until(cluster.is_settled, 400)


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_daemon_set_is_reported_and_retried_slowly(server, cluster, refusal):
    status, reason, message = REFUSALS[refusal]
    server.fail_next("PATCH", "/daemonsets/", status, 10_000, reason=reason, message=message)
    async with running(server):
        cluster.apply()
        await until(lambda: cluster.condition("Progressing").get("reason") == "DaemonSetRefused")
        found = cluster.condition("Progressing")
        assert found["status"] == "False"
        assert message in found["message"]
        await until(lambda: cluster.events() == ["DaemonSetRefused"])
        # Nothing can have run, so what runs may still be corrected.
        assert "startTime" not in cluster.status()
        assert not server.list(JOB_REPORTS)

        since, counts = server.storage.version, []
        for _ in range(4):
            before = cluster.daemon_set_tries()
            await asyncio.sleep(900)
            counts.append(cluster.daemon_set_tries() - before)
        assert counts == [6, 3, 3, 3]  # after 15, 30, 60, 120 and 240 s, then every 300 s
        assert cluster.daemon_set_patches() == 0
        assert server.storage.version == since  # it is said once
        # What changes elsewhere is no reason to try it again.
        before = cluster.daemon_set_tries()
        cluster.join("c")
        await asyncio.sleep(5)
        assert cluster.daemon_set_tries() == before
        # A change of the Job is.
        server.faults.clear()
        cluster.apply(activeDeadlineSeconds=36_000)
        await until(lambda: server.exists(DAEMON_SETS, DAEMON_SET), 2)
        await finish_after_trouble(cluster)


async def test_daemon_set_refused_after_the_start_is_reported(server, cluster):
    # As by a quota that was used up in the same moment.
    def refuse():
        server.fail_next("PATCH", "/daemonsets/", 403, 10_000, reason="Forbidden", message="quota")

    on_first(server, JOBS, "MODIFIED", refuse)
    async with running(server):
        cluster.apply()
        await until(lambda: cluster.condition("Progressing").get("reason") == "DaemonSetRefused")
        server.faults.clear()
        await finish_after_trouble(cluster)


async def test_a_webhook_that_cannot_say_beforehand_is_asked_for_good(server, cluster):
    words = 'admission webhook "a.example.com" does not support dry run'
    server.fail_next("PATCH", "/daemonsets/", 400, 1, reason="BadRequest", message=words)
    async with running(server):
        cluster.apply()
        await finish_after_trouble(cluster)


async def test_webhook_time_of_a_dry_run_does_not_count_for_the_run(server, cluster):
    server.delay_next("PATCH", "/daemonsets/", 9.0)
    async with running(server):
        cluster.apply(activeDeadlineSeconds=10)
        await until(cluster.is_settled)
        assert now() > 9.0
        assert parse_time(cluster.status()["startTime"]) >= START + timedelta(seconds=9)
        await asyncio.sleep(5)
        await finish(cluster)


async def finish_after_trouble(cluster):
    await until(cluster.is_settled)
    assert cluster.condition("Progressing")["status"] == "True"
    for raw in cluster.server.list(NODES):
        cluster.complete(raw["metadata"]["name"])
    await until(lambda: cluster.condition("Complete").get("status") == "True")
    assert len(cluster.server.list(JOB_REPORTS)) == 1


async def test_a_refused_report_is_tried_again_and_not_hidden(server, cluster):
    server.fail_next("POST", "/jobreports", 403, 10_000, reason="Forbidden", message="no right")
    async with running(server):
        cluster.apply()
        await asyncio.sleep(120)
        assert not server.list(DAEMON_SETS)  # no work without a place to record it
        assert 4 <= len(cluster.writes("/jobreports")) <= 20
        assert cluster.condition("Progressing")["reason"] == "ReportRefused"
        assert "no right" in cluster.condition("Progressing")["message"]
        server.faults.clear()
        await until(cluster.is_settled)
        await finish(cluster, "ReportRefused", "Resumed")


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


def make_ready(server, node, status):
    """Have a node say whether it is Ready."""
    raw = server.get(NODES, node, "")
    (ready,) = raw["status"]["conditions"]
    server.put(NODES, {**raw, "status": {"conditions": [{**ready, "status": status}]}})


@pytest.mark.parametrize("fault", [None, 503, 403])
async def test_a_node_whose_return_the_cache_lacks_does_not_fail_the_run(server, cluster, fault):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        make_ready(server, "a", "False")
        await asyncio.sleep(20)
        server.silence_watches(NODES)
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


async def test_node_that_returned_unseen_is_checked_again(server, cluster):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        make_ready(server, "a", "False")
        await asyncio.sleep(20)
        server.silence_watches(NODES)
        make_ready(server, "a", "True")
        await until(lambda: node_reads(server))
        await asyncio.sleep(5)
        assert cluster.status()["phase"] == "Running"
        make_ready(server, "a", "False")
        # The next list has the node as the cache has it, so that it wakes nobody.
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
        cluster.apply()
        await until(cluster.is_settled)
        make_ready(server, "a", "False")
        await asyncio.sleep(20)
        server.silence_watches(NODES)
        cluster.plays = False
        server.remove(NODES, "a", "")
        await asyncio.sleep(45)
        assert cluster.status()["phase"] == "Running"


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


async def test_a_label_that_arrives_last_still_ends_the_run(server, cluster):
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
        await until(lambda: len(server.list(PODS)) == 3 and not gated(cluster.pod("c")))
        for node in ("a", "b", "c"):
            cluster.complete(node)
        await asyncio.sleep(10)
        # As far as the controller knows, the pod of c is about to be deleted.
        assert cluster.condition("Complete") == {}
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


@pytest.mark.parametrize("limit", [0, 10])
async def test_the_report_of_a_job_that_arrives_late_is_not_closed(server, limit):
    """As for a controller that has just begun to lead: the one before made the report."""
    cluster = FakeCluster(server, "a", "b")
    async with running(server, history_limit=limit):
        await until(lambda: len(server.open_watches(JOBS)) == 1)
        server.silence_watches(JOBS)
        uid = cluster.apply()["metadata"]["uid"]
        body = new_report(namespace="default", job_name="sample", job_uid=uid, spec={"image": "x"})
        node_uid = server.get(NODES, "a", "")["metadata"]["uid"]
        body["evidence"] = {"a": {"nodeUID": node_uid, "completedAt": "2026-01-02T03:04:05Z"}}
        server.put(JOB_REPORTS, body)
        await asyncio.sleep(20)
        found = server.list(JOB_REPORTS)
        assert [raw["evidence"].keys() for raw in found] == [{"a"}]
        assert (found[0].get("status") or {}).get("phase") != "Cancelled"


async def test_a_refused_report_of_an_earlier_run_holds_up_no_later_one(server):
    cluster = FakeCluster(server, "a")
    body = new_report(
        namespace="default", job_name="sample", job_uid="earlier", spec={"image": "x"}
    )
    server.put(JOB_REPORTS, body)
    server.fail_next("PATCH", f"/{body['metadata']['name']}/status", 422, times=1000)
    async with running(server):
        cluster.apply()
        await until(lambda: "startTime" in cluster.status())


async def test_excess_reports_that_cannot_be_removed_hold_up_no_job(server):
    cluster = FakeCluster(server, "a")
    for name in ("x", "y"):
        body = new_report(
            namespace="default", job_name=name, job_uid=f"{name}-uid", spec={"image": "x"}
        )
        body["status"] = {"phase": "Succeeded"}
        server.put(JOB_REPORTS, body)
    server.fail_next("DELETE", "/jobreports/", 403, times=10_000, reason="Forbidden")
    async with running(server, history_namespace_limit=1):
        cluster.apply()
        await until(lambda: "startTime" in cluster.status())
