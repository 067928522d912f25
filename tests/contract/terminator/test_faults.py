"""What goes wrong between a log line and the ledger; nothing is lost, nothing is written twice."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS
from terminator.config import Config
from tests.contract.terminator.cluster import eventually

pytestmark = pytest.mark.looptime(end=5000)

REPORTS = "/jobreports/"


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_a_write_that_fails_is_tried_again(cluster, server, status):
    run = cluster.add_job()
    terminator, _ = cluster.start()
    server.fail_next("PATCH", REPORTS, status, times=3)
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    assert cluster.sample(terminator, "ledger_pending_nodes") == 0


@pytest.mark.parametrize(("status", "result"), [(403, "forbidden"), (500, "retried")])
async def test_a_refused_deletion_counts_as_what_it_is(cluster, server, status, result):
    run = cluster.add_job()
    terminator, _ = cluster.start()
    server.fail_next("DELETE", "/jobs/", status, times=2)
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree()
    await eventually(lambda: not run.exists)

    def counted(result: str) -> float:
        labels = {"component": "terminator", "result": result}
        return cluster.sample(terminator, "reconciles_total", **labels)

    expected = {"retried": 0, "forbidden": 0, "failed": 0, result: 2}
    assert {each: counted(each) for each in expected} == expected


async def test_a_job_that_cannot_be_read_holds_up_no_other(cluster, server):
    deep = {"template": {"spec": {"containers": [{"x": "@deep:1100"}]}}}
    meta = {"namespace": "elsewhere", "name": "deep"}
    server.put(JOBS, {"metadata": meta, "spec": deep})
    terminator, _ = cluster.start()
    await eventually(lambda: terminator.is_ready)
    run = cluster.add_job()
    server.put(JOBS, {"metadata": meta | {"name": "deep-2"}, "spec": deep})
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree()
    await eventually(lambda: not run.exists)
    assert (
        cluster.sample(terminator, "unreadable_objects", component="terminator", resource="jobs")
        == 2
    )


async def test_refused_watch_makes_the_program_unready_until_it_recovers(cluster, server):
    terminator, _ = cluster.start()
    await eventually(lambda: terminator.is_ready)
    server.fail_next("GET", "/jobreports", 503, times=10_000)
    server.drop_watches()
    await asyncio.sleep(380)
    assert not terminator.is_ready
    assert (
        cluster.sample(
            terminator, "watch_silence_seconds", component="terminator", resource="jobreports"
        )
        > 370
    )
    server.faults.clear()
    await eventually(lambda: terminator.is_ready, 60)


async def test_namespace_forbidden_from_the_start_affects_no_other(cluster, server):
    server.fail_next("GET", "/namespaces/two/jobreports", 403, times=10_000)
    run = cluster.add_job()
    other = cluster.add_job("other", namespace="two")
    terminator, _ = cluster.start(Config(namespaces=("default", "two")))
    for each in (run, other):
        each.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree()
    await eventually(lambda: not run.exists)
    assert terminator.is_ready
    assert server.count("GET", "/namespaces/two/pods/.*/log") == 0
    server.faults.clear()
    await eventually(lambda: other.completed() == set(other.nodes), 60)


async def test_a_connection_that_breaks_in_a_write_is_survived(cluster, server):
    run = cluster.add_job()
    cluster.start()
    server.reset_next("PATCH", REPORTS, times=2)
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))


async def test_a_write_whose_answer_is_lost_is_not_repeated_endlessly(cluster, server):
    run = cluster.add_job()
    cluster.start()
    server.lose_answer_next("PATCH", REPORTS)
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    await asyncio.sleep(60)
    assert server.count("PATCH", REPORTS) <= 2
    assert {node: e["completedAt"] for node, e in run.evidence().items()}.keys() == set(run.nodes)


async def test_evidence_waits_for_a_report_that_does_not_exist_yet(cluster, server):
    run = cluster.add_job(report=False)
    terminator, _ = cluster.start()
    run.print_tokens()
    await eventually(lambda: cluster.sample(terminator, "ledger_pending_nodes") == 3)
    await asyncio.sleep(30)
    assert server.count("PATCH") == 0
    run.add_report()
    await eventually(lambda: run.completed() == set(run.nodes), 2.0)


async def test_a_report_that_was_deleted_is_filled_again(cluster, server):
    run = cluster.add_job()
    cluster.start(Config(resync_period=10.0))
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))
    server.remove(JOB_REPORTS, run.reports()[0]["metadata"]["name"])
    await asyncio.sleep(1)
    run.add_report()
    await eventually(lambda: run.completed() == set(run.nodes))


async def test_a_report_of_another_uid_is_not_written_by_an_old_cache(cluster, server):
    run = cluster.add_job()
    cluster.start()
    await asyncio.sleep(1)
    server.silence_watches(JOB_REPORTS)
    name = run.reports()[0]["metadata"]["name"]
    server.remove(JOB_REPORTS, name)
    run.add_report()
    run.print_tokens()
    await asyncio.sleep(10)
    assert run.evidence() == {}  # Conflict: the UID is a precondition
    await eventually(lambda: run.completed() == set(run.nodes), 300.0)


async def test_one_entry_that_is_refused_keeps_no_other_out(cluster, server):
    run = cluster.add_job(nodes=tuple("abcdefgh"))
    cluster.start()
    # The whole batch, then the half with the culprit, and so on down to it alone.
    server.fail_next("PATCH", REPORTS, 422, times=1)
    run.print_tokens()
    await eventually(lambda: run.completed() == set(run.nodes))


async def test_of_a_batch_that_stays_refused_the_good_half_is_kept(cluster, server):
    run = cluster.add_job(nodes=("a", "b"))
    terminator, _ = cluster.start()
    server.fail_next("PATCH", REPORTS, 422, times=2)  # both together, then "a" alone
    run.print_tokens()
    await eventually(lambda: "b" in run.completed())
    # What was refused for what it says is not sent again at once.
    await eventually(lambda: run.completed() == {"a", "b"}, 90.0)
    assert cluster.sample(terminator, "ledger_writes_total", result="failed") == 2


async def test_writes_come_in_batches_and_the_last_at_once(cluster, server):
    nodes = tuple(f"n{number:02}" for number in range(20))
    run = cluster.add_job(nodes=nodes)
    cluster.start(Config(flush_interval=5.0, resync_period=1000.0))
    await asyncio.sleep(1)
    started = asyncio.get_running_loop().time()
    for node in nodes[:-1]:
        run.log(node).write("done")
    await asyncio.sleep(1)
    assert server.count("PATCH") == 0
    run.log(nodes[-1]).write("done")
    await eventually(lambda: run.completed() == set(nodes))
    assert asyncio.get_running_loop().time() - started < 3
    assert server.count("PATCH") == 1


async def test_a_large_report_is_written_at_intervals_unless_evidence_is_urgent(cluster, server):
    run = cluster.add_job(nodes=tuple("abcd"), report=False)
    entry = {"nodeUID": "x", "completedAt": "2030-01-01T00:00:00Z"}
    run.add_report(0, {f"x{n}": entry for n in range(500)})
    server.delay_next("PATCH", REPORTS, seconds=1.0)
    cluster.start()
    run.log("a").write("done")
    await eventually(lambda: server.count("PATCH", REPORTS) == 1)
    run.log("b").write("done")  # while the first write is under way
    await eventually(lambda: "a" in run.completed())
    await asyncio.sleep(4.5)  # 5 s for 500 nodes
    assert server.count("PATCH", REPORTS) == 1
    await eventually(lambda: "b" in run.completed(), 1.0)
    server.delay_next("PATCH", REPORTS, seconds=1.0)
    run.log("c").write("done")
    await eventually(lambda: server.count("PATCH", REPORTS) == 3)
    started = asyncio.get_running_loop().time()
    run.log("d").write("done")  # the last one: the end of the run waits for it
    await eventually(lambda: run.completed() >= set("abcd"))
    assert asyncio.get_running_loop().time() - started < 3


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.3, 0.55, 0.7, 1.2])
async def test_killed_at_any_moment_the_end_is_the_same(cluster, server, moment):
    run = cluster.add_job(nodes=tuple("abcdef"))
    terminator, task = cluster.start()
    for number, node in enumerate(run.nodes):
        run.log(node).write("starting")
        await asyncio.sleep(0.1 if number % 2 else 0.0)
        run.log(node).write("done")
    await asyncio.sleep(moment)
    before = run.evidence()
    await cluster.kill(terminator, task)
    cluster.start()
    run.agree()
    await eventually(lambda: not run.exists)
    assert run.completed() == set(run.nodes)
    assert run.evidence().items() >= before.items()


async def test_killed_while_a_write_is_on_its_way(cluster, server):
    run = cluster.add_job()
    terminator, task = cluster.start()
    server.delay_next("PATCH", REPORTS, 30.0)
    run.print_tokens()
    await eventually(lambda: server.count("PATCH", REPORTS) == 1)
    await cluster.kill(terminator, task)
    cluster.start()
    await eventually(lambda: run.completed() == set(run.nodes))


async def test_on_a_signal_it_writes_its_pending_evidence(cluster, server):
    run = cluster.add_job()
    _, task = cluster.start(Config(flush_interval=60.0))
    run.print_tokens(*run.nodes[:2])
    await asyncio.sleep(5)
    assert run.evidence() == {}
    await cluster.stop(task)
    assert run.completed() == set(run.nodes[:2])


async def test_on_a_signal_it_does_not_wait_for_a_server_that_hangs(cluster, server):
    run = cluster.add_job()
    _, task = cluster.start(Config(flush_interval=60.0))
    run.print_tokens(*run.nodes[:2])
    await asyncio.sleep(5)
    server.delay_next("PATCH", REPORTS, 600.0)
    started = asyncio.get_running_loop().time()
    await cluster.stop(task)
    assert asyncio.get_running_loop().time() - started < 2


async def test_the_server_away_for_a_minute(cluster, server):
    run = cluster.add_job()
    cluster.start()
    await asyncio.sleep(1)
    server.fail_next("GET", "", 503, times=10_000)
    server.fail_next("PATCH", "", 503, times=10_000)
    server.drop_watches()
    for node in run.nodes:
        run.log(node).break_followers()
    run.print_tokens()
    await asyncio.sleep(60)
    assert run.evidence() == {}
    server.faults.clear()
    await eventually(lambda: run.completed() == set(run.nodes), 60.0)


async def test_a_delete_that_fails_is_tried_again(cluster, server):
    run = cluster.add_job()
    terminator, _ = cluster.start()
    server.fail_next("DELETE", "/jobs/", 500, times=3)
    run.print_tokens()
    run.agree()
    await eventually(lambda: not run.exists, 60.0)
    assert cluster.sample(terminator, "job_deletions_total", result="failed") == 3


async def test_a_job_gone_before_its_delete_is_gone(cluster, server):
    run = cluster.add_job()
    terminator, _ = cluster.start()
    server.fail_next("DELETE", "/jobs/", 404)
    run.print_tokens()
    run.agree()
    await eventually(
        lambda: cluster.sample(terminator, "job_deletions_total", result="gone") == 1, 60.0
    )


async def test_a_job_that_is_there_long_after_its_delete_is_deleted_again(cluster, server):
    """etcd was restored from a backup of before the delete, and no watch reported it."""
    run = cluster.add_job()
    terminator, _ = cluster.start(Config(resync_period=30.0))
    server.fail_next("DELETE", "/jobs/", 404)
    run.print_tokens()
    run.agree()
    await eventually(
        lambda: cluster.sample(terminator, "job_deletions_total", result="gone") == 1, 60.0
    )
    await asyncio.sleep(60)
    assert run.exists
    await eventually(lambda: not run.exists, 100.0)


async def test_evidence_of_a_job_that_the_user_deleted_is_still_written(cluster, server):
    run = cluster.add_job()
    cluster.start(Config(flush_interval=5.0))
    run.print_tokens(*run.nodes[:2])
    await asyncio.sleep(1)
    server.remove(JOBS, run.name)
    await eventually(lambda: run.completed() == set(run.nodes[:2]))


async def test_evidence_without_job_and_report_is_dropped(cluster, server):
    run = cluster.add_job(report=False)
    terminator, _ = cluster.start()
    run.print_tokens()
    await eventually(lambda: cluster.sample(terminator, "ledger_pending_nodes") == 3)
    server.remove(JOBS, run.name)
    await eventually(lambda: cluster.sample(terminator, "ledger_pending_nodes") == 0)


async def test_shards(cluster, server):
    run = cluster.add_job(nodes=tuple("abcd"), report=False)
    full = {f"x{n}": {"nodeUID": "x", "completedAt": "2030-01-01T00:00:00Z"} for n in range(248)}
    run.add_report(0, full)
    run.add_report(1)
    cluster.start()
    run.print_tokens()
    await eventually(lambda: run.completed() >= set(run.nodes))
    sizes = [len(raw["evidence"]) for raw in run.reports()]
    assert sorted(sizes) == [2, 250]
    before = server.count("PATCH")
    await asyncio.sleep(60)
    assert server.count("PATCH") == before
