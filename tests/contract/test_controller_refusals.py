"""The controller when the API server refuses its writes, or an object cannot be read."""

import asyncio
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.job import parse_job
from daemonset_job.api.report import new_report
from daemonset_job.api.times import parse_time
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NODES, PODS
from job_controller.core.render.report_status import build_report
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
from tests.contract.controller_runs import finish, finish_after_faults, now

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


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
        # Another generation of it is reported once more.
        cluster.apply("deep", **deep, image="other")
        await until(lambda: cluster.status("deep")["observedGeneration"] == 2)
        await asyncio.sleep(60)
        assert len(cluster.writes("/jobs/deep")) == 2
        # Once it can be read, it is reconciled as any other.
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
        # A user changed it and nested its managedFields deeper than any program reads.
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
        await finish_after_faults(cluster)


async def test_daemon_set_refused_after_the_start_is_reported(server, cluster):
    # As by a quota that was used up in the same moment.
    def refuse():
        server.fail_next("PATCH", "/daemonsets/", 403, 10_000, reason="Forbidden", message="quota")

    on_first(server, JOBS, "MODIFIED", refuse)
    async with running(server):
        cluster.apply()
        await until(lambda: cluster.condition("Progressing").get("reason") == "DaemonSetRefused")
        server.faults.clear()
        await finish_after_faults(cluster)


async def test_a_webhook_that_cannot_say_beforehand_is_asked_for_good(server, cluster):
    words = 'admission webhook "a.example.com" does not support dry run'
    server.fail_next("PATCH", "/daemonsets/", 400, 1, reason="BadRequest", message=words)
    async with running(server):
        cluster.apply()
        await finish_after_faults(cluster)


async def test_webhook_time_of_a_dry_run_does_not_count_for_the_run(server, cluster):
    server.delay_next("PATCH", "/daemonsets/", 9.0)
    async with running(server):
        cluster.apply(activeDeadlineSeconds=10)
        await until(cluster.is_settled)
        assert now() > 9.0
        assert parse_time(cluster.status()["startTime"]) >= START + timedelta(seconds=9)
        await asyncio.sleep(5)
        await finish(cluster)


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


@pytest.mark.parametrize("limit", [0, 10])
async def test_the_report_of_a_job_that_arrives_late_is_not_closed(server, limit):
    """As for a controller that has just begun to lead: the one before made the report."""
    cluster = FakeCluster(server, "a", "b")
    async with running(server, history_limit=limit):
        await until(lambda: len(server.open_watches(JOBS)) == 1)
        server.silence_watches(JOBS)
        body = build_report(parse_job(cluster.apply()))
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
        namespace="default", name="a", job_name="sample", job_uid="earlier", spec={"image": "x"}
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
            namespace="default",
            name=name,
            job_name=name,
            job_uid=f"{name}-uid",
            spec={"image": "x"},
        )
        body["status"] = {"phase": "Succeeded"}
        server.put(JOB_REPORTS, body)
    server.fail_next("DELETE", "/jobreports/", 403, times=10_000, reason="Forbidden")
    async with running(server, history_namespace_limit=1):
        cluster.apply()
        await until(lambda: "startTime" in cluster.status())
