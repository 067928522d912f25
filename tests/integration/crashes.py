"""Plays a run in which a process dies after one of its writes, and says what is left of it.

The write is done, its answer is never seen, and nothing of what the process knew is left. A new one
with empty caches goes on.

`make test` plays a death after every second pair of a write and the one that follows it;
`make test-integration-long` plays one after every write.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NAMESPACES, PODS
from tests.integration.harness import WRITES, Harness, Process, open_harness
from tests.integration.kube_env import KubeEnv
from tests.integration.simulated_nodes import TaskRun

# Runs side by side: most of a run is waiting.
AT_ONCE = 5

# The argument `deaths` of a test: which of the writes are followed by one.
SOME, EVERY = "some writes", "every write"
DEATHS = pytest.mark.parametrize(
    "deaths",
    [SOME, pytest.param(EVERY, marks=pytest.mark.on_demand)],
)


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


@dataclass(frozen=True)
class Play:
    """A run to be played: its nodes, what their tasks do, and what happens to it."""

    nodes: tuple[str, ...]
    behaviour: Callable[[str, int], TaskRun]
    script: Callable[[Harness], Awaitable[None]]


async def play(
    env: KubeEnv, namespace: str, victim: str, lives_for: int | None, run: Play
) -> Played:
    """Play a run in which one program dies after its nth write; None for never."""
    async with open_harness(
        env, namespace, nodes=run.nodes, behaviour=run.behaviour,
        controller=victim != "controller", terminator=victim != "terminator",
    ) as found:  # fmt: skip
        start = getattr(found, f"start_{victim}")
        mortal = type("Mortal", (Mortal,), {"lives_for": lives_for})
        process: Process = await start(mortal)
        assert isinstance(process.client, Mortal)
        reviving = asyncio.create_task(_revive(found, process, start))
        try:
            await run.script(found)
        finally:
            reviving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reviving
        return Played(await _outcome(found), process.client.written, process.client.died.is_set())


async def _revive(found: Harness, process: Process, start: Any) -> None:
    assert isinstance(process.client, Mortal)
    await process.client.died.wait()
    await found.stop(process)
    await start()


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
    "completionTime", "failedAt", "lastTransitionTime", "timeline", "time", "turnAt", "reports",
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


def choose_writes(written: Sequence[str], deaths: str) -> list[int]:
    """Return the writes after which a program is to die, counted from 1.

    Of `SOME`, every second one of those that are the first of two neighbours of these kinds. What
    is left undone after others is of the same kind.
    """
    if deaths == EVERY:
        # How writes fall together differs from run to run by a few.
        return list(range(1, len(written) + 3))
    following = [*written[1:], ""]
    pairs = list(zip(written, following, strict=True))
    return [pairs.index(pair) + 1 for pair in dict.fromkeys(pairs)][::2]


async def play_all(
    env: KubeEnv, namespace: str, victim: str, new_run: Callable[[], Play], deaths: str
) -> tuple[Played, dict[int, Played]]:
    """Return the run that nothing disturbs, and those in which a program dies, by the write."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int | None) -> Played:
        where = f"{namespace}-{number or 'all'}"
        env.request("POST", NAMESPACES.path(), {"metadata": {"name": where}})
        async with room:
            return await play(env, where, victim, number, new_run())

    undisturbed = await one(None)
    assert len(undisturbed.written) > 2, "the client does not notice its writes"
    numbers = choose_writes(undisturbed.written, deaths)
    async with asyncio.TaskGroup() as group:
        runs = {number: group.create_task(one(number)) for number in numbers}
    return undisturbed, {number: run.result() for number, run in runs.items()}


def assert_most_died(undisturbed: Played, played: dict[int, Played]) -> None:
    """Assert that few runs wrote less than the one that nothing disturbed."""
    expected = sum(number <= len(undisturbed.written) for number in played)
    died = [number for number, run in played.items() if run.died]
    assert len(died) >= expected - 3, (died, undisturbed.written)


def assert_same(victim: str, undisturbed: Played, played: dict[int, Played]) -> None:
    """Assert that each run ended as the one that nothing disturbed, and that most had a death."""
    assert_most_died(undisturbed, played)
    outcome = undisturbed.outcome
    for number, run in played.items():
        about = f"{victim} died after write {number}, {run.written}"
        assert run.outcome.executions == outcome.executions, about
        assert run.outcome.reports == outcome.reports, about
        assert run.outcome == outcome, about
