"""A complete Job whose time to live is over, and what this process has seen of what keeps it."""

import asyncio
from datetime import timedelta
from unittest.mock import AsyncMock, MagicMock

import pytest

from daemonset_job.api.report_status import parse_report_status
from daemonset_job.kube.client.answers import Page
from terminator.deleter import Deleter
from terminator.reconciler import Reconciler
from tests.clocks import FakeClock
from tests.unit.terminator.builders import (
    COMPLETE,
    NOW,
    done,
    make_daemon_set,
    make_job,
    make_node,
    make_pod,
    make_report,
)

KEY = ("default", "sample")
COMPLETED_STATUS = {"completionTime": "2026-01-02T02:03:00Z", "nodes": {"desired": 1}}


class Cluster:
    """A reconciler over caches that a test fills; `look()` is one look at the Job."""

    def __init__(self):
        self.clock = FakeClock(NOW)
        self.caches, self.client = MagicMock(), AsyncMock()
        self.client.page.return_value = Page([], "1", "", 0)
        spec = {"ttl_seconds_after_finished": 5}
        states = {"a": {"uid": "a-uid", "state": "Completed", "attempts": 1}}
        report = make_report({"a": done("a")}, status=parse_report_status({"nodeStates": states}))
        self.caches.reports_of.return_value = [report]
        self.caches.nodes.return_value = {name: make_node(name) for name in "ab"}
        self.caches.nodes_of.return_value = {}
        self.set_job(make_job(COMPLETE, spec=spec, status=COMPLETED_STATUS))
        ledger = MagicMock(**{"has_pending.return_value": False, "pending.return_value": {}})
        self.reconciler = Reconciler(
            self.caches,
            ledger,
            Deleter(self.client, self.clock, self.caches, ledger, MagicMock()),
            default_token=lambda: "done",
            new_scanner=lambda *_callbacks: MagicMock(),
        )
        self.set_pods(make_pod("a"), scheduled=1)

    def set_job(self, job):
        self.caches.job.return_value = self.job = job

    def set_pods(self, *pods, scheduled):
        """Have two nodes desired, of which this number has a pod."""
        self.caches.pods_of.return_value = list(pods)
        self.caches.daemon_set_of.return_value = make_daemon_set(2, scheduled=scheduled)

    def look(self, seconds=0.0):
        self.clock.advance(seconds)
        return asyncio.run(self.reconciler.reconcile(KEY))

    @property
    def is_deleted(self):
        return self.client.delete.await_count > 0


@pytest.fixture
def cluster():
    return Cluster()


def test_a_node_without_a_pod_keeps_the_job_for_ten_minutes_from_now(cluster):
    assert cluster.look() == 600
    assert cluster.look(599) == 1
    assert not cluster.is_deleted
    cluster.look(1)
    assert cluster.is_deleted


def test_a_task_at_work_in_between_gives_ten_minutes_again(cluster):
    cluster.look()
    cluster.set_pods(make_pod("a"), make_pod("b"), scheduled=2)
    assert cluster.look(3600) is None
    cluster.set_pods(make_pod("a"), scheduled=1)
    assert cluster.look(60) == 600
    assert not cluster.is_deleted


def test_another_job_of_the_name_starts_from_the_beginning(cluster):
    cluster.look()
    other = make_job(
        COMPLETE, spec={"ttl_seconds_after_finished": 5}, status=COMPLETED_STATUS, uid="other"
    )
    cluster.set_job(other)
    cluster.caches.daemon_set_of.return_value = make_daemon_set(2, scheduled=1, owner_uid="other")
    report = cluster.caches.reports_of.return_value[0]
    cluster.caches.reports_of.return_value = [
        make_report(report.evidence, status=report.status, job_uid="other")
    ]
    assert cluster.look(599) == 600
    cluster.caches.job.return_value = None
    cluster.look()
    cluster.set_job(other)
    assert cluster.look(timedelta(minutes=5).total_seconds()) == 600


def test_a_clock_that_is_set_makes_no_job_overdue():
    cluster = Cluster()
    assert cluster.look() == 600
    cluster.clock.set(cluster.clock.now() + timedelta(minutes=10))
    cluster.look(1)
    assert not cluster.is_deleted


def test_a_pod_that_is_not_cached_keeps_the_job_for_ten_minutes_at_most(cluster):
    """The numbers agree by chance: the DaemonSet counts a pod that the cache lacks."""
    owner = [{"uid": make_daemon_set(1).uid, "controller": True}]
    unseen = {"metadata": {"name": "b-pod", "uid": "b-pod", "ownerReferences": owner}}
    cluster.client.page.return_value = Page([unseen], "1", "", 100)
    cluster.caches.daemon_set_of.return_value = make_daemon_set(1)
    assert cluster.look() == 1.0
    assert cluster.look(598) == 1.0
    assert not cluster.is_deleted
    cluster.look(2)
    assert cluster.is_deleted


def test_a_job_is_deleted_once_the_caches_have_all_of_its_pods(cluster):
    cluster.caches.daemon_set_of.return_value = make_daemon_set(1)
    cluster.look()
    assert cluster.is_deleted
    (what,) = [call.args[0] for call in cluster.client.page.await_args_list]
    assert what.label_selector == "daemonset.darkowlzz.space/job-uid=" + cluster.job.uid
    assert what.metadata_only
