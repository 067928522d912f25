"""Reading many logs: bounds, fairness, and the cost of large ones."""

import asyncio
import math
from types import SimpleNamespace

import pytest

from daemonset_job.kube.client.client import KubeClient
from terminator.config import Config
from terminator.logs.log_parser import LogParser
from terminator.logs.scanner import Limits, Scanner
from terminator.logs.stream_state import STREAM_BYTES
from terminator.metrics import Metrics
from tests.clocks import LoopClock
from tests.contract.fake_api import START
from tests.contract.terminator.cluster import eventually

pytestmark = pytest.mark.looptime(end=5000)

NODES = tuple(f"n{number:02}" for number in range(30))


def follows(server):
    return [
        request
        for request in server.requests
        if "/log" in request.path and "follow" in request.path
    ]


async def test_no_more_streams_than_allowed_and_every_pod_is_read(cluster, server):
    run = cluster.add_job(nodes=NODES)
    terminator, _ = cluster.start(Config(max_streams=4, resync_period=1000.0))
    await asyncio.sleep(20)
    assert cluster.sample(terminator, "log_streams") == 4
    for node in NODES:
        run.log(node).write("done")
    await eventually(lambda: run.completed() == set(NODES), 10.0)
    await eventually(lambda: cluster.sample(terminator, "log_streams") == 0)


async def test_without_any_stream_every_node_is_found_in_time(cluster, server):
    run = cluster.add_job(nodes=NODES)
    cluster.start(Config(max_streams=0, resync_period=1000.0))
    for node in NODES:
        await asyncio.sleep(1)
        run.log(node).write("done")
    await eventually(lambda: run.completed() == set(NODES), 6.0)
    assert follows(server) == []


async def test_a_freed_stream_goes_to_the_next(cluster):
    run = cluster.add_job(nodes=NODES)
    terminator, _ = cluster.start(Config(max_streams=2, resync_period=1000.0))
    for node in NODES:
        await eventually(lambda: cluster.sample(terminator, "log_streams") > 0)
        run.log(node).write("done")
        await asyncio.sleep(1)
    await eventually(lambda: run.completed() == set(NODES))


async def test_limits_can_be_changed_while_reading(cluster):
    run = cluster.add_job(nodes=NODES)
    terminator, _ = cluster.start(Config(max_streams=2, short_reads=8, resync_period=1000.0))
    await asyncio.sleep(2)
    terminator.apply(Config(max_streams=10, short_reads=2, resync_period=1000.0))
    await eventually(lambda: cluster.sample(terminator, "log_streams") == 10)
    terminator.apply(Config(max_streams=10, short_reads=32, resync_period=1000.0))
    for node in NODES:
        run.log(node).write("done")
    await eventually(lambda: run.completed() == set(NODES))


async def test_kubelets_that_do_not_answer_delay_no_other(cluster, server):
    run = cluster.add_job(nodes=NODES)
    silent = NODES[:25]
    for node in silent:
        server.delay_next("GET", f"/pods/{run.pod(node)}/log", 60.0, times=1000)
    cluster.start(Config(short_reads=4, resync_period=1000.0))
    for node in NODES:
        run.log(node).write("done")
    # Each silent one costs a second of one of four places, once: 25 / 4, rounded up.
    await eventually(lambda: run.completed() == set(NODES[25:]), 8.0)
    server.faults.clear()
    await eventually(lambda: run.completed() == set(NODES), 90.0)


async def test_a_log_without_end_is_left_after_its_budget(cluster, server, monkeypatch):
    monkeypatch.setattr("terminator.logs.read_budget.SHARED_BYTES", 0)
    run = cluster.add_job(nodes=("a",))
    terminator, _ = cluster.start()
    await eventually(lambda: cluster.sample(terminator, "log_streams") == 1)
    run.log("a").write(*[b"x" * 100] * 10_000)
    await eventually(lambda: cluster.sample(terminator, "log_streams") == 0)
    received = cluster.sample(terminator, "log_read_bytes_total")
    assert received < 2 * STREAM_BYTES
    run.log("a").write(*[b"x" * 100] * 100_000)
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a"}, 6.0)
    # Eleven megabytes were printed.
    assert cluster.sample(terminator, "log_read_bytes_total") < received + 10 * 128 * 1024


