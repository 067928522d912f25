"""The controller's log of a whole run, at INFO: an account that one can follow."""

import asyncio
from collections.abc import Iterator

import pytest
from loguru import logger

from daemonset_job.api import names
from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, PODS
from job_controller.metrics import Metrics
from tests.contract.controller_cluster import DAEMON_SET, FakeCluster, running, until, virtual_clock

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

# Of other tests: how the process leads and ends.
NOT_OF_A_RUN = {"became leader", "stopped leading", "started", "stopped"}


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a", "b")


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines at INFO and above: level, message and fields, without the identifiers."""
    found: list[str] = []

    def keep(message):
        record = message.record
        if record["message"] in NOT_OF_A_RUN:
            return
        extra = {key: text for key, text in record["extra"].items() if key != "reconcile_id"}
        assert (extra.pop("namespace"), extra.pop("job")) == ("default", "sample")
        fields = "; ".join(f"{key}={text}" for key, text in extra.items())
        found.append(f"{record['level'].name} {record['message']}: {fields}")

    number = logger.add(keep, level="INFO", format="{message}")
    yield found
    logger.remove(number)


ACTIVE = "condition=Progressing; status=True; reason=NodesActive; detail=0 of 2 nodes completed"
SUCCEEDED = (
    "condition=Complete; status=True; reason=AllNodesCompleted; detail=2 of 2 nodes completed"
)
GATED = (
    "INFO changed the DaemonSet: daemon_set=sample-daemonset-job; "
    "why=from now on new pods wait until they may start"
)


def started(report):
    return [
        (
            "INFO the run starts: condition=Progressing; status=True; reason=Starting; "
            "detail=creating the DaemonSet"
        ),
        f"INFO created the JobReport: report={report}; why=the run starts",
        "INFO created the DaemonSet: daemon_set=sample-daemonset-job; why=the run starts",
        GATED,
        f"INFO the run progresses: {ACTIVE}",
    ]


async def test_a_run_that_succeeds(server, cluster, lines):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        await asyncio.sleep(30)
        report = cluster.status()["report"]
        for node in ("a", "b"):
            cluster.complete(node)
            await asyncio.sleep(30)
        await until(lambda: cluster.condition("Complete").get("status") == "True")
        server.remove(JOBS, "sample")
        await asyncio.sleep(600)
    assert lines == [*started(report), f"INFO the run succeeded: {SUCCEEDED}"]


async def test_a_run_that_fails_and_whose_retry_succeeds(server, cluster, lines):
    metrics = Metrics()
    async with running(server, metrics=metrics):
        cluster.apply(backoffLimit=0, failurePolicy={"pods": "Keep"})
        await until(cluster.is_settled)
        await asyncio.sleep(30)
        cluster.complete("a")
        await asyncio.sleep(30)
        pod = cluster.pod("b")["metadata"]["name"]
        begin = started(cluster.status()["report"])
        cluster.fail("b")
        await until(lambda: cluster.condition("Failed").get("status") == "True")
        await asyncio.sleep(600)
        retry = {"metadata": {"annotations": {names.ANNOTATION_RETRY: "1"}}}
        server.patch(JOBS, "sample", retry)
        await until(lambda: server.get(PODS, pod)["metadata"].get("deletionTimestamp"))
        server.remove(PODS, pod)
        await until(lambda: cluster.condition("Failed").get("status") == "False")
        await asyncio.sleep(30)
        cluster.complete("b")
        await until(lambda: cluster.condition("Complete").get("status") == "True")
    exit_ = "exit 1 at the first attempt"
    assert lines == [
        *begin,
        (
            "WARNING the run is blocked: condition=Progressing; status=False; reason=TaskFailing; "
            f"detail=the task is failing on 1 of 2 nodes (b): {exit_}"
        ),
        f"WARNING nodes failed: reason=BackoffLimitExceeded; count=1; nodes=b; detail={exit_}",
        (
            "WARNING the run failed: condition=Failed; status=True; reason=MaxFailedNodesExceeded; "
            f"detail=1 of 2 nodes failed: b {exit_}"
        ),
        f"INFO deleted pods: count=1; pods={pod}; nodes=b; why=its node is tried again",
        (
            "INFO the failed run is retried: condition=Failed; status=False; reason=Retrying; "
            "detail=retrying failed nodes"
        ),
        f"INFO the run progresses: {ACTIVE.replace('0 of', '1 of')}",
        "INFO removed the scheduling gates of pods: count=1; nodes=b; why=their nodes may start",
        f"INFO the run succeeded: {SUCCEEDED}",
    ]

    def value(name, **labels):
        return metrics.registry.get_sample_value(f"dsj_{name}_total", labels)

    assert value("nodes_failed", reason="BackoffLimitExceeded") == 1
    assert value("runs_ended", phase="Failed", reason="MaxFailedNodesExceeded") == 1
    assert value("runs_ended", phase="Succeeded", reason="AllNodesCompleted") == 1


async def test_the_daemon_set_of_a_failed_run(server, cluster, lines):
    async with running(server):
        cluster.apply(backoffLimit=0, failurePolicy={"pods": "Delete"})
        await until(cluster.is_settled)
        cluster.fail("b")
        await until(lambda: cluster.condition("Failed").get("status") == "True")
        await asyncio.sleep(600)
    assert lines[-1] == (
        "INFO deleted the DaemonSet: daemon_set=sample-daemonset-job; "
        "why=the run failed, and failurePolicy.pods ends all of its tasks"
    )


async def test_a_blocked_run_has_one_warning_and_then_a_line_that_it_goes_on(
    server, cluster, lines
):
    cluster.failed_create_message = "pods is forbidden: exceeded quota: tight\n" + "x" * 5000
    async with running(server):
        cluster.apply()
        await until(lambda: cluster.condition("Progressing").get("reason") == "FailedCreate")
        await asyncio.sleep(600)
        cluster.allow_pods()
        await until(cluster.is_settled)
        await asyncio.sleep(60)
    *_, blocked, gated, goes_on = lines
    assert len(lines) == 7
    assert blocked.startswith(
        "WARNING the run is blocked: condition=Progressing; status=False; reason=FailedCreate; "
        "detail=2 of 2 pods cannot be created: pods is forbidden: exceeded quota: tight xxx"
    )
    assert "\n" not in blocked
    assert len(blocked) < 1500
    assert gated == GATED
    assert goes_on.startswith(f"INFO the run progresses: {ACTIVE}")


async def test_why_a_daemon_set_is_changed_or_created_again(server, cluster, lines):
    async with running(server):
        cluster.apply()
        await until(cluster.is_settled)
        await asyncio.sleep(30)
        del lines[:]
        cluster.apply(nodes={"include": ["a"]})
        await asyncio.sleep(30)
        body = {"spec": {"template": {"spec": {"hostPID": True}}}}
        server.patch(DAEMON_SETS, DAEMON_SET, body)
        await asyncio.sleep(30)
        server.remove(DAEMON_SETS, DAEMON_SET)
        await asyncio.sleep(30)
    causes = [line.partition("why=")[2] for line in lines if " the DaemonSet: daemon_set=" in line]
    assert causes == [
        "spec.nodes was changed",
        "it was deleted during the run",
    ]


async def test_reports_beyond_the_history_are_deleted_with_a_line(server, cluster, lines):
    async with running(server, history_limit=0):
        cluster.apply()
        await until(cluster.is_settled)
        report = cluster.status()["report"]
        await asyncio.sleep(30)
        del lines[:]
        server.remove(JOBS, "sample")
        await asyncio.sleep(60)
    assert lines[-1] == (
        f"INFO deleted the JobReport: report={report}; "
        "why=more runs, or older ones, than the history keeps"
    )


async def test_a_run_whose_job_is_deleted_before_its_end(server, cluster, lines):
    metrics = Metrics()
    async with running(server, metrics=metrics):
        cluster.apply()
        await until(cluster.is_settled)
        report = cluster.status()["report"]
        await asyncio.sleep(30)
        del lines[:]
        server.remove(JOBS, "sample")
        await asyncio.sleep(60)
    assert lines == [
        (
            f"INFO closed the JobReport: report={report}; "
            "why=the Job was deleted before the run had ended"
        )
    ]
    labels = {"phase": "Cancelled", "reason": "JobDeleted"}
    assert metrics.registry.get_sample_value("dsj_runs_ended_total", labels) == 1
