"""From a log line to a deleted Job, and what must not lead there."""

import asyncio
from datetime import UTC, datetime

import pytest

from daemonset_job.api import names
from daemonset_job.api.job import nodes_hash
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, LEASES, NODES, PODS
from terminator.config import LEASE_NAME, Config, Options
from tests.contract.terminator.cluster import eventually, running, terminated

pytestmark = pytest.mark.looptime(end=2000)


async def test_a_job_is_deleted_once_both_counts_agree(cluster, server):
    run = cluster.add_job()
    cluster.start()
    for node in run.nodes:
        run.log(node).write("hello", "done")
    await eventually(lambda: run.completed() == set(run.nodes))
    assert run.exists
    entry = run.evidence()["a"]
    pod = server.get(PODS, run.pod("a"))
    assert entry["nodeUID"] == server.get(NODES, "a")["metadata"]["uid"]
    assert (entry["pod"], entry["podUID"]) == (run.pod("a"), pod["metadata"]["uid"])
    run.agree()
    version = server.get(JOBS, run.name)["metadata"]["resourceVersion"]
    await eventually(lambda: not run.exists)
    (request,) = [request for request in server.requests if request.method == "DELETE"]
    assert request.body["preconditions"] == {"uid": run.uid, "resourceVersion": version}
    assert request.body["propagationPolicy"] == "Background"


async def test_the_controllers_word_alone_deletes_nothing(cluster):
    run = cluster.add_job()
    cluster.start()
    run.agree()
    run.print_tokens(*run.nodes[:2])
    await asyncio.sleep(60)
    assert run.completed() == set(run.nodes[:2])
    assert run.exists
    run.log("c").write("done")
    await eventually(lambda: not run.exists)


async def test_the_last_node_is_waited_for(cluster):
    run = cluster.add_job()
    cluster.start()
    run.agree()
    run.print_tokens(*run.nodes[:2])
    await asyncio.sleep(10)
    assert run.exists
    run.log("c").write("done")
    await eventually(lambda: not run.exists, 1.0)


async def test_lines_that_only_resemble_the_token(cluster):
    run = cluster.add_job()
    cluster.start()
    for node in run.nodes:
        run.log(node).write("not done yet", "done!", "DONE", "")
    await asyncio.sleep(30)
    assert run.evidence() == {}


async def test_a_forged_pod_counts_for_nothing(cluster, server):
    run = cluster.add_job()
    cluster.start()
    run.agree()
    for node in ("a", "b"):
        run.log(node).write("done")
    for owner in ("", "forged", run.uid):
        name = f"forged-{owner or 'none'}"
        run.add_pod("c", name, owner)
        server.log(name).write("done")
    await asyncio.sleep(30)
    assert run.completed() == {"a", "b"}
    assert run.exists
    assert server.count("GET", "/pods/forged.*/log") == 0


async def test_a_daemon_set_that_the_job_does_not_own_counts_for_nothing(cluster, server):
    run = cluster.add_job()
    stranger = {"metadata": {"ownerReferences": [{"uid": "another", "controller": True}]}}
    server.patch(DAEMON_SETS, f"{run.name}-daemonset-job", stranger)
    cluster.start()
    run.agree()
    run.print_tokens()
    await asyncio.sleep(30)
    assert run.evidence() == {}
    assert run.exists


async def test_a_node_that_joins_late_is_waited_for(cluster, server):
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == {"a", "b"})
    cluster.add_node("late")
    run.choose("a", "b", "late")
    run.agree(unknown={"late"})
    await asyncio.sleep(5)
    assert run.exists
    run.add_pod("late")
    await asyncio.sleep(5)
    assert run.exists
    run.log("late").write("done")
    await asyncio.sleep(5)
    assert run.exists  # the report has yet to say so
    run.agree()
    await eventually(lambda: not run.exists)


async def test_a_label_that_arrives_last_still_ends_the_run(cluster, server):
    run = cluster.add_job()
    zone = {"metadata": {"labels": {"zone": "a"}}}
    for node in ("a", "b"):
        server.patch(NODES, node, zone, "")
    chosen = {"spec": {"template": {"spec": {"affinity": None, "nodeSelector": {"zone": "a"}}}}}
    server.patch(DAEMON_SETS, run.daemon_set, chosen)
    cluster.start()
    await eventually(lambda: server.open_watches(NODES))
    server.silence_watches(NODES)
    server.patch(NODES, "c", zone, "")
    run.agree()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    await asyncio.sleep(10)
    assert run.exists  # as far as is known, the pod of c is about to be deleted
    await eventually(lambda: not run.exists, 120.0)