async def test_noisy_log_is_followed_while_the_budget_lasts(cluster, server):
    run = cluster.add_job(nodes=("a",))
    terminator, _ = cluster.start()
    await eventually(lambda: cluster.sample(terminator, "log_streams") == 1)
    run.log("a").write(*[b"x" * 100] * 10_000)
    await eventually(lambda: cluster.sample(terminator, "log_read_bytes_total") > 4 * STREAM_BYTES)
    assert cluster.sample(terminator, "log_streams") == 1
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a"})


async def test_the_cost_does_not_depend_on_what_was_printed_before(cluster, server):
    costs = []
    for name, lines in (("small", 2), ("large", 200_000)):
        run = cluster.add_job(name, nodes=("a",))
        run.log("a").write(*[b"x" * 60] * lines, b"done")
        terminator, task = cluster.start()
        await eventually(lambda run=run: run.completed() == {"a"})
        costs.append(cluster.sample(terminator, "log_read_bytes_total"))
        await cluster.stop(task)
    assert costs[1] < 20_000
    assert server.count("GET", "/log") == 2


async def test_a_token_followed_by_much_else_is_found(cluster):
    run = cluster.add_job(nodes=("a", "b"))
    cluster.start(Config(max_streams=0, resync_period=1000.0))
    for node in run.nodes:
        run.log(node).write("begin")
    await asyncio.sleep(1)
    for node in run.nodes:
        run.log(node).write("done", *["and now I idle"] * 1000)
    await eventually(lambda: run.completed() == {"a", "b"}, 6.0)


@pytest.mark.parametrize(("lines", "least", "most"), [(500, 7, 30), (1, 1, 4)])
async def test_a_log_that_grows_fast_is_read_often_without_a_stream(
    cluster, server, lines, least, most
):
    """The kubelet rotates the file of such a log within seconds of a token."""
    run = cluster.add_job(nodes=("a",))
    cluster.start(Config(max_streams=0, resync_period=1000.0))
    before = 0
    for half_second in range(60):
        if half_second == 40:
            before = server.count("GET", "/log")
        run.log("a").write(*[b"x" * 100] * lines)
        await asyncio.sleep(0.5)
    # In ten seconds; a second request of a read is none of its own.
    assert least <= server.count("GET", "/log") - before <= most


@pytest.mark.parametrize("streams", [0, 8])
async def test_a_log_that_cannot_be_processed_affects_no_other_log(cluster, monkeypatch, streams):
    class Defect(LogParser):
        def feed(self, chunk):
            if b"poison" in chunk:
                raise ValueError("a defect")
            return super().feed(chunk)

    monkeypatch.setattr("terminator.logs.tail_read.LogParser", Defect)
    monkeypatch.setattr("terminator.logs.instance_log.LogParser", Defect)
    run = cluster.add_job(nodes=("a", "b"))
    terminator, task = cluster.start(Config(max_streams=streams, resync_period=1000.0))
    await asyncio.sleep(1)
    run.log("a").write("poison")
    await asyncio.sleep(20)
    run.log("b").write("done")
    await eventually(lambda: run.completed() == {"b"})
    assert not task.done()
    assert 2 < cluster.sample(terminator, "log_read_errors_total", reason="other") < 40
    monkeypatch.undo()
    run.log("a").write("done")
    await eventually(lambda: run.completed() == {"a", "b"})


@pytest.mark.timeout(30)
async def test_delay_below_the_clock_resolution_does_not_busy_loop():
    scanner = Scanner(
        KubeClient.__new__(KubeClient),
        LoopClock(START),
        Metrics(),
        limits=Limits(),
        on_findings=lambda *_found: None,
        on_progress=lambda *_found: None,
    )
    job = SimpleNamespace(due=0.0)
    scanner._timers._timers = [(math.nextafter(1.0, 2.0), 0, job)]
    running = asyncio.create_task(scanner.run())
    await asyncio.sleep(2)
    running.cancel()
    assert not scanner._timers
