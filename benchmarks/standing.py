"""What a Job that stays costs while nothing happens, and how fast it serves a node that joins.

    export KUBEBUILDER_ASSETS=$(python3 -m hack.devcluster binaries)
    .venv/bin/python -m benchmarks.standing

It needs no cluster: it starts a kube-apiserver and an etcd of its own for each Job, and simulates
the nodes (see `benchmarks.standing_nodes`). Both programs run with the rights of their service
account, without their Leases. There are two Jobs of policy Continuous, one after the other:

- `kept`: the pods of completed nodes stay;
- `held`: each completed node gets a label that its selection excludes, so that no pod is left.

The results are the requests of both programs while nothing happens, and the seconds from the
creation of a node until the Job is complete with it. Then both programs are restarted. The exit
code is 1 if a request was more than a watch, or a pod of a held node was left. It is also 1 if a
task ran twice, or a restart wrote anything.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loguru import logger

from benchmarks.standing_nodes import SimulatedNodes
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import JOBS, PODS
from daemonset_job.runtime.clock import SystemClock
from job_controller.config import Config
from job_controller.main import new_controller
from job_controller.metrics import Metrics
from terminator.config import Config as TerminatorConfig
from terminator.config import Options
from terminator.main import Terminator
from terminator.metrics import Metrics as TerminatorMetrics
from tests.integration.conftest import install
from tests.integration.harness import Recorder, account_kubeconfig, condition
from tests.integration.jobs import job
from tests.integration.kube_env import ROOT, KubeEnv, kube_env

COMPONENT = ROOT / "deploy" / "components" / "node-changes"
KEY = "example.com/configured"
WAIT_SECONDS = 1800.0
# Nothing begins any more, and what was begun is written.
SETTLE_SECONDS = 20.0
NAME = "sample"


def job_spec(kind: str) -> dict[str, Any]:
    """Return the spec of the Job of that kind."""
    completion = {"policy": "Continuous", "mode": "Exit"}
    spec: dict[str, Any] = {"image": "example.com/task:1", "completion": completion}
    if kind == "held":
        expression = {"key": KEY, "operator": "DoesNotExist"}
        spec["nodes"] = {"selector": {"matchExpressions": [expression]}}
        spec["onSuccess"] = {"labels": {KEY: "true"}}
    return spec


@dataclass
class Programs:
    """Controller and terminator, in this process, and their requests."""

    env: KubeEnv
    namespace: str
    requests: dict[str, Recorder] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _clients: list[KubeClient] = field(default_factory=list)

    async def start(self) -> None:
        """Start both, as their processes would after a restart."""
        where = (self.namespace,)
        client = await self._client("controller")
        self._run(new_controller(client, Config(namespaces=where), Metrics()).run())
        client = await self._client("terminator")
        config = TerminatorConfig(namespaces=where)
        terminator = Terminator(client, Options(), config, TerminatorMetrics(), SystemClock())
        self._run(terminator.run())

    async def _client(self, program: str) -> KubeClient:
        self.requests[program] = Recorder()
        client = await KubeClient.connect(
            kubeconfig=str(account_kubeconfig(self.env)),
            user_agent=program,
            on_request=self.requests[program],
        )
        self._clients.append(client)
        return client

    def _run(self, program: Any) -> None:
        self._tasks.append(asyncio.create_task(program))

    async def stop(self) -> None:
        """Stop both."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for client in self._clients:
            await client.close()
        self._tasks, self._clients = [], []

    async def quiet_requests(self, seconds: float) -> dict[str, int]:
        """Return the requests of a time in which nothing happens."""
        before = {name: len(recorder.calls) for name, recorder in self.requests.items()}
        await asyncio.sleep(seconds)
        found: Counter[str] = Counter()
        for name, recorder in self.requests.items():
            calls = recorder.calls[before[name] :]
            found.update(f"{name} {verb} {what}" for verb, what, _ in calls)
        return dict(found)

    def writes(self) -> list[str]:
        """Return the writes of both since they were started."""
        return [
            f"{name} {verb} {what}"
            for name, recorder in self.requests.items()
            for verb, what, _ in recorder.writes
        ]


