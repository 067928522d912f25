"""From a log line to a deleted Job, and what must not lead there."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, NODES, PODS
from terminator.config import Config
from tests.contract.terminator.cluster import eventually

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
