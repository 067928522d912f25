"""What `kubectl dsjob bundle --watch` does to a Job that exists, against a real API server."""

import asyncio

import pytest

from daemonset_job.kube.client.client import KubeClient
from kubectl_dsjob.bundle import replacing
from kubectl_dsjob.bundle.job import JobWish, bundle_job
from kubectl_dsjob.errors import CliError

CONTINUOUS = """
apiVersion: daemonset.darkowlzz.space/v1beta1
kind: Job
metadata: {name: fix}
spec: {completion: {policy: Continuous}}
"""


@pytest.fixture
async def client(kube_env):
    found = await KubeClient.connect(
        kubeconfig=str(kube_env.kubeconfig), user_agent="kubectl-dsjob"
    )
    async with found:
        yield found


def job(namespace, image, template="", bundle="fix"):
    return bundle_job(JobWish("fix", template=template), image, bundle, namespace)


def spec(env, namespace):
    return env.get("dsj", "fix", namespace)["spec"]


async def test_a_job_that_runs_once_is_created_again(client, kube_env, namespace):
    first, done = await replacing.put_job(client, job(namespace, "i:v1"), namespace)
    assert done.startswith("created Job fix")
    second, done = await replacing.put_job(client, job(namespace, "i:v2"), namespace)
    assert done.startswith("deleted Job fix")
    assert first != second
    assert spec(kube_env, namespace)["image"] == "i:v2"


async def test_a_continuous_job_is_changed(client, kube_env, namespace):
    first, _ = await replacing.put_job(client, job(namespace, "i:v1", CONTINUOUS), namespace)
    second, done = await replacing.put_job(client, job(namespace, "i:v2", CONTINUOUS), namespace)
    assert (first, done) == (second, "changed Job fix: a new revision")
    assert spec(kube_env, namespace)["image"] == "i:v2"


async def test_a_job_of_another_client_is_not_touched(client, kube_env, namespace):
    await replacing.put_job(client, job(namespace, "i:v1", bundle="other"), namespace)
    with pytest.raises(CliError, match="not of the bundle 'fix'"):
        await replacing.put_job(client, job(namespace, "i:v2"), namespace)
    assert spec(kube_env, namespace)["image"] == "i:v1"


async def test_the_next_run_waits_for_the_pods_of_the_earlier_one(
    client, kube_env, namespace, monkeypatch
):
    await replacing.put_job(client, job(namespace, "i:v1"), namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "works",
            "namespace": namespace,
            "labels": {"daemonset-job": "true", "job": "fix"},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    kube_env.apply(pod)
    monkeypatch.setattr(replacing, "GONE_SECONDS", 1.0)
    # The Job is gone at the second time, and its pod is not: no other run begins beside it.
    for _ in range(2):
        with pytest.raises(CliError, match="a pod exists") as caught:
            await replacing.put_job(client, job(namespace, "i:v2"), namespace)
        assert f"-n {namespace}" in caught.value.way_out
    monkeypatch.setattr(replacing, "GONE_SECONDS", 30.0)
    await asyncio.to_thread(kube_env.kubectl, "delete", "pod", "works", "-n", namespace, "--force")
    await replacing.put_job(client, job(namespace, "i:v2"), namespace)
    assert spec(kube_env, namespace)["image"] == "i:v2"
