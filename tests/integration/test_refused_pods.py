"""Pods that a real API server refuses: the Job says why, and goes on when it takes them."""

import pytest

from daemonset_job.kube.client.resource import EVENTS, JOB_STATUS, JOBS
from tests.integration.harness import open_harness
from tests.mutation.cluster import Admin

pytestmark = pytest.mark.timeout(90)


async def test_pod_security_refusal_is_reported_with_the_system_rights(kube_env, namespace):
    async with (
        await Admin.connect(kubeconfig=str(kube_env.kubeconfig), user_agent="world") as admin,
        open_harness(kube_env, namespace, nodes=("a",), controller=False) as harness,
    ):
        harness.nodes.admin = admin
        await harness.enforce("restricted")
        controller = await harness.start_controller()
        await harness.apply({"image": "example/task:v1"})
        found = await harness.wait_reason("Progressing", "FailedCreate", seconds=10)
        assert "1 of 1 pods cannot be created" in found["message"]
        assert "violates PodSecurity" in found["message"]
        # Reported again by a controller that starts later.
        await controller.stop()
        harness.processes.remove(controller)
        body = {"status": {"conditions": []}}
        await admin.merge_patch(JOB_STATUS, "sample", body, namespace)
        controller = await harness.start_controller()
        await harness.wait_reason("Progressing", "FailedCreate", seconds=10)
        calls = {call[:2] for call in controller.requests.calls if call[1] == EVENTS.plural}
        assert ("watch", "events") not in calls
        assert ("list", "events") in calls

        await harness.enforce("privileged")
        await harness.wait_deleted(JOBS, "sample")
