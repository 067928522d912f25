"""What the ledger says of containers that end, with a token or without one."""

import asyncio
from datetime import UTC, datetime

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, NODES, PODS
from terminator.config import Config
from tests.contract.terminator.cluster import eventually, running, terminated

pytestmark = pytest.mark.looptime(end=2000)


async def test_printed_and_then_exited_is_completed(cluster):
    run = cluster.add_job(nodes=("a",))
    run.log("a").write("done")
    run.set_container("a", terminated(1))
    cluster.start()
    await eventually(lambda: run.completed() == {"a"})


async def test_the_log_of_the_container_before_counts(cluster):
    run = cluster.add_job(nodes=("a",))
    run.log("a", previous=True).write("done")
    run.log("a").write("starting over")
    run.set_container("a", running(restartCount=1))
    cluster.start()
    await eventually(lambda: run.completed() == {"a"})


async def test_a_token_without_newline(cluster):
    run = cluster.add_job(nodes=("a",))
    run.log("a").write_raw(b"done")
    cluster.start()
    await asyncio.sleep(0.2)
    run.log("a").end()
    run.set_container("a", terminated(0))
    await eventually(lambda: run.completed() == {"a"})


async def test_the_last_lines_of_a_failure_are_kept(cluster):
    run = cluster.add_job(nodes=("a",), failureLogLines=2)
    cluster.start()
    run.log("a").write("starting", "copying", "\x1b[31mdisk full\x1b[0m")
    run.log("a").end()
    run.set_container("a", terminated(2))
    entry = await eventually(lambda: run.evidence().get("a"))
    assert entry["lastLines"] == ["copying", "disk full"]
    assert "completedAt" not in entry
    run.log("a", previous=True).write("copying", "disk full")
    run.server.logs.pop(("default", run.pod("a"), "job-container", False))
    run.log("a").write("once more", "done")
    run.set_container("a", running(restartCount=1))
    await eventually(lambda: run.completed() == {"a"})
    assert "lastLines" not in run.evidence()["a"]


async def test_an_error_of_the_kubelet_is_no_line_of_the_log(cluster):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    run.log("a").write("working", "giving up")
    run.log("a").unavailable = 3
    run.log("a").end()
    run.set_container("a", terminated(2))
    entry = await eventually(lambda: run.evidence().get("a"))
    assert entry["lastLines"] == ["working", "giving up"]


async def test_a_log_that_is_gone_is_given_up(cluster):
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    run.log("a").unavailable = 1000
    run.log("a").end()
    run.set_container("a", terminated(2))
    await asyncio.sleep(60)
    assert run.log("a").unavailable > 980
    assert not run.evidence()


def fail(run, node, start, *lines):
    """Let the task on a node end without a token, for the `start`-th time, from 1."""
    run.server.logs.pop(("default", run.pod(node), "job-container", False), None)
    run.log(node).write(*lines, at=datetime(2030, 1, 1, 0, 0, 9, tzinfo=UTC))
    run.log(node).end()
    run.set_container(node, terminated(1, restarts=start - 1))


def start_again(run, node, restarts):
    """Let the kubelet start a task again that has ended without a word."""
    run.log(node, previous=True).end()
    run.set_container(node, running(restartCount=restarts))


async def test_each_end_without_a_token_is_entered_with_its_number(cluster):
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start()
    for start in (1, 2):
        fail(run, "a", start, "no")
        await eventually(
            lambda start=start: run.evidence().get("a", {}).get("lastReadAttempt") == start
        )
    # Only its successor shows that this one was there.
    run.log("b", previous=True).write("no")
    run.set_container("b", running(restartCount=3))
    await eventually(lambda: run.evidence().get("b", {}).get("lastReadAttempt") == 3)
    assert run.evidence()["b"]["lastLines"] == ["no"]
    run.log("b").write("done")
    await eventually(lambda: run.completed() == {"b"})
    assert run.evidence()["b"]["lastReadAttempt"] == 3  # the one before the token


async def test_the_last_allowed_failure_says_why_and_no_later_attempt(cluster):
    """The kubelet starts the task again before the controller has recorded the failure."""
    run = cluster.add_job(nodes=("a", "b"), backoffLimit=1)
    cluster.start()
    for start, line in enumerate(("disk full", "disk still full", "not started again"), 1):
        fail(run, "a", start, line)
        await eventually(
            lambda start=start: run.evidence().get("a", {}).get("lastReadAttempt") == start
        )
    assert run.evidence()["a"]["lastLines"] == ["disk still full"]
    # The lines of a later attempt are better than none.
    run.log("b", previous=True).end()
    fail(run, "b", 3, "not started again")
    await eventually(lambda: run.evidence().get("b", {}).get("lastReadAttempt") == 3)
    assert run.evidence()["b"]["lastLines"] == ["not started again"]


