"""Results that a task prints long before its token."""

import asyncio
import gc
from datetime import UTC, datetime

import pytest

from daemonset_job.kube.client.resource import PODS
from terminator.config import Config
from terminator.logs.backward_read import BACKWARD_BYTES
from terminator.logs.instance_log import InstanceLog
from terminator.logs.result_search import SEARCH_TIMEOUT_SECONDS
from terminator.logs.tail_read import TAIL_LINES
from tests.contract.terminator.cluster import eventually, running, terminated

pytestmark = pytest.mark.looptime(end=2000)

IP = "dsjob:result ip=10.0.0.1"
RESULTS = [{"name": "ip"}]
MUCH = ["copied a file"] * 3000


async def quick(log):
    log.write(IP, *MUCH, "done")


async def step_by_step(log):
    """The first short read misses the result, the stream brings the token."""
    log.write(IP)
    for _ in range(3000):
        log.write("copied a file")
    await asyncio.sleep(5)
    log.write("done")


@pytest.mark.parametrize("play", [quick, step_by_step])
@pytest.mark.parametrize("streams", [0, 8])
async def test_they_are_found_and_entered_with_the_completion(cluster, server, play, streams):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    if play is step_by_step:
        run.log("a").write(IP, *MUCH)
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await play(run.log("a"))
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}
    assert server.count("PATCH", "/jobreports/") == 1


async def test_they_are_found_in_mode_exit(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": "Exit"}, results=RESULTS)
    cluster.start()
    for node, code in (("a", 0), ("b", 1)):
        run.log(node).write(IP, *MUCH)
        run.set_container(node, terminated(code), "initContainerStatuses")
        server.patch(PODS, run.pod(node), {"status": {"containerStatuses": []}})
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})
    await asyncio.sleep(20)
    # Nothing is looked for in the log of a task that failed.
    assert server.count("GET", f"/pods/{run.pod('b')}/log") == 1


@pytest.mark.parametrize("before", [[], MUCH])
async def test_a_result_in_a_last_line_without_newline_is_found_in_mode_exit(
    cluster, server, before
):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=RESULTS)
    cluster.start()
    run.log("a").write(*before)
    run.log("a").write_raw(IP.encode())
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})


@pytest.mark.parametrize("more", [[], MUCH])
@pytest.mark.parametrize(("second", "results"), [(10, {"ip": "10.0.0.1"}), (30, {})])
async def test_a_line_that_the_runtime_stamped_after_the_end_counts_in_mode_exit(
    cluster, server, second, results, more
):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=RESULTS)
    # The task has ended in second 9. Later lines than the first case has are of another start.
    run.log("a").write(IP, *more, at=datetime(2030, 1, 1, 0, 0, second, 500, UTC))
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    cluster.start()
    await asyncio.sleep(30)
    assert run.evidence()["a"].get("results", {}) == results


async def test_a_task_that_has_set_the_clock_back_keeps_its_results_in_mode_exit(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=RESULTS)
    run.log("a").write("the clock is wrong", at=datetime(2030, 1, 1, 0, 1, 0, 0, UTC))
    run.log("a").write(IP, at=datetime(2030, 1, 1, 0, 0, 8, 0, UTC))  # the task ends in second 9
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    cluster.start()
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})


async def test_a_result_that_is_not_listed_is_named_however_early_it_was_printed(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=RESULTS)
    cluster.start()
    run.log("a").write("dsjob:result adress=10.0.0.1", *MUCH)
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    await eventually(lambda: run.evidence().get("a", {}).get("omittedResults") == ["adress"])


async def test_results_of_the_first_start_stay_after_a_reboot(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), completion={"mode": "Exit"}, results=RESULTS)
    cluster.start()
    run.log("a").write(IP)
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    await eventually(lambda: run.evidence().get("a", {}).get("results") == {"ip": "10.0.0.1"})
    entry, writes = run.evidence()["a"], server.count("PATCH", "/jobreports/")

    run.set_container("a", running(restartCount=1), "initContainerStatuses")
    run.log("a").write("dsjob:result ip=10.0.0.2")
    await asyncio.sleep(5)
    again = terminated(0, restarts=1)
    again["state"]["terminated"]["finishedAt"] = "2030-01-01T00:01:00Z"
    run.set_container("a", again, "initContainerStatuses")
    await asyncio.sleep(30)
    assert run.evidence()["a"] == entry
    assert server.count("PATCH", "/jobreports/") == writes


async def test_they_are_found_in_the_log_before_a_restart(cluster):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a", previous=True).write(IP, *MUCH, "done")
    run.log("a").write("once more")
    run.set_container("a", running(restartCount=1))
    cluster.start()
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}


async def test_a_log_that_shows_them_at_its_end_is_not_searched(cluster, server):
    run = cluster.add_job(nodes=("a", "b"), results=RESULTS)
    run.log("a").write(*MUCH, IP, "done")
    run.log("b").write("no result at all", "done")
    cluster.start()
    await eventually(lambda: run.completed() == {"a", "b"})
    assert server.count("GET", "/log") == 2


