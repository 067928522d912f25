"""What the controller and the terminator rely on when they name the object that they mean."""

import contextlib

import pytest

from daemonset_job.api import names
from daemonset_job.api.report import new_report
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOB_STATUS, JOBS, PODS
from tests.integration.jobs import job

pytestmark = pytest.mark.timeout(60)

OTHER = "00000000-0000-0000-0000-000000000000"
TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "x", "image": "x"}]},
}
OBJECTS = {
    JOBS: {"spec": {"image": "x"}},
    JOB_REPORTS: {
        "spec": new_report(namespace="", name="x", job_name="x", job_uid="u", spec={"image": "x"})[
            "spec"
        ]
    },
    DAEMON_SETS: {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE}},
    PODS: {"spec": TEMPLATE["spec"]},
}


@contextlib.asynccontextmanager
async def connected(env):
    async with await KubeClient.connect(
        kubeconfig=str(env.kubeconfig), user_agent="test"
    ) as client:
        yield client


async def made(client, resource, namespace):
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    body = {**kind, "metadata": {"name": "x"}, **OBJECTS[resource]}
    return await client.create(resource, body, namespace)


CASES = [
    JOBS,
    JOB_REPORTS,
    DAEMON_SETS,
    DAEMON_SETS.with_subresource("status"),
    PODS,
    PODS.with_subresource("status"),
]


@pytest.mark.parametrize("resource", CASES, ids=lambda resource: resource.name)
async def test_a_patch_that_names_another_uid_is_a_conflict(kube_env, namespace, resource):
    async with connected(kube_env) as client:
        found = await made(client, resource.with_subresource(""), namespace)
        body = {"metadata": {"uid": OTHER, "annotations": {"a": "b"}}, "status": {}}
        with pytest.raises(Conflict):
            await client.merge_patch(resource, "x", body, namespace)
        body["metadata"]["uid"] = found["metadata"]["uid"]
        await client.merge_patch(resource, "x", body, namespace)


@pytest.mark.parametrize("resource", [JOBS, JOB_REPORTS], ids=lambda resource: resource.plural)
async def test_custom_resource_status_is_guarded_by_resource_version_only(
    kube_env, namespace, resource
):
    """All of metadata but the version is ignored there: a UID guards nothing."""
    async with connected(kube_env) as client:
        await made(client, resource, namespace)
        status = resource.with_subresource("status")
        other = {"metadata": {"uid": OTHER}, "status": {"phase": "Running"}}
        await client.merge_patch(status, "x", other, namespace)
        old = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Failed"}}
        with pytest.raises(Conflict):
            await client.merge_patch(status, "x", old, namespace)


async def test_an_apply_that_names_another_uid_changes_and_makes_nothing(kube_env, namespace):
    async with connected(kube_env) as client:
        how = {"field_manager": names.FIELD_MANAGER}
        body = {"metadata": {"uid": OTHER}, **OBJECTS[DAEMON_SETS]}
        with pytest.raises(Conflict):
            await client.apply(DAEMON_SETS, "x", body, namespace, **how)
        with pytest.raises(NotFound):
            await client.get(DAEMON_SETS, "x", namespace)
        await client.apply(DAEMON_SETS, "x", OBJECTS[DAEMON_SETS], namespace, **how)
        with pytest.raises(Conflict):
            await client.apply(DAEMON_SETS, "x", body, namespace, **how)


async def test_a_deletion_that_names_another_uid_is_a_conflict(kube_env, namespace):
    async with connected(kube_env) as client:
        await client.create(JOBS, job(namespace), namespace)
        with pytest.raises(Conflict):
            await client.delete(JOBS, "sample", namespace, uid=OTHER)
        assert await client.get(JOBS, "sample", namespace)


async def test_a_deletion_that_names_an_old_version_is_a_conflict(kube_env, namespace):
    """So a Job whose spec was widened after it was counted is not deleted as it was."""
    async with connected(kube_env) as client:
        created = await client.create(JOBS, job(namespace), namespace)
        wider = {"spec": {"nodes": {"exclude": ["x"]}}}
        changed = await client.merge_patch(JOBS, "sample", wider, namespace)
        status = {"status": {"phase": "Pending"}}
        newest = await client.merge_patch(JOB_STATUS, "sample", status, namespace)
        how = {"uid": created["metadata"]["uid"]}
        for old in (created, changed):
            version = old["metadata"]["resourceVersion"]
            with pytest.raises(Conflict):
                await client.delete(JOBS, "sample", namespace, resource_version=version, **how)
        version = newest["metadata"]["resourceVersion"]
        await client.delete(JOBS, "sample", namespace, resource_version=version, **how)
        with pytest.raises(NotFound):
            await client.get(JOBS, "sample", namespace)


async def test_a_patch_that_changes_nothing_makes_no_new_version(kube_env, namespace):
    async with connected(kube_env) as client:
        made = await client.create(JOBS, job(namespace), namespace)
        status = {"status": {"phase": "Pending"}}
        first = await client.merge_patch(JOB_STATUS, "sample", status, namespace)
        again = await client.merge_patch(JOB_STATUS, "sample", status, namespace)
        assert first["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
