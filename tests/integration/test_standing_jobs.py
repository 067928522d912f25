"""A Job that stays: what it costs while nothing happens. For many nodes: benchmarks/standing.py."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.resource import JOBS
from tests.integration.harness import Harness, condition, open_harness
from tests.integration.simulated_nodes import OWNER_LABEL

pytestmark = pytest.mark.timeout(90)


async def wait_complete(found: Harness, count: int) -> None:
    def is_complete(status) -> bool:
        is_true = condition(status, "Complete").get("status") == "True"
        return is_true and status["nodes"]["completed"] == count

    await found.wait_job(is_complete, f"{count} nodes are complete")


async def test_a_job_that_stays_costs_nothing_but_watches(kube_env, namespace):
    """Nor does one whose request has been followed, or whose revision has changed."""
    async with open_harness(kube_env, namespace) as found:
        own = {"selector": {"matchLabels": {OWNER_LABEL: found.nodes.id}}}
        spec = {"image": "example/task:v1", "nodes": own, "completion": {"policy": "Continuous"}}
        await found.apply(spec)
        await wait_complete(found, 3)
        await found.change(JOBS, "sample", {"spec": {"image": "example/task:v2"}})
        await found.wait_started("c", 2)
        rerun = {names.ANNOTATION_RERUN: "*"}
        await found.change(JOBS, "sample", {"metadata": {"annotations": rerun}})
        await found.wait_started("c", 3)
        await wait_complete(found, 3)
        await asyncio.sleep(5)
        known = [len(process.requests.calls) for process in found.processes]
        await asyncio.sleep(15)
        for process, count in zip(found.processes, known, strict=True):
            assert [call for call in process.requests.calls[count:] if call[0] != "watch"] == []
        await found.nodes.join("d")
        await wait_complete(found, 4)
        assert found.nodes.executions["d"] == 1
