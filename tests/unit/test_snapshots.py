"""What the controller gathers about a Job from its caches, and what of it is of others."""

from dataclasses import replace

import pytest

from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import parse_spec
from daemonset_job.api.owners import owner_reference
from daemonset_job.api.pod import Pod, parse_pod
from job_controller.core.settings import Settings
from job_controller.snapshots import cached_snapshot
from tests.unit.builders import DS_UID, make_cluster
from tests.unit.core.rollbacks import SPEC
from tests.unit.test_caches import KEY, NotedCaches


@pytest.fixture
def job() -> Job:
    return replace(make_cluster("a").job, raw_spec=SPEC, spec=parse_spec(SPEC))


def labelled_pod(job: Job, owner: dict[str, object] | None) -> Pod:
    meta = {
        "name": "x",
        "namespace": job.namespace,
        "uid": "x-uid",
        "labels": {"daemonset-job": "true", "daemonset.darkowlzz.space/job-uid": job.uid},
        "ownerReferences": [owner] if owner else [],
    }
    return parse_pod({"metadata": meta, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}})


def daemon_set_owner(name: str, **changes: object) -> dict[str, object]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "deleted"}
    return {**owner, "controller": True, **changes}


def left_pods(job: Job, pod: Pod) -> tuple[Pod, ...]:
    noted = NotedCaches(job, daemon_sets=[make_cluster("a").daemon_set()])
    noted.caches._pods.store.put(pod)
    return cached_snapshot(noted.caches, KEY, job, Settings()).left_pods


def test_a_pod_of_a_deleted_daemon_set_of_the_job_is_left(job):
    pod = labelled_pod(job, daemon_set_owner(job.daemon_set_name))
    assert left_pods(job, pod) == (pod,)


@pytest.mark.parametrize(
    "owner",
    [
        None,
        daemon_set_owner("another"),
        daemon_set_owner("sample-daemonset-job", uid=DS_UID),
        daemon_set_owner("sample-daemonset-job", uid=""),
        daemon_set_owner("sample-daemonset-job", controller=False),
        daemon_set_owner("sample-daemonset-job", kind="StatefulSet"),
        daemon_set_owner("sample-daemonset-job", apiVersion="example.com/v1"),
        owner_reference("Job", "sample-daemonset-job", "y"),
    ],
)
def test_a_pod_that_only_carries_the_labels_of_a_job_is_not(job, owner):
    """It would hold up the rollback for as long as it runs."""
    assert job.daemon_set_name == "sample-daemonset-job"
    assert left_pods(job, labelled_pod(job, owner)) == ()
