"""Somebody changes the DaemonSet of a running Job."""

import asyncio
import json
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS
from tests.integration.playing import Run
from tests.integration.stage import condition, stage

pytestmark = pytest.mark.timeout(90)

SET = "sample-daemonset-job"
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


async def settled(play):
    """Return the DaemonSet's spec once every node has its pod and the gate is up."""

    async def is_gated():
        found = await play.find(DAEMON_SETS, SET)
        return found if found and found["spec"]["template"]["spec"].get("schedulingGates") else None

    found = await play.until(is_gated, "gated")
    return found["spec"]


async def alter(play, change):
    """Change the pods' template as kubectl does: with a strategic merge patch."""
    body: dict[str, Any] = {"spec": {"template": {"spec": change}}}
    return await play.admin._patch(
        DAEMON_SETS.path(play.namespace, SET),
        "daemonsets",
        json.dumps(body).encode(),
        "application/strategic-merge-patch+json",
        {"fieldManager": "kubectl-patch"},
        10.0,
    )


@pytest.mark.parametrize("change", CHANGES)
async def test_what_another_client_puts_into_the_daemon_set_is_told_and_removed(
    kube_env, namespace, change
):
    go = asyncio.Event()
    async with stage(
        kube_env, namespace, nodes=("a",), behaviour=lambda _node, _start: Run(after=go)
    ) as play:
        await play.apply({"image": "example/task:v1", "ttlSecondsAfterFinished": 600})
        before = await settled(play)
        altered = await alter(play, CHANGES[change])
        assert altered["spec"] != before

        async def is_put_right():
            return (await play.find(DAEMON_SETS, SET))["spec"] == before

        await play.until(is_put_right, "put right")
        job = await play.find(JOBS, "sample")
        found = condition(job["status"], "DaemonSetAltered")
        assert (found["status"], found["reason"]) == ("True", "DaemonSetAltered")
        assert "kubectl-patch: template.spec." in found["message"]
        assert "pods created meanwhile may have run something other" in found["message"]

        go.set()
        await play.job_until(lambda status: status["phase"] == "Succeeded", "succeeded")
        story = (await play.report())["status"]["timeline"]
        assert any("another client changed the spec of the DaemonSet" in line for line in story)
        await play.told("DaemonSetAltered", "Completed")
        final = await play.find(DAEMON_SETS, SET)
        owners = {
            (entry["manager"], entry["operation"])
            for entry in final["metadata"]["managedFields"]
            if "f:spec" in entry["fieldsV1"]
        }
        assert owners == {(names.FIELD_MANAGER, "Apply")}
