"""Killed after every single write, and started again: the same end, the same work, the same record.

One run is played over and over: a node's task fails once and then completes, a completed node's
pod is deleted, a node joins late. Each time the controller, or the terminator, dies after another
one of its writes: the write is done, its answer is never seen, and nothing of what the process
knew is left. A new one with empty caches goes on.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NAMESPACES, PODS
from tests.integration.harness import WRITES, Harness, Process, open_harness
from tests.integration.kube_env import KubeEnv
from tests.integration.simulated_nodes import OWNER_LABEL, TaskRun, is_gated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DAEMON_SET = "sample-daemonset-job"
# Runs side by side: most of a run is waiting.
AT_ONCE = 5


class Mortal(KubeClient):
    """A client whose process dies after its nth write, which has then been carried out."""

    lives_for: int | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.written: list[str] = []
        self.died = asyncio.Event()
        self._send = self._transport.send
        self._transport.send = self._send_while_alive  # type: ignore[method-assign]

    async def _send_while_alive(self, request: Request) -> bytes:
        if request.verb not in WRITES:
            return await self._send(request)
        if self.died.is_set():
            raise asyncio.CancelledError
        answer = await self._send(request)
        self.written.append(f"{request.verb} {request.resource.name}")
        if len(self.written) == self.lives_for:
            self.died.set()
            # The dead see no answer. What else the process does until the test has cancelled it
            # comes to nothing, since none of it reaches the server.
            raise asyncio.CancelledError
        return answer


@dataclass(frozen=True)
class Outcome:
    """What is left of a run: all of it must be the same however often something died."""

    executions: dict[str, int]
    reports: list[Any]
    left: list[str]


@dataclass(frozen=True)
class Played:
    """An outcome, and what the mortal process had written when it died or when all was over."""

    outcome: Outcome
    written: Sequence[str]
    died: bool


async def harness(env: KubeEnv, namespace: str, victim: str, lives_for: int | None) -> Played:
    go = asyncio.Event()

    def behaviour(node: str, start: int) -> TaskRun:
        if node == "a":
            return TaskRun(lines=("no luck",), exit_code=1) if start == 1 else TaskRun(after=go)
        return TaskRun()

    async with open_harness(
        env, namespace, nodes=("a", "b"), behaviour=behaviour,
        controller=victim != "controller", terminator=victim != "terminator",
    ) as found:  # fmt: skip
        start = getattr(found, f"start_{victim}")
        mortal = type("Mortal", (Mortal,), {"lives_for": lives_for})
        process: Process = await start(mortal)
        assert isinstance(process.client, Mortal)
        reviving = asyncio.create_task(_revive(found, process, start))
        try:
            await _script(found, go)
        finally:
            reviving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reviving
        return Played(await _outcome(found), process.client.written, process.client.died.is_set())


async def _revive(found: Harness, process: Process, start: Any) -> None:
    await process.client.died.wait()
    await found.stop(process)
    await start()


async def _script(found: Harness, go: asyncio.Event) -> None:
    nodes = found.nodes
    # The runs share an API server: a node that joins another one is tainted for a moment, and would
    # count as skipped here.
    own = {"selector": {"matchLabels": {OWNER_LABEL: nodes.id}}}
    await found.apply({"image": "example/task:v1", "nodes": own})

    async def under_way() -> Any:
        job, made = await found.find(JOBS, "sample"), await found.find(DAEMON_SETS, DAEMON_SET)
        counts = ((job or {}).get("status") or {}).get("nodes") or {}
        return (
            counts.get("completed") == 1
            and counts.get("active") == 1
            and nodes.executions["a"] == 2
            and made is not None
            and is_gated(made["spec"]["template"])
        )

    await found.wait_until(under_way, "b completed, a at its second attempt, the gate up")
    await found.wait_gated(DAEMON_SET)
    first = (await found.pods())["b"][0]
    await found.admin.delete(PODS, first["metadata"]["name"], found.namespace)

    async def succeeded() -> Any:
        pods = (await found.pods()).get("b") or []
        return [pod for pod in pods if pod["metadata"]["uid"] != first["metadata"]["uid"]]

    (successor,) = await found.wait_until(succeeded, "a successor of b's pod")
    assert is_gated(successor)
    await nodes.join("c")
    await found.wait_job(
        lambda status: status["nodes"]["completed"] == 2, "the late node completed"
    )
    go.set()
    await found.wait_deleted(JOBS, "sample")
    await found.wait_deleted(DAEMON_SETS, DAEMON_SET)

    async def no_pods() -> bool:
        return not await found.all(PODS)

    await found.wait_until(no_pods, "pods gone")


async def _outcome(found: Harness) -> Outcome:
    reports = await found.all(JOB_REPORTS)
    left = [
        raw["metadata"]["name"]
        for resource in (JOBS, DAEMON_SETS, PODS)
        for raw in await found.all(resource)
    ]
    plain = [
        _plain(
            {key: raw.get(key) for key in ("spec", "evidence", "status")},
            (f"-{found.nodes.id}", found.nodes.id, found.namespace),
        )
        for raw in reports
    ]
    return Outcome(dict(found.nodes.executions), plain, left)


# What differs from run to run; that it is there is compared all the same.
_VARIABLE = {
    "uid", "nodeUID", "podUID", "pod", "completedAt", "startedAt", "finishedAt", "startTime",
    "completionTime", "lastTransitionTime", "timeline", "time",
}  # fmt: skip
# Left out when it is 0.
_DURATIONS = {"durationSeconds"}


def _plain(value: Any, own: tuple[str, ...]) -> Any:
    """Return the value without the words that are of this run only."""
    if isinstance(value, dict):
        return {
            _plain(key, own): "…" if key in _VARIABLE else _plain(inner, own)
            for key, inner in value.items()
            if key not in _DURATIONS
        }
    if isinstance(value, list):
        return [_plain(inner, own) for inner in value]
    if isinstance(value, str):
        for word in own:
            value = value.replace(word, "")
    return value


@pytest.mark.parametrize("victim", ["controller", "terminator"])
async def test_killed_after_any_write_it_ends_the_same(kube_env, namespace, victim):
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int | None) -> Played:
        where = f"{namespace}-{number or 'all'}"
        kube_env.request("POST", NAMESPACES.path(), {"metadata": {"name": where}})
        async with room:
            return await harness(kube_env, where, victim, number)

    undisturbed = await one(None)
    outcome = undisturbed.outcome
    assert outcome.executions == {"a": 2, "b": 1, "c": 1}
    assert outcome.left == []
    (report,) = outcome.reports
    assert report["status"]["phase"] == "Succeeded"
    states = report["status"]["nodeStates"]
    assert {node: (s["state"], s["attempts"]) for node, s in states.items()} == {
        "a": ("Completed", 2),
        "b": ("Completed", 1),
        "c": ("Completed", 1),
    }

    # How writes fall together differs from run to run by a few.
    assert len(undisturbed.written) > 2, "the client does not notice its writes"
    numbers = range(1, len(undisturbed.written) + 3)
    async with asyncio.TaskGroup() as group:
        runs = {number: group.create_task(one(number)) for number in numbers}

    played = {number: run.result() for number, run in runs.items()}
    deaths = [number for number, run in played.items() if run.died]
    assert len(deaths) >= len(undisturbed.written) - 3, (deaths, undisturbed.written)
    for number, run in played.items():
        about = f"{victim} died after write {number}, {run.written}"
        assert run.outcome.executions == outcome.executions, about
        assert run.outcome.reports == outcome.reports, about
        assert run.outcome == outcome, about