async def test_a_failure_that_said_nothing_has_no_lines_of_a_later_attempt(cluster):
    run = cluster.add_job(nodes=("a",), backoffLimit=0)
    cluster.start()
    for start, lines in enumerate(((), ("not started again",)), 1):
        fail(run, "a", start, *lines)
        await eventually(
            lambda start=start: run.evidence().get("a", {}).get("lastReadAttempt") == start
        )
    assert "lastLines" not in run.evidence()["a"]


async def test_a_line_without_newline_of_the_next_start_is_none_of_the_one_that_ended(cluster):
    """It was printed after the end that the status has: the log is that of another attempt."""
    run = cluster.add_job(nodes=("a",))
    cluster.start()
    run.log("a").write_raw(b"once more", at=datetime(2030, 1, 1, 0, 5, tzinfo=UTC))
    run.set_container("a", terminated(1))
    await asyncio.sleep(5)
    assert "lastLines" not in run.evidence().get("a", {})


async def test_ignored_failures_are_not_counted_among_the_allowed_ones(cluster):
    rules = {"rules": [{"exitCodes": [1], "action": "Ignore"}]}
    run = cluster.add_job(nodes=("a",), backoffLimit=0, failurePolicy=rules)
    cluster.start()
    for start, line in enumerate(("busy", "busy again"), 1):
        fail(run, "a", start, line)
        await eventually(
            lambda start=start: run.evidence().get("a", {}).get("lastReadAttempt") == start
        )
    assert run.evidence()["a"]["lastLines"] == ["busy again"]


async def test_empty_log_counts_as_the_ended_attempt_until_a_token_follows(
    cluster,
):
    """It may be the log of the next start, and the token in the one before."""
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start()
    for node in run.nodes:
        fail(run, node, 1)
    await eventually(lambda: {e.get("lastReadAttempt") for e in run.evidence().values()} == {1})
    assert run.evidence().keys() == {"a", "b"}
    assert "lastLines" not in run.evidence()["a"]
    start_again(run, "a", 1)
    run.log("b", previous=True).write("done")
    run.set_container("b", running(restartCount=1))
    await eventually(lambda: run.completed() == {"b"})


async def test_restarts_of_a_failed_node_are_not_recorded(cluster, server):
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start()
    for node in run.nodes:
        fail(run, node, 1, *(["first"] if node == "a" else []))
        if node == "b":
            start_again(run, node, 1)
        await eventually(lambda node=node: run.evidence().get(node, {}).get("lastReadAttempt") == 1)
    states = {
        node: {"uid": server.get(NODES, node)["metadata"]["uid"], "state": "Failed"}
        for node in run.nodes
    }
    report = run.reports()[0]["metadata"]["name"]
    server.patch(JOB_REPORTS, report, {"status": {"nodeStates": states}})
    await asyncio.sleep(5)
    before = server.count("PATCH", "/jobreports/")
    for start in range(2, 6):
        for node in run.nodes:
            fail(run, node, start, f"start {start}")
        await asyncio.sleep(30)
    assert run.evidence()["a"]["lastLines"] == ["first"]
    assert run.evidence()["b"]["lastLines"] == ["start 2"]  # the first that it wrote
    assert server.count("PATCH", "/jobreports/") == before + 1
    run.server.logs.pop(("default", run.pod("a"), "job-container", False))
    run.log("a").write("done")
    run.set_container("a", running(restartCount=5))
    await eventually(lambda: run.completed() == {"a"})


async def test_a_failure_token_fails_the_node_at_once(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"failureToken": "broken"})
    cluster.start()
    await asyncio.sleep(1)
    run.log("a").write("trying", "broken", "done")
    entry = await eventually(lambda: run.evidence().get("a"))
    assert entry["failedAt"]
    assert entry["lastLines"][:2] == ["trying", "broken"]
    before = server.count("GET", "/log")
    await asyncio.sleep(60)
    assert server.count("GET", "/log") == before
    assert run.completed() == set()


async def test_results_that_the_job_asks_for_are_kept(cluster):
    run = cluster.add_job(nodes=("a",), results=[{"name": "ip", "label": "x/ip"}])
    cluster.start()
    run.log("a").write("dsjob:result ip=10.0.0.1", "dsjob:result secret=1", "done")
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}


def _record_failure(run, server):
    """Have the controller's record say that node a has failed."""
    states = {"a": {"uid": server.get(NODES, "a")["metadata"]["uid"], "state": "Failed"}}
    (report,) = [raw["metadata"]["name"] for raw in run.reports()]
    server.patch(JOB_REPORTS, report, {"status": {"nodeStates": states}})
    totals = {"desired": len(run.nodes), "failed": 1}
    server.patch(JOBS, run.name, {"status": {"nodes": totals}})


