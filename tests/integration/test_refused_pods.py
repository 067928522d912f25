"""Pods that a real API server refuses: the Job says why, and goes on when it takes them."""

import pytest

from daemonset_job.kube.client.resource import EVENTS, JOBS
from tests.integration.stage import stage
from tests.mutation.cluster import Admin

pytestmark = pytest.mark.timeout(90)


async def test_what_pod_security_forbids_is_told_with_the_rights_that_the_system_has(
    kube_env, namespace
):
    async with (
        await Admin.connect(kubeconfig=str(kube_env.kubeconfig), user_agent="world") as admin,
        stage(kube_env, namespace, nodes=("a",), controller=False) as play,
    ):
        play.world.admin = admin
        await play.enforce("restricted")
        controller = await play.start_controller()
        await play.apply({"image": "example/task:v1"})
        found = await play.reason("Progressing", "FailedCreate", seconds=10)
        assert "1 of 1 pods cannot be created" in found["message"]
        assert "violates PodSecurity" in found["message"]
        # Told again by a controller that starts later.
        await controller.stop()
        play.processes.remove(controller)
        body = {"status": {"conditions": []}}
        await admin.merge_patch(JOBS, "sample", body, namespace, subresource="status")
        controller = await play.start_controller()
        await play.reason("Progressing", "FailedCreate", seconds=10)
        calls = {call[:2] for call in controller.requests.calls if call[1] == EVENTS.plural}
        assert ("watch", "events") not in calls
        assert ("list", "events") in calls

        await play.enforce("privileged")
        await play.gone(JOBS, "sample")
