"""Nodes that are tainted during a run: their pods stay, and the DaemonSet wants fewer nodes.

A taint keeps the new pods of all tests off, so these tests need their nodes for themselves.
"""

import time

import pytest

from tests.e2e.cluster import consistently, eventually, make_job
from tests.e2e.jobs import (
    GO,
    LOOK_SECONDS,
    STOPS_AT_ONCE,
    assert_succeeded,
    is_unfinished,
    only_on,
    pod_on,
    set_quota,
    tainted,
    wait_condition,
    wait_unfinished,
    working,
)

pytestmark = pytest.mark.alone

# A task that takes its time to end after the signal to, until the test makes the file.
STOPS_SLOWLY = "trap 'while [ ! -e /basetarget/release ]; do sleep 0.2; done; exit 1' TERM; " + GO


def wait_taint_counted(cluster, namespace, name):
    """Wait until the DaemonSet controller counts one node less.

    A taint alone gives it no reason to look (syncNodeUpdate in pkg/controller/daemon, v1.34): the
    next change of any of its pods does. So a pod is changed until it has.
    """
    daemon_set = ("daemonset", f"{name}-daemonset-job", "-n", namespace)
    selector = ("pods", "-l", f"job={name}", "-n", namespace)

    def is_counted():
        mark = f"e2e.example.com/looked-at={time.monotonic_ns()}"
        cluster.kubectl("annotate", *selector, "--overwrite", mark)
        status = cluster.get(*daemon_set)["status"]
        return status["desiredNumberScheduled"] == len(cluster.nodes) - 1

    eventually(is_counted, 60, "the taint is counted")


def test_active_node_is_awaited_although_a_completed_one_is_tainted(cluster, namespace, folder):
    slow, done = cluster.nodes[0], cluster.nodes[-1]
    template = {"spec": {"terminationGracePeriodSeconds": 300}}
    task = working(only_on(slow, STOPS_SLOWLY))
    job = make_job("tainted", namespace, mountPath=folder, template=template, **task)
    cluster.apply(job)
    cluster.wait_only(namespace, "tainted", slow, folder)

    with tainted(cluster, done):
        wait_taint_counted(cluster, namespace, "tainted")
        pod = pod_on(cluster, namespace, "tainted", slow)
        cluster.kubectl("delete", "pod", pod, "-n", namespace, "--wait=false")
        try:
            why = "a node is at work"
            consistently(lambda: is_unfinished(cluster, namespace, "tainted", why), LOOK_SECONDS)
        finally:
            cluster.on_node(slow, f"touch {folder}/release")
        wait_unfinished(
            cluster,
            namespace,
            "tainted",
            lambda: cluster.runs(folder)[slow] == 2,
            "the successor is at work",
        )
        consistently(lambda: is_unfinished(cluster, namespace, "tainted", why), 3)
        cluster.on_node(slow, f"touch {folder}/go")
        assert_succeeded(cluster, namespace, "tainted", folder, set(cluster.nodes))
    assert cluster.runs(folder) == {n: (2 if n == slow else 1) for n in cluster.nodes}


@pytest.mark.on_demand
def test_node_with_a_refused_pod_is_awaited_although_another_is_tainted(cluster, namespace, folder):
    slow, done = cluster.nodes[0], cluster.nodes[-1]
    task = working(only_on(slow, STOPS_AT_ONCE))
    cluster.apply(make_job("refused", namespace, mountPath=folder, **task))
    cluster.wait_only(namespace, "refused", slow, folder)
    set_quota(cluster, namespace, "full", pods="2")

    def is_reported():
        found = cluster.condition(namespace, "refused", "Progressing")
        return found.get("reason") == "FailedCreate"

    with tainted(cluster, done):
        wait_taint_counted(cluster, namespace, "refused")
        pod = pod_on(cluster, namespace, "refused", slow)
        cluster.kubectl("delete", "pod", pod, "-n", namespace, "--wait=false")
        wait_unfinished(cluster, namespace, "refused", is_reported, "the refusal is reported")
        why = "a node has yet to do its work"
        consistently(lambda: is_unfinished(cluster, namespace, "refused", why), LOOK_SECONDS)
        cluster.kubectl("delete", "resourcequota", "full", "-n", namespace)
        wait_unfinished(
            cluster,
            namespace,
            "refused",
            lambda: cluster.runs(folder)[slow] == 2,
            "the successor is at work",
        )
        cluster.on_node(slow, f"touch {folder}/go")
        assert_succeeded(cluster, namespace, "refused", folder, set(cluster.nodes))


@pytest.mark.parametrize("which", ["completed", "at work"])
def test_a_run_ends_though_one_of_its_nodes_is_tainted(cluster, namespace, folder, which):
    slow, done = cluster.nodes[0], cluster.nodes[-1]
    task = working(only_on(slow, GO))
    cluster.apply(make_job("ends", namespace, mountPath=folder, **task))
    cluster.wait_only(namespace, "ends", slow, folder)

    with tainted(cluster, done if which == "completed" else slow):
        wait_taint_counted(cluster, namespace, "ends")
        cluster.on_node(slow, f"touch {folder}/go")
        assert_succeeded(cluster, namespace, "ends", folder, set(cluster.nodes))
    assert set(cluster.runs(folder).values()) == {1}


@pytest.mark.on_demand
def test_a_job_kept_by_its_time_to_live_goes_though_a_node_is_tainted(cluster, namespace, folder):
    job = make_job("kept", namespace, mountPath=folder, ttlSecondsAfterFinished=15, **working(":"))
    cluster.apply(job)
    wait_condition(cluster, namespace, "kept", "Complete")

    with tainted(cluster, cluster.nodes[-1]):
        wait_taint_counted(cluster, namespace, "kept")
        assert_succeeded(cluster, namespace, "kept", folder, set(cluster.nodes))


def test_a_cordoned_node_does_the_work_as_well(cluster, namespace, folder):
    # A cordon keeps other pods off; the DaemonSet controller lets its own pods tolerate it.
    cordoned = cluster.nodes[-1]
    cluster.kubectl("cordon", cordoned)
    try:
        cluster.apply(make_job("cordoned", namespace, mountPath=folder, **working(":")))
        assert_succeeded(cluster, namespace, "cordoned", folder, set(cluster.nodes))
    finally:
        cluster.kubectl("uncordon", cordoned)
    assert set(cluster.runs(folder).values()) == {1}
