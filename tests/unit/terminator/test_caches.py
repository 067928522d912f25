"""Whether a change is looked at alone and at once, or together with what else comes."""

from dataclasses import replace

import pytest

from daemonset_job.api.node import Node, parse_node
from daemonset_job.kube.client.client import KubeClient
from terminator.caches import Caches
from tests.clocks import FakeClock
from tests.unit.terminator.builders import (
    COMPLETE,
    NOW,
    make_daemon_set,
    make_job,
    make_pod,
    make_report,
)

KEY = ("default", "sample")


class Listener:
    def __init__(self):
        self.affected = []
        self.entering = set()

    def job_affected(self, key, *, debounced):
        self.affected.append((key, debounced))

    def report_changed(self, report):
        pass

    def job_deleted(self, job):
        pass

    def needs_whole_reports(self, job_uid):
        return job_uid in self.entering


def caches_with(job):
    listener = Listener()
    caches = Caches(
        KubeClient.__new__(KubeClient),
        FakeClock(NOW),
        listener,
        namespaces=(),
        pod_label_selector="",
    )
    caches._jobs.store.put(job)
    return caches, listener


@pytest.mark.parametrize(
    ("job", "debounced"),
    [
        (make_job(), True),
        (make_job(COMPLETE), False),
        (make_job({**COMPLETE, "status": "False"}), True),
    ],
    ids=["running", "complete", "not yet complete"],
)
def test_a_complete_job_waits_for_nothing_but_its_report(job, debounced):
    caches, listener = caches_with(job)
    caches._report_changed(None, make_report())
    assert listener.affected == [(KEY, debounced)]


def test_a_report_whose_job_is_gone_concerns_its_key():
    caches, listener = caches_with(make_job(name="another"))
    caches._report_changed(None, make_report())
    assert listener.affected == [(KEY, True)]


def selecting(**pod_spec):
    """Return a DaemonSet of the Job whose pods are for nodes of a zone."""
    return replace(make_daemon_set(1), spec={"template": {"spec": pod_spec}})


ZONED = Node("a", "a-uid", "1", labels={"zone": "a", "pool": "x"})


@pytest.mark.parametrize(
    ("labels", "affected"),
    [
        ({"zone": "b", "pool": "x"}, [(KEY, True)]),
        ({"pool": "x"}, [(KEY, True)]),
        ({"zone": "a", "pool": "y"}, []),
        ({"zone": "a", "pool": "x"}, []),
    ],
    ids=["changed", "gone", "another", "none"],
)
def test_a_label_concerns_the_jobs_that_choose_nodes_by_it(labels, affected):
    caches, listener = caches_with(make_job())
    caches._jobs.store.put(make_job(name="other", uid="other"))
    caches._daemon_sets.store.put(selecting(nodeSelector={"zone": "a"}))
    caches._node_changed(ZONED, replace(ZONED, resource_version="2", labels=labels))
    assert listener.affected == affected


def test_a_heartbeat_concerns_no_job():
    caches, listener = caches_with(make_job())
    caches._daemon_sets.store.put(selecting(nodeSelector={"zone": "a"}))

    def node(version, annotation):
        meta = {"name": "a", "uid": "a-uid", "labels": {"zone": "a"}}
        return parse_node(
            {"metadata": {**meta, "resourceVersion": version, "annotations": {"beat": annotation}}}
        )

    caches._node_changed(node("1", "first"), node("2", "second"))
    assert listener.affected == []


def test_a_daemon_set_of_another_namespace_concerns_no_job():
    caches, listener = caches_with(make_job())
    found = make_daemon_set(1)
    caches._daemon_set_changed(None, replace(found, namespace="tenant"))
    assert listener.affected == []
    caches._daemon_set_changed(None, found)
    assert listener.affected == [(KEY, False)]


def test_a_pod_without_an_owner_concerns_no_job():
    caches, listener = caches_with(make_job())
    caches._pod_changed(None, make_pod("a"))
    assert listener.affected == []


def test_pods_and_reports_of_another_namespace_do_not_count():
    job, daemon_set = make_job(), make_daemon_set(1)
    caches, listener = caches_with(job)
    caches._daemon_sets.store.put(daemon_set)
    own = make_pod("a", owner_uid=daemon_set.uid)
    foreign = replace(own, namespace="elsewhere")
    for pod in (own, foreign):
        caches._pods.store.put(pod)
    caches._pod_changed(None, foreign)
    assert caches.pods_of(daemon_set) == [own]
    assert listener.affected == []
    report = make_report()
    for found in (report, replace(report, namespace="elsewhere")):
        caches._reports.store.put(found)
    assert caches.reports_of(job) == [report]
