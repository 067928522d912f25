"""A has many Jobs that the API server refuses; the Jobs of B begin as soon as ever.

The bound of two seconds is measured with 5,000 bad Jobs on demand: `-m on_demand`.
"""

import asyncio
import re
import statistics
import time

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS
from tests.integration.jobs import job
from tests.integration.tenants import Tenants, tenants

# The API server takes the Job, and refuses the DaemonSet that it asks for.
REFUSED = {"name": "job-container", "imagePullPolicy": "Sometimes"}
BAD = {"image": "example/task:v1", "template": {"spec": {"containers": [REFUSED]}}}
CONNECTIONS = 8
FEW, MANY = 300, 5000
DELAY_SECONDS = 2.0


async def create_bad(scene: Tenants, count: int) -> None:
    """Create this number of bad Jobs of A."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            body = job(scene.a.namespace, BAD, f"bad-{number}")
            await scene.a.client.create(JOBS, body, scene.a.namespace)

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))


async def begins(scene: Tenants, name: str) -> float:
    """Return how long it takes until a new Job of B has its DaemonSet; the Job completes."""
    harness = scene.harness
    nodes = {"include": [harness.nodes.name(node) for node in scene.nodes]}
    began = time.monotonic()
    await harness.apply({"image": "example/task:v1", "nodes": nodes}, name)

    async def is_made():
        return await harness.find(DAEMON_SETS, f"{name}-daemonset-job")

    await harness.wait_until(is_made, f"the DaemonSet of {name}", seconds=60)
    took = time.monotonic() - began
    await harness.wait_deleted(JOBS, name)
    return took


def tries(scene: Tenants) -> list[str]:
    """Return the Jobs of A on which the controller has worked, once for each time, in order."""
    found = []
    for line in scene.controller.text().splitlines():
        if "DryRunDaemonSet" in line and f"namespace={scene.a.namespace} " in line:
            found += re.findall(r" job=(\S+)", line)
    return found


async def refusals(scene: Tenants) -> int:
    """Return how many Jobs of A say that their DaemonSet is refused."""
    items = (await scene.a.client.list(JOBS, scene.a.namespace))["items"]
    return sum(
        condition["reason"] == "DaemonSetRefused" and "imagePullPolicy" in condition["message"]
        for each in items
        for condition in (each.get("status") or {}).get("conditions") or ()
    )


@pytest.mark.timeout(180)
async def test_job_starts_before_bad_jobs_of_another_tenant_are_finished(tenants_env, tmp_path):
    async with tenants(tenants_env, tmp_path) as scene:
        await create_bad(scene, FEW)
        before = len(tries(scene))
        await begins(scene, "first")
        # Namespaces take turns: while B's Job is worked on a few times, so are a few of A's.
        assert len(tries(scene)) - before < FEW / 3

        async def are_refused():
            return await refusals(scene) == FEW

        await scene.harness.wait_until(are_refused, "all bad Jobs say why", seconds=60)
        # What is refused is tried again ever more slowly, and not by all at once.
        before = len(tries(scene))
        await scene.completes("second")
        assert len(tries(scene)) - before < FEW


@pytest.mark.on_demand
@pytest.mark.timeout(900)
async def test_bad_jobs_delay_the_first_job_of_another_tenant_below_two_seconds(
    tenants_env, tmp_path
):
    async with tenants(tenants_env, tmp_path) as scene:
        alone = [await begins(scene, f"alone-{number}") for number in range(7)]
        began = time.monotonic()
        creating = asyncio.create_task(create_bad(scene, MANY))
        during, number = [], 0
        while not creating.done():
            during.append(await begins(scene, f"during-{number}"))
            number += 1
        await creating
        created = time.monotonic() - began
        beside = [await begins(scene, f"beside-{number}") for number in range(7)]
        refused = await refusals(scene)
        medians = [statistics.median(each) for each in (alone, during, beside)]
        print(  # noqa: T201 - who runs it on demand wants to know
            f"{MANY} bad Jobs in {created:.0f} s, {refused} of them refused; a Job of B begins "
            "after {:.2f} s alone, {:.2f} s during, {:.2f} s beside".format(*medians)
        )
        assert medians[1] - medians[0] < DELAY_SECONDS
        assert medians[2] - medians[0] < DELAY_SECONDS
        assert refused > 0
