"""Mode Exit: the exit code completes a node, its log has the results."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.resource import JOB_REPORTS, NODES, PODS
from tests.contract.terminator.cluster import eventually, running, terminated

pytestmark = pytest.mark.looptime(end=2000)


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
        server.storage.delete(PODS, (run.namespace, run.pod(node)), {})
        body = {"status": {"conditions": [target], "containerStatuses": []}}
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


@pytest.mark.parametrize("failure_token", [None, "failed"])
async def test_a_log_that_is_read_before_its_exit_counts_is_read_again(
    cluster, server, failure_token
):
    """After a reboot the sandbox of before has ended; the pause container is the proof."""
    completion = {"mode": "Exit", "failureToken": failure_token}
    completion = {key: value for key, value in completion.items() if value}
    run = cluster.add_job(nodes=("a",), completion=completion, results=[{"name": "ip"}])
    cluster.start()
    run.log("a").write("dsjob:result ip=10.0.0.1")
    ready = {"type": "PodReadyToStartContainers", "status": "False"}
    pause = {"name": names.PAUSE_CONTAINER_NAME, "state": {"waiting": {}}}
    body = {"status": {"conditions": [ready], "containerStatuses": [pause]}}
    server.patch(PODS, run.pod("a"), body)
    run.set_container("a", terminated(0), "initContainerStatuses")
    await eventually(lambda: server.count("GET", "/log") == 1)
    await asyncio.sleep(20)
    assert run.completed() == set()
    pause = {"name": names.PAUSE_CONTAINER_NAME, "state": {"running": {}}}
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": [pause]}})
    await eventually(lambda: run.completed() == {"a"})
    await eventually(lambda: run.evidence()["a"].get("results") == {"ip": "10.0.0.1"})


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


@pytest.mark.parametrize("is_updated", [True, False])
async def test_a_complete_job_waits_briefly_for_the_results_in_the_list_of_nodes(
    cluster, server, is_updated
):
    """No program writes the list once the Job is gone."""
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=[{"name": "ip"}])
    server.fail_next("GET", "/log", 500, times=3)
    cluster.start()
    run.log("a").write("dsjob:result ip=10.0.0.1")
    run.set_container("a", terminated(0))
    await eventually(lambda: run.completed() == {"a"})
    (report,) = [raw["metadata"]["name"] for raw in run.reports()]
    row = {"name": "a", "state": "Completed"}
    server.patch(JOB_REPORTS, report, {"status": {"nodeList": [row]}})
    run.agree()
    await eventually(lambda: run.evidence()["a"].get("results"))
    await asyncio.sleep(2)
    assert run.exists
    if is_updated:
        row["results"] = {"ip": "10.0.0.1"}
        server.patch(JOB_REPORTS, report, {"status": {"nodeList": [row]}})
        await eventually(lambda: not run.exists, 1)
    await eventually(lambda: not run.exists, 17)


async def test_it_waits_again_for_the_results_of_a_node_that_joined_meanwhile(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=[{"name": "ip"}])
    server.fail_next("GET", f"/pods/{run.pod('a')}/log", 500, times=10_000)
    cluster.start()
    run.set_container("a", terminated(0))
    await eventually(lambda: run.completed() == {"a"})
    run.agree()
    await asyncio.sleep(2)
    run.agree(observedGeneration=0)  # the controller has seen that a node joins
    cluster.add_node("b")
    run.choose("a", "b")
    run.add_pod("b")
    run.log("b").write("dsjob:result ip=10.0.0.1")
    await asyncio.sleep(60)
    assert run.exists
    server.fail_next("GET", f"/pods/{run.pod('b')}/log", 500, times=4)
    run.set_container("b", terminated(0))
    await eventually(lambda: run.completed() == {"a", "b"})
    run.agree()
    await asyncio.sleep(1)
    assert run.exists
    await eventually(lambda: not run.exists, 17)
    assert run.evidence()["b"]["results"] == {"ip": "10.0.0.1"}


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


@pytest.mark.parametrize("is_seen_together", [False, True])
async def test_a_failure_token_outweighs_exit_code_0(cluster, server, is_seen_together):
    run = cluster.add_job(
        nodes=("a", "b"), completion={"mode": "Exit", "failureToken": "broken"}, backoffLimit=0
    )
    cluster.start()
    for node in run.nodes:
        run.set_container(node, running(), "initContainerStatuses")
        server.patch(PODS, run.pod(node), {"status": {"containerStatuses": []}})
    if is_seen_together:
        run.set_container("a", terminated(0), "initContainerStatuses")
    for line in ("trying", "broken"):
        run.log("a").write(line)
    await eventually(lambda: run.evidence().get("a", {}).get("failedAt"))
    for node in run.nodes:
        run.log(node).end()
        run.set_container(node, terminated(0), "initContainerStatuses")
    await eventually(lambda: run.completed() == {"b"})
    await asyncio.sleep(60)
    assert run.completed() == {"b"}
    assert run.evidence()["a"]["lastLines"] == ["trying", "broken"]


async def test_exit_code_0_counts_if_the_log_with_a_failure_token_is_gone(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit", "failureToken": "broken"})
    cluster.start()
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    server.logs.clear()
    run.set_container("a", terminated(0), "initContainerStatuses")
    await eventually(lambda: run.completed() == {"a"}, 60)


@pytest.mark.parametrize("mode", ["Log", "Exit"])
async def test_a_failure_token_that_was_recorded_for_the_former_node_fails_the_node(
    cluster, server, mode
):
    """The cache of nodes was late, and the kubelet has started the task again since."""
    completion = {"mode": mode, "failureToken": "broken"}
    run = cluster.add_job(nodes=("a", "b"), completion=completion, report=False)
    pods = {node: server.get(PODS, run.pod(node))["metadata"] for node in run.nodes}
    failed = {"failedAt": "2030-01-01T00:00:05Z", "lastLines": ["broken"]}
    entries = {
        "a": {"nodeUID": "former", "pod": pods["a"]["name"], "podUID": pods["a"]["uid"], **failed},
        "b": {"nodeUID": "former", "pod": "former", "podUID": "former-pod", **failed},
    }
    run.add_report(evidence=entries)
    cluster.start()
    for node in run.nodes:
        run.log(node).write("working", *(["done"] if mode == "Log" else []))
        run.log(node).end()
        server.patch(PODS, run.pod(node), {"status": {"containerStatuses": []}})
        run.set_container(node, terminated(0, restarts=1), "initContainerStatuses")
    await eventually(lambda: run.completed() == {"b"})
    await asyncio.sleep(60)
    assert run.completed() == {"b"}
    uid = server.get(NODES, "a")["metadata"]["uid"]
    assert run.evidence()["a"] == entries["a"] | {"nodeUID": uid}
