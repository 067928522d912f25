"""A Job that stays, and a program that is killed after every single write: each node runs as often.

It is completed, then what it runs is changed, and then a request names one node.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.resource import JOBS, NAMESPACES
from tests.integration.crashes import AT_ONCE, DEATHS, Mortal, choose_writes
from tests.integration.harness import Harness, Process, condition, open_harness
from tests.integration.kube_env import KubeEnv
from tests.integration.simulated_nodes import OWNER_LABEL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NODES = ("a", "b")
# The first run, a change, and a request for a.
EXPECTED = {"a": 3, "b": 2}


@dataclass(frozen=True)
class Played:
    """How often the task ran on each node, and what the mortal process wrote."""

    executions: dict[str, int]
    states: dict[str, str]
    written: Sequence[str]
    died: bool


async def _play(env: KubeEnv, namespace: str, victim: str, lives_for: int | None) -> Played:
    async with open_harness(
        env, namespace, nodes=NODES,
        controller=victim != "controller", terminator=victim != "terminator",
    ) as found:  # fmt: skip
        start = getattr(found, f"start_{victim}")
        process: Process = await start(type("Mortal", (Mortal,), {"lives_for": lives_for}))
        assert isinstance(process.client, Mortal)
        reviving = asyncio.create_task(_revive(found, process, start))
        try:
            await _script(found)
        finally:
            reviving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reviving
        states = {name: each["state"] for name, each in (await found.node_states()).items()}
        written, died = process.client.written, process.client.died.is_set()
        return Played(dict(found.nodes.executions), states, written, died)


async def _revive(found: Harness, process: Process, start: Any) -> None:
    await process.client.died.wait()
    await found.stop(process)
    await start()


async def _script(found: Harness) -> None:
    own = {"selector": {"matchLabels": {OWNER_LABEL: found.nodes.id}}}
    spec = {"image": "example/task:v1", "nodes": own, "completion": {"policy": "Continuous"}}
    await found.apply(spec)
    await _wait_complete(found, a=1, b=1)
    await found.change(JOBS, "sample", {"spec": {"image": "example/task:v2"}})
    await _wait_complete(found, a=2, b=2)
    request = {names.ANNOTATION_RERUN: found.nodes.name("a")}
    await found.change(JOBS, "sample", {"metadata": {"annotations": request}})
    await _wait_complete(found, **EXPECTED)
    # Nothing more begins.
    await asyncio.sleep(1)


async def _wait_complete(found: Harness, **executions: int) -> None:
    async def look() -> bool:
        job = await found.find(JOBS, "sample") or {}
        status = job.get("status") or {}
        return (
            status.get("observedGeneration") == job["metadata"]["generation"]
            and condition(status, "Complete").get("status") == "True"
            and dict(found.nodes.executions) == executions
        )

    await found.wait_until(look, f"complete after {executions}")


@DEATHS
@pytest.mark.parametrize("victim", ["controller", "terminator"])
async def test_each_node_runs_as_often_as_was_requested(kube_env, namespace, victim, deaths):
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int | None) -> Played:
        where = f"{namespace}-{number or 'all'}"
        kube_env.request("POST", NAMESPACES.path(), {"metadata": {"name": where}})
        async with room:
            return await _play(kube_env, where, victim, number)

    whole = await one(None)
    assert whole.executions == EXPECTED
    assert whole.states == dict.fromkeys(NODES, "Completed")
    for played in await asyncio.gather(*map(one, choose_writes(whole.written, deaths))):
        assert (played.executions, played.states) == (EXPECTED, whole.states), played.written
