"""What the controller says of admission policies that are not in force."""

import asyncio
import math
from typing import Any

import pytest
from loguru import logger

from daemonset_job.api.names import ADMISSION_POLICIES as NAMES
from daemonset_job.kube.client.errors import Forbidden, NotFound, Unavailable
from daemonset_job.kube.client.resource import ADMISSION_BINDINGS, ADMISSION_POLICIES, Resource
from job_controller.policy_check import CHECK_SECONDS, missing_policies, watch_policies

FIRST = NAMES[0]


class Client:
    """Answers with what is there, or fails as the test says."""

    def __init__(self) -> None:
        self.there = {
            (r.plural, n) for r in (ADMISSION_POLICIES, ADMISSION_BINDINGS) for n in NAMES
        }
        self.actions = ["Deny"]
        self.failure: Exception | None = None

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        if self.failure:
            raise self.failure
        if (resource.plural, name) not in self.there:
            raise NotFound("not found", status=404)
        return {"spec": {"validationActions": self.actions}}


@pytest.fixture
def client() -> Any:
    return Client()


@pytest.mark.parametrize("resource", [ADMISSION_POLICIES, ADMISSION_BINDINGS])
async def test_a_policy_needs_itself_and_its_binding(client, resource):
    assert await missing_policies(client) == []
    client.there.remove((resource.plural, FIRST))
    assert await missing_policies(client) == [FIRST]


async def test_a_policy_that_only_audits_is_not_in_force(client):
    client.actions = ["Audit"]
    assert await missing_policies(client) == list(NAMES)


@pytest.mark.looptime
async def test_a_change_is_logged_once_and_the_metric_is_always_set(client):
    values: list[float] = []
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), format="{level} {message} {extra}")
    task = asyncio.create_task(watch_policies(client, values.append))

    async def step() -> tuple[float, int]:
        await asyncio.sleep(CHECK_SECONDS)
        return values[-1], len(lines)

    await asyncio.sleep(1)
    assert (values, lines) == ([0], [])
    client.there.remove((ADMISSION_BINDINGS.plural, FIRST))
    assert await step() == (1, 1)
    assert lines[0].startswith("WARNING admission policies are missing")
    assert FIRST in lines[0]
    assert await step() == (1, 1)
    client.failure = Unavailable("away", status=503)
    await step()
    assert values[-1] == 1
    client.failure = Forbidden("no", status=403)
    await step()
    assert math.isnan(values[-1])
    count = len(lines)
    await step()
    assert len(lines) == count
    client.failure = None
    client.there.add((ADMISSION_BINDINGS.plural, FIRST))
    assert (await step())[0] == 0
    task.cancel()
    logger.remove(sink)


@pytest.mark.looptime
async def test_an_unexpected_error_does_not_end_the_check(client):
    values: list[float] = []
    task = asyncio.create_task(watch_policies(client, values.append))
    client.failure = AttributeError("a field of another type")
    await asyncio.sleep(1)
    assert math.isnan(values[-1])
    client.failure = None
    await asyncio.sleep(CHECK_SECONDS)
    assert values[-1] == 0
    task.cancel()
