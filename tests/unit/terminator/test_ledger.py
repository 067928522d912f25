"""What the ledger keeps of a run, and what it costs to enter a node."""

import asyncio
from dataclasses import replace

import pytest

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.report_summary import summarize
from daemonset_job.kube.client.errors import Invalid, KubeError, NotFound, TooLarge
from job_controller.core.state.node_exits import UNREAD_LOG_GRACE
from terminator.ledger.report_patches import REFUSALS_LIMIT
from terminator.ledger.run_buffer import REFUSED_SECONDS
from terminator.ledger.run_reports import RunReports
from terminator.ledger.writer import Ledger
from terminator.ledger.written_reports import WRITTEN_SECONDS
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
        self.whole = []  # what there is to read where the caches have summaries
        self.stored = {}
        self.patches = 0
        self.error: KubeError | None = None
        self.takes = None  # whether the report of that name takes these entries; None: no report
        self.version = 1
        self.refusals = []
        self.ledger = Ledger(
            self,
            Metrics(),
            reports=RunReports(
                lambda _job: list(self.reports), lambda _uid: self.has_job, self.read_whole_reports
            ),
            on_refused=lambda _job, words: self.refusals.append(words),
            flush_seconds=0.5,
        )

    async def read_whole_reports(self, _job):
        self.reports = self.whole or self.reports

    async def merge_patch(self, _resource, name, body, namespace):
        self.patches += 1
        if self.error is not None:
            raise self.error
        if self.takes is None:
            raise NotFound("the report is gone")
        self.takes(name, body["evidence"])
        return self._take(name, body["evidence"])

    def _take(self, name, entries):
        """Enter them, as the server does: the cache receives it when a test says so."""
        self.version += 1
        self.stored.setdefault(name, {}).update(entries)
        return {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": next(r.uid for r in self.reports if r.name == name),
                "resourceVersion": str(self.version),
            },
            "spec": {"job": {"name": "sample", "uid": "job-uid"}},
            "evidence": self.stored[name],
        }


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
    assert ledger.record(make_job(), "c", done("c"))
    assert not ledger.record(make_job(), "b", done("b"))


async def test_a_node_that_a_higher_shard_completes_is_not_entered_again():
    reports = [
        make_report({"a": Evidence("a-uid", last_lines=("x",))}),
        make_report({"a": done("a")}, shard=1),
    ]
    assert not make_ledger(reports).record(make_job(), "a", done("a"))


async def test_a_report_elsewhere_says_nothing():
    ledger = make_ledger([make_report({"a": done("a")}, namespace="elsewhere")])
    assert ledger.evidence(make_job()) == {}
    assert ledger.record(make_job(), "a", done("a"))
    assert ledger.evidence(make_job()) == {"a": done("a")}


async def test_evidence_of_which_a_part_was_written_for_lack_of_room_is_not_pending(running):
    """The deletion of the Job would wait for it, and for the next write."""
    begun = Evidence("", last_lines=("x",), attempt=1)
    names = [f"n{number:03}" for number in range(250)]
    cluster = Cluster(make_report({n: replace(begun, node_uid=f"uid-{n}") for n in names}))
    cluster.takes = lambda *_: None
    running(cluster)
    job = make_job(spec={"results": ("a", "b", "c", "d")})
    results = dict.fromkeys(("a", "b", "c", "d"), "x" * 1024)
    for name in names:
        cluster.ledger.record(job, name, replace(done(name), results=results))
    await asyncio.sleep(1)
    assert cluster.patches == 1
    assert any(each.get("omittedResults") for each in cluster.stored["sample-0"].values())
    assert not cluster.ledger.has_pending(job)


# --- runs that are over -----------------------------------------------------------------


async def test_a_book_goes_with_its_job_and_its_reports(running):
    """A namespace that is deleted during a run: Jobs first, reports next."""
    cluster = Cluster(make_report())
    running(cluster)
    cluster.ledger.record(make_job(), "a", done("a"))
    cluster.has_job = False
    await asyncio.sleep(2)
    assert cluster.patches > 0  # its report may be there yet
    cluster.reports.clear()
    cluster.ledger.report_changed("job-uid")
    patches = cluster.patches
    await asyncio.sleep(100)
    assert cluster.patches == patches
    assert not cluster.ledger._buffers
    assert not cluster.ledger._queue.delayed


