"""Another client changes the DaemonSet of a running Job."""

import asyncio
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.answers import send_json
from daemonset_job.kube.client.request import Request, encode_json
from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS
from tests.integration.harness import condition, open_harness
from tests.integration.simulated_nodes import TaskRun

pytestmark = pytest.mark.timeout(90)

DAEMON_SET = "sample-daemonset-job"
CHANGES: dict[str, dict[str, Any]] = {
    "hostPID": {"hostPID": True},
    "nodeSelector": {"nodeSelector": {"example.com/pool": "x"}},
    "initContainers": {"initContainers": [{"name": "first", "image": "example/other:v1"}]},
    "args": {"containers": [{"name": names.CONTAINER_NAME, "args": ["rm"]}]},
    "image": {"containers": [{"name": names.CONTAINER_NAME, "image": "example/other:v1"}]},
    "privileged": {
        "containers": [
            {
                "name": names.CONTAINER_NAME,
                "securityContext": {"privileged": True, "allowPrivilegeEscalation": True},
            }
        ]
    },
    "sidecar": {"containers": [{"name": "sidecar", "image": "example/other:v1"}]},
    "volumes": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "serviceAccountName": {"serviceAccountName": "admin"},
}


async def settled(harness):
    """Return the DaemonSet's spec once every node has its pod and the gate is up."""

    async def is_gated():
        found = await harness.find(DAEMON_SETS, DAEMON_SET)
        return found if found and found["spec"]["template"]["spec"].get("schedulingGates") else None

    found = await harness.wait_until(is_gated, "gated")
    return found["spec"]


async def alter(harness, change):
    """Change the pods' template as kubectl does: with a strategic merge patch."""
    body: dict[str, Any] = {"spec": {"template": {"spec": change}}}
    request = Request(
        "patch",
        DAEMON_SETS,
        harness.namespace,
        DAEMON_SET,
        query={"fieldManager": "kubectl-patch"},
        body=encode_json(body),
        content_type="application/strategic-merge-patch+json",
    )
    return await send_json(harness.admin._transport, request)


@pytest.mark.parametrize("change", CHANGES)
async def test_foreign_changes_of_the_daemon_set_are_reported_and_reverted(
    kube_env, namespace, change
):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, nodes=("a",), behaviour=lambda _node, _start: TaskRun(after=go)
    ) as harness:
        await harness.apply({"image": "example/task:v1", "ttlSecondsAfterFinished": 600})
        before = await settled(harness)
        altered = await alter(harness, CHANGES[change])
        assert altered["spec"] != before

        async def is_put_right():
            return (await harness.find(DAEMON_SETS, DAEMON_SET))["spec"] == before

        await harness.wait_until(is_put_right, "put right")
        job = await harness.find(JOBS, "sample")
        found = condition(job["status"], "DaemonSetAltered")
        assert (found["status"], found["reason"]) == ("True", "DaemonSetAltered")
        assert "kubectl-patch: template.spec." in found["message"]
        assert "pods created meanwhile may have run something other" in found["message"]

        go.set()
        await harness.wait_job(lambda status: status["phase"] == "Succeeded", "succeeded")
        timeline = (await harness.report())["status"]["timeline"]
        assert any("another client changed the spec of the DaemonSet" in line for line in timeline)
        await harness.wait_events("DaemonSetAltered", "Completed")
        final = await harness.find(DAEMON_SETS, DAEMON_SET)
        owners = {
            (entry["manager"], entry["operation"])
            for entry in final["metadata"]["managedFields"]
            if "f:spec" in entry["fieldsV1"]
        }
        assert owners == {(names.FIELD_MANAGER, "Apply")}