async def test_no_nodes_is_not_complete(cluster):
    run = cluster.add_job(nodes=())
    cluster.start()
    run.agree()
    await asyncio.sleep(30)
    assert run.exists


async def test_a_recreated_node_does_the_work_again(cluster, server):
    run = cluster.add_job()
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    await asyncio.sleep(5)
    server.remove(NODES, "c")
    server.put(NODES, {"metadata": {"name": "c"}})
    new_uid = server.get(NODES, "c")["metadata"]["uid"]
    run.agree()
    await asyncio.sleep(20)
    # The pod is older than the node: its log is that of another machine.
    assert run.exists
    assert run.evidence()["c"]["nodeUID"] != new_uid
    server.remove(PODS, run.pod("c"))
    run.add_pod("c", "sample-c-2")
    server.log("sample-c-2").write("done")
    await eventually(lambda: not run.exists)
    assert run.evidence()["c"]["nodeUID"] == new_uid


async def test_a_completed_node_stays_completed_without_its_pod(cluster, server):
    run = cluster.add_job()
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    server.remove(PODS, run.pod("c"))
    run.add_pod("c", "successor")
    run.agree()
    await eventually(lambda: not run.exists)


@pytest.mark.parametrize("grace", [True, False], ids=["graceful", "forced"])
async def test_what_a_pod_said_is_entered_before_its_successor_starts(cluster, server, grace):
    run = cluster.add_job()
    cluster.start(Config(flush_interval=60.0))
    run.log("a").write("done")
    await asyncio.sleep(10)
    assert not run.completed()
    if grace:
        server.patch(PODS, run.pod("a"), {"metadata": {"finalizers": ["example.com/not-yet"]}})
    await cluster.client.delete(PODS, run.pod("a"), "default")
    await eventually(lambda: run.completed() == {"a"}, 1.0)


async def test_two_jobs_of_one_name_and_many_at_once(cluster):
    runs = [cluster.add_job("same", namespace=ns) for ns in ("one", "two")]
    runs += [cluster.add_job(f"job-{n}", namespace="three") for n in range(5)]
    cluster.start()
    for run in runs[1:]:
        run.print_tokens()
        run.agree()
    await eventually(lambda: not any(run.exists for run in runs[1:]))
    assert runs[0].exists
    assert runs[0].evidence() == {}


async def test_a_job_of_the_same_name_that_follows_is_another_run(cluster, server):
    first = cluster.add_job()
    cluster.start()
    for node in first.nodes:
        first.log(node).write("done")
    first.agree()
    await eventually(lambda: not first.exists)
    server.collect_garbage()
    server.logs.clear()
    second = cluster.add_job()
    second.agree()
    await asyncio.sleep(30)
    assert second.exists
    assert second.evidence() == {}
    for node in second.nodes:
        second.log(node).write("done")
    await eventually(lambda: not second.exists)
    assert len(server.list(JOB_REPORTS)) == 2


async def test_job_changed_during_the_count_is_not_deleted(cluster, server):
    run = cluster.add_job(nodes=("a", "b"))
    terminator, _ = cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree(completionTime="2030-01-01T00:00:00Z")
    server.silence_watches(JOBS)
    server.patch(JOBS, run.name, {"spec": {"nodes": {"exclude": ["x"]}}})
    await eventually(lambda: server.count("DELETE", "/jobs/") == 1)
    await asyncio.sleep(5)
    # It is not asked for again and again while nothing is heard of what has changed.
    tries = server.count("DELETE", "/jobs/")
    await asyncio.sleep(30)
    assert server.count("DELETE", "/jobs/") == tries
    assert cluster.sample(terminator, "job_deletions_total", result="changed") == tries
    # Once it is heard of, the newest spec has to be observed and counted.
    await asyncio.sleep(120)
    assert run.exists
    annotation = {names.ANNOTATION_NODES_HASH: nodes_hash({"nodes": {"exclude": ["x"]}})}
    server.patch(DAEMON_SETS, run.daemon_set, {"metadata": {"annotations": annotation}})
    run.agree(observedGeneration=2)
    await eventually(lambda: not run.exists)
    assert server.count("DELETE", "/jobs/") == tries + 1