async def test_a_book_of_which_the_last_report_was_gone_first_goes_too(running):
    cluster = Cluster()
    running(cluster)
    cluster.ledger.record(make_job(), "a", done("a"))
    await asyncio.sleep(20)
    assert cluster.ledger.has_pending(make_job())  # the controller makes another report
    cluster.has_job = False
    await asyncio.sleep(20)
    assert not cluster.ledger._buffers
    assert not cluster.ledger._queue.delayed


async def test_what_finds_no_room_goes_with_the_job(running, monkeypatch):
    for name in ("NODES_PER_SHARD", "NODES_PER_ROLLOUT_SHARD"):
        monkeypatch.setattr(f"terminator.ledger.writer.{name}", 1)
    cluster = Cluster(make_report({"a": done("a")}))
    running(cluster)
    cluster.ledger.record(make_job(), "b", done("b"))
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
        cluster.ledger.record(make_job(), f"n{number}", done(f"n{number}"))
    await asyncio.sleep(10)
    assert cluster.patches == 7  # 64, 32, 16, 8, 4, 2, 1
    assert len(cluster.ledger.pending(make_job())) == 64
    await asyncio.sleep(20)
    assert cluster.patches == 14
    await asyncio.sleep(600)
    assert cluster.patches <= 7 * (3 + 600 / 60)


async def test_an_entry_that_is_refused_rests_and_keeps_no_other_out(running):
    cluster = Cluster(make_report())
    cluster.error = Invalid("spec is wrong")
    running(cluster)
    cluster.ledger.record(make_job(), "a", done("a"))
    await asyncio.sleep(10)
    assert cluster.patches == 1
    cluster.ledger.record(make_job(), "b", done("b"))
    await asyncio.sleep(10)
    assert cluster.patches == 2
    cluster.ledger.record(make_job(), "a", replace(done("a"), results={"ip": "1"}))
    await asyncio.sleep(10)
    assert cluster.patches == 3


def test_refused_evidence_is_sent_again_before_the_controller_judges_without_it():
    assert REFUSED_SECONDS[0] < UNREAD_LOG_GRACE.total_seconds()


def takes_all(_name, _entries):
    pass


def takes_none(_name, _entries):
    raise Invalid("a policy says no")


def takes_in_another(name, _entries):
    if name == "sample-0":
        raise TooLarge("etcdserver: request is too large")


def enter_many(cluster, count):
    for number in range(count):
        cluster.ledger.record(make_job(), f"n{number:03}", done(f"n{number:03}"))


async def test_what_one_report_takes_no_more_goes_to_another(running):
    cluster = Cluster(make_report())
    cluster.takes = takes_in_another
    running(cluster)
    enter_many(cluster, 8)
    await asyncio.sleep(5)
    assert len(cluster.ledger.pending(make_job())) == 8
    cluster.reports.append(make_report(shard=1))
    cluster.ledger.report_changed("job-uid")
    await asyncio.sleep(10)
    assert len(cluster.stored["sample-1"]) == 8
    assert not cluster.ledger.pending(make_job())


async def test_node_recorded_in_a_full_shard_stays_there(running):
    """Two entries of one node would say two things."""

    began = Evidence("a-uid", last_lines=("x",))
    cluster = Cluster(make_report({"a": began}), make_report(shard=1))
    cluster.takes = takes_in_another
    running(cluster)
    cluster.ledger.record(make_job(), "a", done("a"))
    await asyncio.sleep(REFUSED_SECONDS[0] - 5)
    assert (cluster.patches, cluster.stored) == (1, {})
    await asyncio.sleep(10)
    assert cluster.patches == 2


async def test_one_entry_among_many_that_is_refused_costs_few_patches(running):
    def takes(_name, entries):
        if "n500" in entries:
            raise Invalid("a policy says no")

    cluster = Cluster(make_report())
    cluster.takes = takes
    running(cluster)
    enter_many(cluster, 999)
    await asyncio.sleep(15)
    assert cluster.ledger.pending(make_job()).keys() == {"n500"}
    assert cluster.patches <= 21


async def test_a_report_that_refuses_everything_is_sent_few_patches(running):
    cluster = Cluster(make_report())
    cluster.takes = takes_none
    running(cluster)
    enter_many(cluster, 999)
    await asyncio.sleep(15)
    assert cluster.patches == REFUSALS_LIMIT
    assert len(cluster.ledger.pending(make_job())) == 999
    await asyncio.sleep(REFUSED_SECONDS[0])
    assert cluster.patches == 2 * REFUSALS_LIMIT