async def test_the_search_ends_after_a_number_of_bytes(cluster, server):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *["x" * 60] * 100_000, "done")
    terminator, _ = cluster.start()
    await eventually(lambda: run.completed() == {"a"})
    assert "results" not in run.evidence()["a"]
    read = cluster.sample(terminator, "log_read_bytes_total")
    assert read < BACKWARD_BYTES + 2 * TAIL_LINES * 100 + 64 * 1024


@pytest.mark.parametrize(("times", "results"), [(2, {"ip": "10.0.0.1"}), (10_000, {})])
async def test_failed_search_is_retried_and_delays_no_other_log(cluster, server, times, results):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *MUCH, "done")
    server.fail_next("GET", "tailLines=2000", 500, times=times)
    cluster.start()
    await eventually(lambda: run.completed() == {"a"}, 10.0)
    assert run.evidence()["a"].get("results", {}) == results


@pytest.mark.parametrize("streams", [0, 8])
async def test_completion_is_recorded_if_the_pod_is_deleted_during_the_search(
    cluster, server, streams
):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *MUCH)
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await asyncio.sleep(1)
    server.delay_next("GET", "tailLines=2000&limitBytes", 60.0)
    run.log("a").write("done")
    await asyncio.sleep(4)
    assert run.completed() == set()
    server.remove(PODS, run.pod("a"))
    await eventually(lambda: run.completed() == {"a"}, 15.0)


SEARCH = "tailLines=2000&limitBytes"


async def test_a_token_that_was_being_read_when_its_pod_went_is_entered(cluster, server):
    run = cluster.add_job(nodes=("a",))
    run.log("a").write("done")
    server.delay_next("GET", f"/pods/{run.pod('a')}/log", 5.0)
    cluster.start()
    await asyncio.sleep(1)
    server.remove(PODS, run.pod("a"))
    await eventually(lambda: run.completed() == {"a"})


async def test_a_stopped_terminator_leaves_the_search_to_the_next_one(cluster, server):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *MUCH, "done")
    server.delay_next("GET", SEARCH, 8.0)
    _, task = cluster.start()
    await asyncio.sleep(2)
    await cluster.stop(task)
    assert run.completed() == set()
    cluster.start()
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}


async def test_a_search_gives_up_no_place_of_slow_reads(cluster, server, monkeypatch):
    monkeypatch.setattr("terminator.logs.read_slots.SLOW_READS_LIMIT", 0)
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *MUCH, "done")
    server.delay_next("GET", SEARCH, 5.0)
    cluster.start()
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}


async def test_no_more_logs_are_searched_at_a_time_than_allowed(cluster, server, monkeypatch):
    monkeypatch.setattr("terminator.logs.result_search.SEARCHES", 2)
    nodes = tuple(f"n{number}" for number in range(8))
    many = cluster.add_job("many", nodes=nodes, results=RESULTS)
    few = cluster.add_job("few", nodes=nodes[:1], results=RESULTS)
    for run in (many, few):
        for node in run.nodes:
            run.log(node).write("begin", IP, *MUCH[:1500], "done")  # found by one request
    pace = SEARCH_TIMEOUT_SECONDS - 1.0
    server.delay_next("GET", SEARCH, pace, times=100)
    cluster.start()
    # Two of the many may be searched first, then one of each Job.
    await eventually(lambda: few.completed() == {nodes[0]}, 2 * pace + 2)
    assert len(many.completed()) <= 3
    assert few.evidence()[nodes[0]]["results"] == {"ip": "10.0.0.1"}
    # The time of no read runs while it waits.
    await eventually(lambda: many.completed() == set(nodes), 5 * pace)
    assert all(entry["results"] for entry in many.evidence().values())


@pytest.mark.parametrize("streams", [0, 8])
async def test_results_of_a_failed_attempt_are_not_those_of_the_next(cluster, streams):
    run = cluster.add_job(nodes=("a",), results=[{"name": "ip"}, {"name": "n"}])
    run.log("a").write("dsjob:result ip=failed", "dsjob:result n=1")
    cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await asyncio.sleep(3)
    run.log("a").end()
    run.set_container("a", terminated(1))
    await asyncio.sleep(3)
    run.log("a", previous=True).write("dsjob:result ip=failed", "dsjob:result n=1")
    run.server.logs.pop(("default", run.pod("a"), "job-container", False))
    run.log("a").write("dsjob:result n=2")
    run.set_container("a", running(restartCount=1))
    await asyncio.sleep(3)
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"n": "2"}


