"""A Job is deleted if it is the one that was counted, and after its time to live."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.api.job import nodes_hash
from daemonset_job.api.job_spec import parse_spec
from daemonset_job.api.revision import find_revision
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, PODS
from tests.contract.terminator.cluster import eventually

pytestmark = pytest.mark.looptime(end=2000)


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
    # It is not asked for again and again while no watch shows what has changed.
    tries = server.count("DELETE", "/jobs/")
    await asyncio.sleep(30)
    assert server.count("DELETE", "/jobs/") == tries
    assert cluster.sample(terminator, "job_deletions_total", result="changed") == tries
    # Once a watch shows it, the newest spec has to be observed and counted.
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


CONTINUOUS = {"completion": {"policy": "Continuous"}}
REVISION = f"1-{find_revision(parse_spec({'image': 'x', **CONTINUOUS}))}"


async def test_a_continuous_job_is_never_deleted(cluster, server):
    run = cluster.add_job(**CONTINUOUS)
    for node in run.nodes:
        pod = {"metadata": {"annotations": {names.ANNOTATION_REVISION: REVISION}}}
        server.patch(PODS, run.pod(node), pod)
    server.patch(JOBS, run.name, {"status": {"revision": REVISION}})
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree()
    await asyncio.sleep(1000)
    assert run.exists
    assert {entry["revision"] for entry in run.evidence().values()} == {REVISION}


async def test_pods_of_another_revision_are_not_read(cluster, server):
    run = cluster.add_job(**CONTINUOUS)
    cluster.start()
    run.print_tokens()
    await asyncio.sleep(30)
    assert run.evidence() == {}
    assert server.count("GET", "/pods/.*/log") == 0


async def test_the_oldest_of_many_deleted_nodes_are_dropped_from_a_continuous_job(cluster):
    run = cluster.add_job(report=False, **CONTINUOUS)
    gone = {
        f"gone-{number:03}": {
            "nodeUID": f"u{number}",
            "completedAt": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
        }
        for number in range(201)
    }
    kept = {"a": {"nodeUID": "a-uid", "completedAt": "2020-01-01T00:00:00Z"}}
    run.add_report(0, {**gone, **kept})
    cluster.start()
    await eventually(lambda: len(run.evidence()) == 101)
    assert set(run.evidence()) == {f"gone-{number:03}" for number in range(101, 201)} | {"a"}