async def test_once_a_report_takes_what_it_refused_the_others_do_not_wait(running):
    """Their own refusals came later, so they would wait for up to a minute more."""
    cluster = Cluster(make_report())
    cluster.takes = takes_none
    running(cluster)
    cluster.ledger.record(make_job(), "a", done("a"))
    await asyncio.sleep(10)
    cluster.ledger.record(make_job(), "b", done("b"))
    await asyncio.sleep(5)
    cluster.takes = takes_all
    await asyncio.sleep(REFUSED_SECONDS[0] - 15 + 2)
    assert cluster.stored["sample-0"].keys() == {"a", "b"}
    assert not cluster.ledger.pending(make_job())


async def test_many_refused_entries_do_not_block_the_others(running):
    def takes(_name, entries):
        if any(int(node[1:]) % 20 == 0 for node in entries):
            raise Invalid("a policy says no")

    cluster = Cluster(make_report())
    cluster.takes = takes
    running(cluster)
    enter_many(cluster, 400)
    await asyncio.sleep(10 * REFUSED_SECONDS[1])
    pending = cluster.ledger.pending(make_job())
    assert pending.keys() == {f"n{number:03}" for number in range(0, 400, 20)}


# --- what was written -------------------------------------------------------------------


def cached(cluster, version, nodes=()):
    """Let the cache have the report as it was at a version."""
    evidence = {node: done(node) for node in nodes}
    cluster.reports[:] = [make_report(evidence, resource_version=str(version))]
    cluster.ledger.report_changed("job-uid")


async def test_what_was_written_counts_before_the_cache_has_it(running):
    cluster = Cluster(make_report(resource_version="10"))
    cluster.takes, cluster.version = takes_all, 100
    running(cluster)
    for number, node in enumerate("abc"):
        cluster.ledger.record(make_job(), node, done(node))
        await asyncio.sleep(2)
        assert cluster.patches == number + 1
        assert cluster.ledger.evidence(make_job()).keys() == set("abc"[: number + 1])
        assert not cluster.ledger.record(make_job(), node, done(node))
        cached(cluster, 10 + number)  # the controller has written
    cached(cluster, 103, "abc")
    assert not cluster.ledger._buffers


@pytest.mark.parametrize(("version", "seconds"), [(9, 0.0), (10, WRITTEN_SECONDS)])
async def test_what_was_written_and_is_lost_is_entered_again(running, version, seconds):
    """etcd was restored from a backup, of before what was patched or of before the patch."""
    cluster = Cluster(make_report(resource_version="10"))
    cluster.takes, cluster.version = takes_all, 100
    running(cluster)
    cluster.ledger.record(make_job(), "a", done("a"))
    await asyncio.sleep(2)
    cached(cluster, version)
    await asyncio.sleep(seconds)
    assert cluster.ledger.evidence(make_job()) == {}
    assert cluster.ledger.evidence_of(make_job(), "a") is None
    assert cluster.ledger.record(make_job(), "a", done("a"))
    await asyncio.sleep(2)
    assert cluster.patches == 2


async def test_nothing_is_entered_in_a_report_of_which_there_is_a_summary(running):
    whole = make_report({"a": done("a")}, name="sample-job-uid")
    cluster = Cluster(summarize(whole))
    cluster.whole = [whole]
    cluster.takes = lambda _name, _entries: None
    cluster.ledger.record(make_job(), "a", done("a"))
    cluster.ledger.record(make_job(), "b", done("b"))
    running(cluster)
    await asyncio.sleep(5)
    assert cluster.stored == {whole.name: {"b": done("b").to_raw()}}


async def test_runs_of_which_nothing_is_left_to_do_are_swept():
    cluster = Cluster(make_report({}))
    cluster.ledger.record(make_job(), "a", done("a"))
    cluster.ledger.drop_idle_runs()
    assert "job-uid" in cluster.ledger
    cluster.takes = lambda _name, _entries: None
    await cluster.ledger.flush()
    cluster.ledger.drop_idle_runs()
    assert "job-uid" in cluster.ledger  # the cache has yet to receive what was written
    cluster.reports = [replace(cluster.reports[0], resource_version="99")]
    cluster.ledger.drop_idle_runs()
    assert "job-uid" not in cluster.ledger