async def test_results_from_a_stream_survive_the_read_after_a_restart(cluster):
    """Much was printed between the result and the token: more than is searched."""
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    cluster.start()
    await asyncio.sleep(1)
    run.log("a").write(IP, *["x" * 100] * 20_000)
    await asyncio.sleep(1)
    run.log("a").write(*["x"] * 50)
    await asyncio.sleep(2)
    ended = run.log("a")
    run.log("a", previous=True).entries[:] = ended.entries
    run.log("a", previous=True).write("done")
    ended.end()
    run.server.logs.pop(("default", run.pod("a"), "job-container", False))
    run.log("a").write("once more")
    run.set_container("a", running(restartCount=1))
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}


async def test_a_search_finds_the_log_of_a_task_that_was_started_again(cluster, server):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    run.log("a").write(IP, *MUCH, "done")
    server.delay_next("GET", SEARCH, 3.0)
    cluster.start()
    await asyncio.sleep(1)
    run.log("a", previous=True).entries[:] = run.log("a").entries
    run.server.logs.pop(("default", run.pod("a"), "job-container", False))
    run.log("a").write("dsjob:result ip=again")
    await eventually(lambda: run.completed() == {"a"})
    assert run.evidence()["a"]["results"] == {"ip": "10.0.0.1"}


async def test_in_mode_exit_results_are_those_of_the_start_that_ended_well(cluster):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=RESULTS)
    run.log("a").write("dsjob:result ip=failed")
    run.set_container("a", terminated(1), "initContainerStatuses")
    run.server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    cluster.start()
    await asyncio.sleep(2)
    run.log("a", previous=True).entries[:] = run.log("a").entries
    run.server.logs.pop(("default", run.pod("a"), "job-container", False))
    run.log("a").write("nothing to declare")
    run.set_container("a", running(restartCount=1), "initContainerStatuses")
    await asyncio.sleep(2)
    run.set_container("a", terminated(0, restarts=1), "initContainerStatuses")
    await eventually(lambda: run.completed() == {"a"})
    await asyncio.sleep(20)
    assert "results" not in run.evidence()["a"]


async def test_exit_mode_does_not_mix_results_of_two_starts(cluster, server):
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=RESULTS)
    run.log("a", previous=True).write("dsjob:result ip=failed")
    run.log("a").write("nothing to declare")
    run.set_container("a", running(restartCount=1), "initContainerStatuses")
    run.server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    server.delay_next("GET", "previous=true", 3.0)
    cluster.start()
    await asyncio.sleep(2)
    run.set_container("a", terminated(0, restarts=1), "initContainerStatuses")
    await asyncio.sleep(20)
    assert run.completed() == {"a"}
    assert "results" not in run.evidence()["a"]


@pytest.mark.parametrize("more", [[], MUCH])
async def test_a_search_for_those_of_a_start_gives_the_next_one_none_in_mode_exit(
    cluster, server, more
):
    """The sandbox of the pod has ended, and so has the task, with 0; both are started again.

    The Job is not deleted before the second search is over, if there is one.
    """
    run = cluster.add_job(nodes=("a",), completion={"mode": "Exit"}, results=RESULTS)

    def sandbox(status):
        found = {"type": "PodReadyToStartContainers", "status": status}
        body = {"status": {"conditions": [found], "containerStatuses": []}}
        server.patch(PODS, run.pod("a"), body)

    sandbox("False")
    run.log("a").write("dsjob:result ip=first", *MUCH)
    run.set_container("a", terminated(0), "initContainerStatuses")
    server.delay_next("GET", SEARCH, 6.0, times=2)
    cluster.start()
    await asyncio.sleep(2)
    run.log("a", previous=True).entries[:] = run.log("a").entries
    run.server.logs.pop(("default", run.pod("a"), "job-container", False))
    await asyncio.sleep(2)
    run.log("a").write("dsjob:result ip=second", *more)
    sandbox("True")
    again = terminated(0, restarts=1)
    again["state"]["terminated"]["finishedAt"] = "2030-01-01T00:00:30Z"
    run.set_container("a", again, "initContainerStatuses")
    await eventually(lambda: run.completed() == {"a"})
    run.agree()
    await eventually(lambda: not run.exists)
    assert run.evidence()["a"]["results"] == {"ip": "second"}


async def test_those_of_an_earlier_attempt_take_no_memory_once_it_has_been_read(cluster):
    run = cluster.add_job(nodes=("a",), results=RESULTS)
    terminator, _ = cluster.start(Config(max_streams=0, resync_period=1000.0))
    run.log("a").write(IP)
    await asyncio.sleep(10)
    gc.collect()
    assert IP.rpartition("=")[2] in _values_kept()
    run.log("a", previous=True).write(IP)
    run.log("a").entries.clear()
    run.set_container("a", running(restartCount=1))
    await asyncio.sleep(10)
    gc.collect()
    assert not _values_kept()
    assert terminator is not None


def _values_kept() -> set[str]:
    found = (each for each in gc.get_objects() if isinstance(each, InstanceLog))
    return {value for log in found for value in log.findings.results.values() if value}