@dataclass
class World:
    """One Job, its nodes and the programs."""

    admin: KubeClient
    namespace: str
    nodes: SimulatedNodes
    programs: Programs

    async def wait(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Return once `check` holds; the machine may be too busy for some of its requests."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                with contextlib.suppress(KubeError):
                    if await check():
                        return
                await asyncio.sleep(0.2)

    async def wait_complete(self, count: int) -> None:
        """Return once the Job is complete with that many nodes."""

        async def look() -> bool:
            status = (await self.admin.get(JOBS, NAME, self.namespace)).get("status") or {}
            nodes = status.get("nodes") or {}
            is_complete = condition(status, "Complete").get("status") == "True"
            return is_complete and nodes["completed"] == nodes["desired"] == count

        await self.wait(look)

    async def count_pods(self) -> int:
        """Return how many pods there are."""
        page = await self.admin.list(PODS, self.namespace, metadata_only=True)
        return len(page.get("items") or ())

    async def wait_no_pods(self) -> None:
        """Return once no pod is left."""

        async def look() -> bool:
            return not await self.count_pods()

        await self.wait(look)


async def measure(env: KubeEnv, kind: str, count: int, seconds: float) -> dict[str, Any]:
    """Return what one Job on that many nodes did."""
    namespace = f"standing-{uuid.uuid4().hex[:6]}"
    env.kubectl("create", "namespace", namespace)
    async with await KubeClient.connect(
        kubeconfig=str(env.kubeconfig), user_agent="nodes"
    ) as admin:
        nodes, programs = SimulatedNodes(admin, namespace), Programs(env, namespace)
        world = World(admin, namespace, nodes, programs)
        await nodes.join(f"{kind}-{number:05}" for number in range(count))
        played = asyncio.create_task(nodes.run())
        try:
            await programs.start()
            return await _play(world, kind, count, seconds)
        finally:
            await programs.stop()
            played.cancel()


async def _play(world: World, kind: str, count: int, seconds: float) -> dict[str, Any]:
    programs, result = world.programs, {"kind": kind, "nodes": count}
    began = time.perf_counter()
    await world.admin.create(JOBS, job(world.namespace, job_spec(kind)), world.namespace)
    await world.wait_complete(count)
    result["seconds until complete"] = round(time.perf_counter() - began, 1)
    if kind == "held":
        await world.wait_no_pods()
    await asyncio.sleep(SETTLE_SECONDS)
    result["pods"] = await world.count_pods()
    result["quiet seconds"] = seconds
    result["requests"] = await programs.quiet_requests(seconds)

    began = time.perf_counter()
    await world.nodes.join(["joined"])
    await world.wait_complete(count + 1)
    result["seconds until a node that joined is complete"] = round(time.perf_counter() - began, 1)
    await asyncio.sleep(SETTLE_SECONDS)
    await programs.stop()
    await programs.start()
    await asyncio.sleep(SETTLE_SECONDS)
    result["writes after a restart"] = programs.writes()
    result["pods after a restart"] = await world.count_pods()
    result["most starts on a node"] = max(world.nodes.starts.values())
    return result


def problems(result: dict[str, Any]) -> list[str]:
    """Return what is not as it has to be."""
    found = [f"request: {each}" for each in result["requests"] if " watch " not in each]
    nodes = 0 if result["kind"] == "held" else result["nodes"]
    for what, expected in (("pods", nodes), ("pods after a restart", nodes and nodes + 1)):
        if result[what] != expected:
            found.append(f"{what}: {result[what]}, not {expected}")
    if result["most starts on a node"] != 1:
        found.append("a task ran twice")
    if result["writes after a restart"]:
        found.append("writes after a restart")
    return found


async def run(args: argparse.Namespace) -> int:
    """Measure what was chosen, print and store it; return the exit code."""
    results: list[dict[str, Any]] = []
    for kind, count in (("kept", args.kept), ("held", args.held)):
        if not count:
            continue
        with kube_env(controllers=["clusterrole-aggregation-controller"]) as env:
            install(env, ROOT / "deploy")
            env.kubectl("apply", "--server-side", "-k", str(COMPONENT))
            result = await measure(env, kind, count, args.seconds)
        result["problems"] = problems(result)
        print(json.dumps(result, indent=2), flush=True)
        results.append(result)
        if args.out:
            args.out.write_text(json.dumps(results, indent=2) + "\n")
    return int(any(result["problems"] for result in results))


def main() -> None:
    """Run both, or those that were chosen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kept", type=int, default=1000, help="nodes whose pods stay")
    parser.add_argument("--held", type=int, default=5000, help="nodes that their labels hold")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long nothing happens")
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    args = parser.parse_args()
    logger.remove()
    sys.exit(asyncio.run(run(args)))


if __name__ == "__main__":
    main()
