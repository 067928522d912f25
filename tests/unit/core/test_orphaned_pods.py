"""Pods of a start that is taken back, whose DaemonSet was deleted with `--cascade=orphan`.

The DaemonSet of the next start would adopt them, and they have what the Job ran before.
"""

from dataclasses import replace

import pytest

from daemonset_job.api import names
from daemonset_job.api.pod import parse_pod
from daemonset_job.api.states import ConditionType
from job_controller.core.decide import decide
from job_controller.core.plan import (
    CheckJobUnchanged,
    CheckNoPodMayStart,
    DeletePods,
    DeleteReport,
    DryRunDaemonSet,
    RefusedWrite,
    WriteStatus,
)
from job_controller.core.settings import Settings
from job_controller.core.state.ended_pods import is_orphan
from job_controller.core.state.left_nodes import LEFT_PODS_SECONDS
from job_controller.snapshots import cached_snapshot
from tests.unit.builders import NOW, gated_pod, make_pod
from tests.unit.core.runs import spec
from tests.unit.core.test_corrected_failures import ended, failed
from tests.unit.core.test_taken_back_start import apply, kinds, taken_back, written
from tests.unit.test_caches import KEY, NotedCaches

NODES = ("a", "b")
ORPHANS = tuple(gated_pod(node, owner_uid="") for node in NODES)


def failed_without_daemon_set():
    cluster = spec(failed(), suspend=True)
    cluster.has_daemon_set, cluster.pods = False, []
    return cluster


def decided(cluster, **changes):
    return decide(cluster.snapshot(ended_pods=ended(*NODES), **changes), NOW)


def deleted(plan):
    (action,) = [each for each in plan.actions if isinstance(each, DeletePods)]
    return [pod.node_name for pod in action.pods]


# --- before the start is taken back -----------------------------------------------------------


def test_orphans_are_deleted_before_the_start_of_a_failed_run_is_taken_back():
    cluster = failed_without_daemon_set()
    plan = decided(cluster, orphans=ORPHANS)
    assert kinds(plan) == [DeletePods, WriteStatus]
    assert deleted(plan) == ["a", "b"]
    assert plan.requeue_after == LEFT_PODS_SECONDS
    assert written(plan).condition(ConditionType.SUSPENDED).message.endswith("be changed: a,b")
    assert kinds(decided(cluster)) == [CheckNoPodMayStart, WriteStatus]


def test_an_orphan_on_a_node_has_begun():
    begun = (make_pod("b", state="waiting", owner_uid=""),)
    plan = decided(failed_without_daemon_set(), orphans=begun)
    assert DeletePods not in kinds(plan)
    words = written(plan).condition(ConditionType.SUSPENDED).message
    assert words.endswith("a task has begun, or may have, on b")


# --- when it is taken back --------------------------------------------------------------------


def test_the_job_starts_again_only_without_orphans():
    cluster = spec(taken_back(), suspend=False)
    cluster.has_daemon_set, cluster.has_report = False, False
    plan = decided(cluster, orphans=ORPHANS)
    assert kinds(plan) == [CheckJobUnchanged, DeletePods, WriteStatus]
    assert (deleted(plan), plan.requeue_after) == (["a", "b"], LEFT_PODS_SECONDS)
    assert kinds(decided(cluster)) == [DryRunDaemonSet]
    assert kinds(decided(cluster, is_dry_run_done=True)) == [CheckNoPodMayStart, WriteStatus]


def test_the_job_does_not_wait_for_orphans_that_are_being_deleted():
    """No DaemonSet adopts them. On a machine that is down they never end."""
    cluster = spec(taken_back(), suspend=False)
    cluster.has_daemon_set, cluster.has_report = False, False
    ending = tuple(replace(pod, is_terminating=True) for pod in ORPHANS)
    assert kinds(decided(cluster, orphans=ending)) == [DryRunDaemonSet]
    plan = decided(cluster, orphans=ending, is_dry_run_done=True)
    assert kinds(plan) == [CheckNoPodMayStart, WriteStatus]


def test_orphans_go_with_all_else_that_is_left():
    cluster = taken_back()
    cluster.has_daemon_set = False
    plan = decided(cluster, orphans=ORPHANS)
    assert kinds(plan) == [CheckJobUnchanged, DeleteReport, DeletePods, WriteStatus]


def test_a_refused_deletion_is_in_the_status_and_keeps_the_job_from_its_start():
    cluster = spec(taken_back(), suspend=False)
    cluster.has_daemon_set, cluster.has_report = False, False
    refusals = {RefusedWrite.DELETION: "no pod goes"}
    plan = decided(cluster, orphans=ORPHANS, refusals=refusals, is_dry_run_done=True)
    assert kinds(plan) == [CheckJobUnchanged, WriteStatus]
    assert "no pod goes" in written(plan).condition(ConditionType.PROGRESSING).message


def test_what_replaces_the_reason_is_not_written_before_the_pods_are_read():
    """The user resumes the Job, and it has to wait for another one."""
    cluster = spec(taken_back(), suspend=False, after=("other",))
    cluster.has_daemon_set, cluster.has_report = False, False
    plan = decided(cluster)
    assert kinds(plan) == [CheckNoPodMayStart, WriteStatus]
    apply(cluster, plan)
    assert CheckNoPodMayStart not in kinds(decided(cluster, is_dry_run_done=True))


# --- which pods are orphans --------------------------------------------------------------------


def raw_pod(of, **changes):
    labels = {
        names.LABEL_DAEMON_SET: of.daemon_set_name,
        names.LABEL_JOB: of.name,
        names.LABEL_MANAGED: "true",
        names.LABEL_JOB_UID: of.uid,
        **changes,
    }
    meta = {"name": "x", "namespace": of.namespace, "uid": "x-uid", "labels": labels}
    return {"metadata": meta}


def test_a_pod_with_all_labels_of_the_job_and_no_controller_is_an_orphan():
    job = spec(taken_back(), suspend=False).job
    noted = NotedCaches(job)
    noted.caches._pods.store.put(pod := parse_pod(raw_pod(job)))
    assert cached_snapshot(noted.caches, KEY, job, Settings()).orphans == (pod,)


@pytest.mark.parametrize("label", [names.LABEL_DAEMON_SET, names.LABEL_JOB])
def test_a_pod_that_a_user_has_relabelled_is_not(label):
    job = taken_back().job
    assert not is_orphan(parse_pod(raw_pod(job, **{label: "debug"})), job)
    raw = raw_pod(job)
    del raw["metadata"]["labels"][label]
    assert not is_orphan(parse_pod(raw), job)


@pytest.mark.parametrize("kind", ["DaemonSet", "ReplicaSet"])
def test_a_pod_that_an_object_controls_is_not(kind):
    job = taken_back().job
    raw = raw_pod(job)
    owner = {"kind": kind, "name": "x", "uid": "u", "apiVersion": "apps/v1"}
    raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    assert not is_orphan(parse_pod(raw), job)
    raw["metadata"]["ownerReferences"] = [owner]
    assert is_orphan(parse_pod(raw), job)


def test_pods_of_a_run_that_nobody_corrects_are_left_to_its_daemon_set():
    """It adopts them, and they are what it would create."""
    job = failed().job
    noted = NotedCaches(job)
    noted.caches._pods.store.put(parse_pod(raw_pod(job)))
    assert cached_snapshot(noted.caches, KEY, job, Settings()).orphans == ()