async def test_late_status_write_delays_a_deletion_until_its_event_only(cluster, server):
    run = cluster.add_job()
    terminator, _ = cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    server.delay_next("DELETE", "/jobs/", seconds=0.5)
    run.agree()
    await eventually(lambda: server.count("DELETE", "/jobs/") == 1)
    # While the request is under way, so that its event is here before the answer.
    server.patch(JOBS, run.name, {"status": {"phase": "Succeeded"}})
    await eventually(lambda: not run.exists, 2.0)
    assert cluster.sample(terminator, "job_deletions_total", result="changed") == 1
    assert cluster.sample(terminator, "job_deletions_total", result="done") == 1


async def test_a_job_replaced_at_the_last_moment_is_not_deleted(cluster, server):
    run = cluster.add_job()
    terminator, _ = cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree()
    server.silence_watches(JOBS)
    server.remove(JOBS, run.name)
    server.put(JOBS, {"metadata": {"name": run.name, "namespace": "default"}, "spec": {}})
    await eventually(lambda: server.count("DELETE", "/jobs/"))
    await asyncio.sleep(120)
    assert run.exists
    assert cluster.sample(terminator, "job_deletions_total", result="changed") >= 1
    assert cluster.sample(terminator, "job_deletions_total", result="done") == 0


async def test_own_tokens(cluster):
    run = cluster.add_job(completion={"token": r"finished \d+ files", "match": "Regex"})
    cluster.start()
    for node in run.nodes:
        run.log(node).write("done", "finished 12 files")
    await eventually(lambda: run.completed() == set(run.nodes))


async def test_a_token_that_cannot_be_used_stops_no_other_job(cluster):
    bad = cluster.add_job("bad", completion={"token": "(", "match": "Regex"})
    good = cluster.add_job("good")
    cluster.start()
    for run in (bad, good):
        for node in run.nodes:
            run.log(node).write("(", "done")
    await eventually(lambda: good.completed() == set(good.nodes))
    assert bad.evidence() == {}


# --- containers that end ----------------------------------------------------------------


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
    assert "lastReadAttempt" not in run.evidence()["b"]


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


# --- mode Exit --------------------------------------------------------------------------


async def test_exit_code_0_completes_where_the_job_says_so(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": "Exit"})
    cluster.start()
    for node in run.nodes:
        run.set_container(node, running(), "initContainerStatuses")
        server.patch(PODS, run.pod(node), {"status": {"containerStatuses": []}})
        run.log(node).write("done")
    await asyncio.sleep(20)
    assert run.evidence() == {}
    assert server.count("GET", "/log") == 0
    run.set_container("a", terminated(0), "initContainerStatuses")
    run.set_container("b", terminated(3), "initContainerStatuses")
    await eventually(lambda: run.evidence().keys() == {"a", "b"})
    assert run.evidence()["a"]["completedAt"] == "2030-01-01T00:00:09Z"
    assert run.evidence()["b"]["lastLines"] == ["done"]
    assert run.completed() == {"a"}


async def test_task_stopped_by_a_drain_has_not_completed(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": "Exit"})
    cluster.start()
    for node in run.nodes:
        run.set_container(node, running(), "initContainerStatuses")
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        body = {
            "metadata": {"deletionTimestamp": "2030-01-01T00:00:30Z"},
            "status": {"conditions": [target], "containerStatuses": []},
        }
        server.patch(PODS, run.pod(node), body)
    pause = {"name": names.PAUSE_CONTAINER_NAME, "state": {"running": {}}}
    server.patch(PODS, run.pod("b"), {"status": {"containerStatuses": [pause]}})
    for node in run.nodes:
        run.set_container(node, terminated(0), "initContainerStatuses")
    await asyncio.sleep(20)
    assert run.completed() == {"b"}


async def test_results_of_mode_exit_come_from_the_log(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=[{"name": "ip"}])
    cluster.start()
    run.log("a").write("dsjob:result ip=10.0.0.1")
    run.set_container("a", terminated(0))
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})
    await asyncio.sleep(60)
    assert server.count("GET", "/log") <= 2
    assert server.count("PATCH", "/jobreports/") <= 2


@pytest.mark.parametrize(("times", "results"), [(4, {"ip": "10.0.0.1"}), (10_000, {})])
async def test_complete_job_waits_briefly_for_unread_results(cluster, server, times, results):
    """The exit code completes the node, however long its log takes to be read."""
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=[{"name": "ip"}])
    server.fail_next("GET", "/log", 500, times=times)
    cluster.start()
    run.log("a").write("dsjob:result ip=10.0.0.1")
    run.set_container("a", terminated(0))
    await eventually(lambda: run.completed() == {"a"})
    run.agree()
    await asyncio.sleep(1)
    assert run.exists
    await eventually(lambda: not run.exists, 17)
    assert run.evidence()["a"].get("results", {}) == results


