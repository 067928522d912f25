"""How far the tasks at work have come, in the status of a Job."""

from dataclasses import replace

import pytest

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.task_progress import TaskProgress
from job_controller.core.plan import Plan, WriteReportStatus, WriteStatus, defer_progress_writes
from tests.unit.builders import done, make_cluster
from tests.unit.core.runs import run


def at_work(node, done_, total, pod=None, attempt=1):
    progress = TaskProgress(pod or f"{node}-pod-uid", attempt, done_, total)
    return Evidence(f"{node}-uid", progress=progress)


def cluster_of(**progress):
    cluster = make_cluster("a", "b", "c", gated=True)
    uids = {pod.node_name: pod.uid for pod in cluster.pods}
    for node, (done_, total) in progress.items():
        cluster.evidence[node] = at_work(node, done_, total, uids[node])
    return cluster


def shown(cluster):
    run(cluster)
    status = cluster.job.status
    return status.progress, status.lowest_progress


def test_the_mean_and_the_lowest_of_those_that_print_progress():
    assert shown(cluster_of()) == ("", "")
    assert shown(cluster_of(a=(1, 10), b=(7, 10))) == ("40%", "a 1/10")
    assert shown(cluster_of(b=(999, 1000))) == ("99%", "b 999/1000")
    assert shown(cluster_of(a=(0, 7), b=(0, 3))) == ("0%", "a 0/7")


def test_completed_nodes_have_none():
    cluster = cluster_of(a=(1, 10), b=(5, 10))
    cluster.evidence["a"] = replace(done("a"), progress=cluster.evidence["a"].progress)
    assert shown(cluster) == ("50%", "b 5/10")
    for node in "bc":
        cluster.evidence[node] = done(node)
    assert shown(cluster) == ("", "")


@pytest.mark.parametrize(
    "stale",
    [{"attempt": 2}, {"attempt": 0}, {"pod_uid": "another"}],
)
def test_that_of_another_attempt_does_not_count(stale):
    cluster = cluster_of(a=(1, 10))
    entry = cluster.evidence["a"]
    cluster.evidence["a"] = replace(entry, progress=replace(entry.progress, **stale))
    assert shown(cluster) == ("", "")


def test_the_report_is_not_written_for_progress():
    cluster = cluster_of(a=(1, 10))
    run(cluster)
    before = dict(cluster.report_status)
    cluster.evidence["a"] = at_work("a", 5, 10, cluster.evidence["a"].progress.pod_uid)
    assert shown(cluster) == ("50%", "a 5/10")
    assert cluster.report_status == before


def test_progress_waits_while_writes_pause():
    cluster = cluster_of(a=(1, 10))
    run(cluster)
    old = cluster.job.status
    plan = Plan(actions=(WriteStatus(replace(old, progress="50%", lowest_progress="a 5/10")),))
    deferred = defer_progress_writes(plan, old, 3.0)
    assert (deferred.actions, deferred.requeue_after) == ((), 3.0)
    assert not any(isinstance(each, WriteReportStatus) for each in deferred.actions)
