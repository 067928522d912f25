"""What the ledger keeps of a run, and what it costs to enter a node."""

import asyncio
from dataclasses import replace

import pytest

from job_controller.api.report import Evidence
from job_controller.kube.errors import Invalid, KubeError, NotFound, TooLarge
from terminator.entries import assign
from terminator.ledger import Ledger
from terminator.metrics import Metrics
from tests.unit.terminator.builders import done, make_job, make_report

pytestmark = pytest.mark.looptime(end=1000)


class Unread(dict):
    """Entries that can be looked up by node, and not be gone through."""

    def __iter__(self):
        raise AssertionError("all nodes of a report were gone through")

    items = keys = values = __iter__


class Cluster:
    """The caches, and a server that refuses or takes every patch."""

    def __init__(self, *reports):
        self.reports = list(reports)
        self.has_job = True
        self.patches = 0
        self.error: KubeError | None = None
        self.ledger = Ledger(
            self,
            Metrics(),
            reports_of=lambda _job: list(self.reports),
            has_job=lambda _uid: self.has_job,
            flush_seconds=0.5,
        )

    async def merge_patch(self, _resource, name, body, namespace):
        self.patches += 1
        if self.error is not None:
            raise self.error
        raise NotFound("the report is gone")


def make_ledger(reports):
    return Cluster(*reports).ledger


@pytest.fixture
async def running():
    """Run the ledger of a cluster."""
    tasks = []
    yield lambda cluster: tasks.append(asyncio.create_task(cluster.ledger.run()))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_to_enter_a_node_no_other_node_is_looked_at():
    reports = [make_report(Unread(a=done("a"))), make_report(Unread(b=done("b")), shard=1)]
    ledger = make_ledger(reports)
    assert ledger.enter(make_job(), "c", done("c"))
    assert not ledger.enter(make_job(), "b", done("b"))


async def test_a_node_that_a_higher_shard_completes_is_not_entered_again():
    reports = [
        make_report({"a": Evidence("a-uid", last_lines=("x",))}),
        make_report({"a": done("a")}, shard=1),
    ]
    assert not make_ledger(reports).enter(make_job(), "a", done("a"))


async def test_a_report_elsewhere_says_nothing():
    ledger = make_ledger([make_report({"a": done("a")}, namespace="elsewhere")])
    assert ledger.view(make_job()) == {}
    assert ledger.enter(make_job(), "a", done("a"))
    assert ledger.view(make_job()) == {"a": done("a")}


# --- runs that are over -----------------------------------------------------------------


async def test_a_book_goes_with_its_job_and_its_reports(running):
    """A namespace that is deleted during a run: Jobs first, reports next."""
    cluster = Cluster(make_report())
    running(cluster)
    cluster.ledger.enter(make_job(), "a", done("a"))
    cluster.has_job = False
    await asyncio.sleep(2)
    assert cluster.patches > 0  # its report may be there yet
    cluster.reports.clear()
    cluster.ledger.report_changed("job-uid")
    patches = cluster.patches
    await asyncio.sleep(100)
    assert cluster.patches == patches
    assert not cluster.ledger._books
    assert not cluster.ledger._queue.delayed


async def test_a_book_of_which_the_last_report_was_gone_first_goes_too(running):
    cluster = Cluster()
    running(cluster)
    cluster.ledger.enter(make_job(), "a", done("a"))
    await asyncio.sleep(20)
    assert cluster.ledger.has_pending(make_job())  # the controller makes another report
    cluster.has_job = False
    await asyncio.sleep(20)
    assert not cluster.ledger._books
    assert not cluster.ledger._queue.delayed


async def test_what_finds_no_room_goes_with_the_job(running, monkeypatch):
    monkeypatch.setattr(assign, "__defaults__", (1,))
    cluster = Cluster(make_report({"a": done("a")}))
    running(cluster)
    cluster.ledger.enter(make_job(), "b", done("b"))
    await asyncio.sleep(20)
    assert cluster.ledger.has_pending(make_job())
    cluster.has_job = False
    await asyncio.sleep(20)
    assert not cluster.ledger.has_pending(make_job())
    assert not cluster.ledger._queue.delayed


# --- what the server refuses ------------------------------------------------------------


async def test_a_report_that_takes_no_more_is_not_asked_for_each_node(running):
    cluster = Cluster(make_report())
    cluster.error = TooLarge("etcdserver: request is too large")
    running(cluster)
    for number in range(64):
        cluster.ledger.enter(make_job(), f"n{number}", done(f"n{number}"))
    await asyncio.sleep(50)
    assert cluster.patches == 7  # 64, 32, 16, 8, 4, 2, 1
    assert len(cluster.ledger.pending(make_job())) == 64
    await asyncio.sleep(60)
    assert cluster.patches == 14


async def test_an_entry_that_is_refused_rests_and_keeps_no_other_out(running):
    cluster = Cluster(make_report())
    cluster.error = Invalid("spec is wrong")
    running(cluster)
    cluster.ledger.enter(make_job(), "a", done("a"))
    await asyncio.sleep(10)
    assert cluster.patches == 1
    cluster.ledger.enter(make_job(), "b", done("b"))
    await asyncio.sleep(10)
    assert cluster.patches == 2
    cluster.ledger.enter(make_job(), "a", replace(done("a"), results={"ip": "1"}))
    await asyncio.sleep(10)
    assert cluster.patches == 3