async def test_second_pod_of_a_completed_node_keeps_its_results(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": "Exit"}, results=[{"name": "ip"}])
    cluster.start()
    run.log("a").write("dsjob:result ip=10.0.0.1")
    run.set_container("a", terminated(0))
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})
    before = run.evidence()["a"]
    run.add_pod("a", name="another")
    server.log("another", run.namespace).write("dsjob:result ip=10.9.9.9")
    ended = {"name": names.CONTAINER_NAME, **terminated(0)}
    server.patch(PODS, "another", {"status": {"containerStatuses": [ended]}}, run.namespace)
    await asyncio.sleep(20)
    assert run.evidence()["a"] == before


# --- the end ----------------------------------------------------------------------------


async def test_a_completed_job_lives_on_for_its_time(cluster):
    run = cluster.add_job(ttlSecondsAfterFinished=60)
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree(completionTime="2030-01-01T00:00:00Z")
    await asyncio.sleep(55)
    assert run.exists
    await asyncio.sleep(6)
    assert not run.exists


async def test_a_failed_job_stays_unless_it_says_otherwise(cluster):
    stays = cluster.add_job("stays")
    goes = cluster.add_job("goes", ttlSecondsAfterFinished=30)
    cluster.start()
    for run in (stays, goes):
        run.agree("Failed", completionTime="2030-01-01T00:00:00Z")
    await asyncio.sleep(25)
    assert goes.exists
    await eventually(lambda: not goes.exists)
    await asyncio.sleep(60)
    assert stays.exists


async def test_only_the_holder_of_the_lease_acts(cluster, server):
    options = [Options(lease_namespace="system", identity=f"pod-{number}") for number in (1, 2)]
    first, first_task = cluster.start(options=options[0])
    await eventually(lambda: server.exists(LEASES, LEASE_NAME, "system"))
    run = cluster.add_job(nodes=("a",))
    second, _ = cluster.start(options=options[1])
    await eventually(lambda: second.is_ready)
    await asyncio.sleep(20)
    assert cluster.sample(first, "is_leader", component="terminator") == 1
    assert cluster.sample(second, "is_leader", component="terminator") == 0
    assert cluster.sample(second, "log_targets") == 0
    await cluster.stop(first_task)
    run.log("a").write("done")
    run.agree()
    await eventually(lambda: not run.exists, 10.0)
    assert cluster.sample(second, "is_leader", component="terminator") == 1


async def test_other_namespaces_are_none_of_its_business(cluster, server):
    ours, theirs = cluster.add_job(namespace="ours"), cluster.add_job(namespace="theirs")
    terminator, _ = cluster.start(Config(namespaces=("ours",)))
    for run in (ours, theirs):
        run.print_tokens()
    await eventually(lambda: ours.completed() == set(ours.nodes))
    assert server.count("GET", "/namespaces/theirs/") == 0
    terminator.apply(Config(namespaces=("theirs",)))
    await eventually(lambda: theirs.completed() == set(theirs.nodes))


async def test_another_word_applies_to_nodes_not_yet_completed(cluster):
    run = cluster.add_job(nodes=("a", "b"))
    terminator, _ = cluster.start()
    run.log("a").write("done")
    run.log("b").write("fini")
    await eventually(lambda: run.completed() == {"a"})
    terminator.apply(Config(termination_word="fini", max_streams=1, short_reads=1))
    await eventually(lambda: run.completed() == {"a", "b"})


async def test_nothing_is_asked_or_written_without_need(cluster, server):
    run = cluster.add_job(nodes=tuple(f"n{number:03}" for number in range(60)))
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    await asyncio.sleep(100)
    assert server.count("GET", "/log") == 60
    assert server.count("PATCH") <= 3
    asked = {
        request.path.partition("?")[0].split("/")[-1]
        for request in server.requests
        if request.method == "GET"
    }
    assert asked == {"jobs", "pods", "nodes", "daemonsets", "jobreports", "log"}
    assert all(
        "PartialObjectMetadata" in request.headers["Accept"]
        for request in server.requests
        if request.path.partition("?")[0].endswith("/nodes")
    )
    server.remove(JOBS, run.name)
    await asyncio.sleep(1)