def _fail_before_start(run, server):
    """Have the record say that node a has failed, whose task container has no status yet."""
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    _record_failure(run, server)


@pytest.mark.parametrize(
    ("mode", "kind"), [("Log", "containerStatuses"), ("Exit", "initContainerStatuses")]
)
async def test_the_last_lines_of_a_task_that_hangs_are_recorded_once_its_node_has_failed(
    cluster, server, mode, kind
):
    """Its time is over, its pod is about to go, and what it waits for was its last line."""
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": mode}, nodeDeadlineSeconds=5)
    cluster.start()
    for node in run.nodes:
        run.set_container(node, running(), kind)
        if mode == "Exit":
            server.patch(PODS, run.pod(node), {"status": {"containerStatuses": []}})
        run.log(node).write("waiting for the lock")
    await asyncio.sleep(20)
    assert run.evidence() == {}
    _record_failure(run, server)
    await eventually(lambda: run.evidence().keys() == {"a"}, 2)
    assert run.evidence()["a"]["lastLines"] == ["waiting for the lock"]
    reads = server.count("GET", "/log")
    await asyncio.sleep(60)
    assert run.evidence()["a"]["lastLines"] == ["waiting for the lock"]
    if mode == "Exit":
        assert server.count("GET", "/log") == reads


@pytest.mark.parametrize("streams", [256, 0])
@pytest.mark.parametrize(
    ("mode", "kind"), [("Log", "containerStatuses"), ("Exit", "initContainerStatuses")]
)
async def test_the_lines_of_a_failed_task_that_has_just_started_are_recorded(
    cluster, server, mode, kind, streams
):
    """Its node failed by its deadline before its pod started, and its log is empty at first."""
    run = cluster.add_job(nodes=("a",), completion={"mode": mode}, nodeDeadlineSeconds=5)
    _fail_before_start(run, server)
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await asyncio.sleep(1)
    run.set_container("a", running(), kind)
    await asyncio.sleep(4)
    assert run.evidence() == {}
    run.log("a").write("waiting for the lock")
    await eventually(lambda: run.evidence().keys() == {"a"}, 2 if streams and mode == "Log" else 8)
    assert run.evidence()["a"]["lastLines"] == ["waiting for the lock"]


@pytest.mark.parametrize("streams", [256, 0])
@pytest.mark.parametrize(
    ("mode", "kind"), [("Log", "containerStatuses"), ("Exit", "initContainerStatuses")]
)
async def test_blank_lines_do_not_end_the_search_for_the_last_lines_of_a_failed_task(
    cluster, server, mode, kind, streams
):
    run = cluster.add_job(nodes=("a",), completion={"mode": mode}, nodeDeadlineSeconds=5)
    _fail_before_start(run, server)
    run.log("a").write("", " ")
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    run.set_container("a", running(), kind)
    await asyncio.sleep(4)
    assert run.evidence() == {}
    run.log("a").write("waiting for the lock")
    await eventually(lambda: run.evidence().keys() == {"a"}, 8)
    assert run.evidence()["a"]["lastLines"] == ["waiting for the lock"]


async def test_a_failed_task_that_prints_nothing_is_read_ever_less_often(cluster, server):
    """With `pods: Keep` thousands of them may be at work until the Job is deleted."""
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, nodeDeadlineSeconds=5)
    _fail_before_start(run, server)
    cluster.start(Config(resync_period=1000.0))
    run.set_container("a", running(), "initContainerStatuses")
    await asyncio.sleep(300)
    before = server.count("GET", "/log")
    await asyncio.sleep(300)
    assert 0 < server.count("GET", "/log") - before <= 6


async def test_a_failed_task_at_work_is_not_read_for_lines_that_are_not_kept(cluster, server):
    run = cluster.add_job(
        nodes=("a",), completion={"mode": "Exit"}, nodeDeadlineSeconds=5, failureLogLines=0
    )
    _fail_before_start(run, server)
    cluster.start()
    run.set_container("a", running(), "initContainerStatuses")
    await asyncio.sleep(60)
    assert server.count("GET", "/log") == 0


async def test_the_search_for_the_last_lines_of_a_failed_task_does_not_delay_the_end_of_its_job(
    cluster, server
):
    run = cluster.add_job(
        nodes=("a",),
        completion={"mode": "Exit"},
        results=[{"name": "ip"}],
        ttlSecondsAfterFinished=30,
    )
    cluster.start()
    run.agree("Failed", completionTime="2030-01-01T00:00:00Z")
    _fail_before_start(run, server)
    run.set_container("a", running(), "initContainerStatuses")
    await asyncio.sleep(25)
    assert run.exists
    await eventually(lambda: not run.exists, 8)
