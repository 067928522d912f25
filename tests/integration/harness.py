"""The harness of an integration test: simulated nodes, the real programs, and waiting helpers."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import NotFound
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    EVENTS,
    JOB_REPORTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)
from daemonset_job.kube.client.writes import DeleteOptions
from daemonset_job.runtime.clock import SystemClock
from job_controller.config import Config
from job_controller.main import Controller, new_controller
from job_controller.metrics import Metrics
from terminator.config import Config as TerminatorConfig
from terminator.config import Options
from terminator.main import Terminator
from terminator.metrics import Metrics as TerminatorMetrics
from tests.integration.jobs import job as make_job
from tests.integration.kube_env import KubeEnv
from tests.integration.simulated_nodes import (
    OWNER_LABEL,
    Behaviour,
    Logs,
    Raw,
    SimulatedNodes,
    done,
    is_gated,
    target_node,
)

SYSTEM = "daemonset-job-system"
ACCOUNT = "daemonset-job-controller"
WAIT_SECONDS = 30.0

_kubeconfigs: dict[tuple[Path, str], Path] = {}


def account_kubeconfig(env: KubeEnv, account: str = ACCOUNT) -> Path:
    """Return the kubeconfig of a service account of the system: its rights and no more."""
    key = env.folder, account
    if key not in _kubeconfigs:
        _kubeconfigs[key] = env.kubeconfig_for_service_account(SYSTEM, account)
    return _kubeconfigs[key]


WRITES = ("create", "patch", "update", "delete")


@dataclass(eq=False)
class Recorder:
    """Records the requests of a client."""

    calls: list[tuple[str, str, int]] = field(default_factory=list)

    def __call__(self, verb: str, resource: str, status: int, _seconds: float) -> None:
        self.calls.append((verb, resource, status))

    @property
    def writes(self) -> list[tuple[str, str, int]]:
        return [call for call in self.calls if call[0] in WRITES]


@dataclass(eq=False)
class Process:
    """The controller or the terminator, running in this process on a client of its own."""

    client: KubeClient
    program: Controller | Terminator
    requests: Recorder
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """Stop it; raises its exception if it had ended by itself."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await self.client.close()


@dataclass(eq=False)
class Harness:
    """Simulated nodes, the programs that run on them, and Jobs in `namespace`."""

    env: KubeEnv
    admin: KubeClient
    nodes: SimulatedNodes
    namespace: str
    nodes_task: asyncio.Task[None]
    processes: list[Process] = field(default_factory=list)
    terminator_account: str = ACCOUNT

    # --- programs ------------------------------------------------------------------------

    async def client(
        self, kind: type[KubeClient] = KubeClient, account: str = ACCOUNT
    ) -> tuple[KubeClient, Recorder]:
        """Return a client of that kind, with the rights of a service account of the system."""
        recorder = Recorder()
        client = await kind.connect(
            kubeconfig=str(account_kubeconfig(self.env, account)),
            user_agent="played",
            on_request=recorder,
        )
        return client, recorder

    async def start_controller(self, kind: type[KubeClient] = KubeClient, **config: Any) -> Process:
        """Start the controller, as its process would after a restart."""
        client, recorder = await self.client(kind)
        program = new_controller(
            client, Config(namespaces=self.nodes.namespaces, **config), Metrics()
        )
        return self._started(client, program, recorder)

    async def start_terminator(
        self, kind: type[KubeClient] = KubeClient, options: Options | None = None, **config: Any
    ) -> Process:
        """Start the terminator, as its process would after a restart."""
        client, recorder = await self.client(kind, self.terminator_account)
        settings = {"flush_interval": 0.1, "namespaces": self.nodes.namespaces, **config}
        program = Terminator(
            client,
            options or Options(),
            TerminatorConfig(**settings),
            TerminatorMetrics(),
            SystemClock(),
        )
        return self._started(client, program, recorder)

    def _started(
        self, client: KubeClient, program: Controller | Terminator, recorder: Recorder
    ) -> Process:
        process = Process(client, program, recorder, asyncio.create_task(program.run()))
        self.processes.append(process)
        return process

    async def stop(self, process: Process) -> None:
        self.processes.remove(process)
        await process.stop()

    # --- changing ------------------------------------------------------------------------

    async def enforce(self, level: str) -> None:
        """Make Pod Security refuse pods of the namespace that violate `level`."""
        labels = {"pod-security.kubernetes.io/enforce": level}
        await self.admin.merge_patch(NAMESPACES, self.namespace, {"metadata": {"labels": labels}})

    async def apply(
        self,
        spec: Raw | None = None,
        name: str = "sample",
        namespace: str | None = None,
        **metadata: Any,
    ) -> Raw:
        """Create a Job."""
        body = make_job(namespace or self.namespace, spec, name)
        body["metadata"] |= metadata
        return await self.admin.create(JOBS, body, namespace or self.namespace)

    async def change(self, resource: Resource, name: str, body: Raw) -> Raw:
        """Merge-patch an object."""
        return await self.admin.merge_patch(resource, name, body, self.namespace)

    # --- looking -------------------------------------------------------------------------

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> Raw | None:
        """Return an object, None if it is not there."""
        try:
            return await self.admin.get(resource, name, namespace or self.namespace)
        except NotFound:
            return None

    async def all(self, resource: Resource, **how: Any) -> list[Raw]:
        return (await self.admin.list(resource, self.namespace, **how)).get("items") or []

    async def pods(self) -> dict[str, list[Raw]]:
        """Return the pods by short name of their node."""
        found: dict[str, list[Raw]] = defaultdict(list)
        for pod in await self.all(PODS):
            found[self.nodes.short(target_node(pod))].append(pod)
        return dict(found)

    async def report(self, name: str = "sample", job_uid: str | None = None) -> Raw | None:
        """Return the newest report of a Job's name, or that of one run."""
        found = [
            raw
            for raw in await self.all(JOB_REPORTS)
            if raw["spec"]["job"]["name"] == name
            and (job_uid is None or raw["spec"]["job"]["uid"] == job_uid)
        ]
        return max(found, key=lambda r: int(r["metadata"]["resourceVersion"]), default=None)

    async def node_states(self, name: str = "sample") -> dict[str, Raw]:
        """Return the report's record of each node, by short name."""
        report = await self.report(name) or {}
        states = (report.get("status") or {}).get("nodeStates") or {}
        return {self.nodes.short(node): state for node, state in states.items()}

    async def events(self, name: str = "sample") -> list[str]:
        """Return the reasons of the events about a Job."""
        about = f"involvedObject.kind=Job,involvedObject.name={name}"
        return sorted(raw["reason"] for raw in await self.all(EVENTS, field_selector=about))

    async def wait_events(
        self, *reasons: str, name: str = "sample", seconds: float = WAIT_SECONDS
    ) -> None:
        """Return once there are events of these reasons about a Job."""

        async def look() -> bool:
            return set(reasons) <= set(await self.events(name))

        await self.wait_until(look, f"events {reasons}", seconds)

    async def wait_started(
        self, node: str, times: int = 1, *, seconds: float = WAIT_SECONDS
    ) -> None:
        """Return once the task was started `times` times on a node."""

        async def look() -> bool:
            return self.nodes.executions[node] >= times

        await self.wait_until(look, f"start {times} on {node}", seconds)

    async def wait_until(
        self, check: Callable[[], Awaitable[Any]], what: str, seconds: float = WAIT_SECONDS
    ) -> Any:
        """Return the first true answer of `check`; AssertionError with all objects on timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            for task in (self.nodes_task, *(process.task for process in self.processes)):
                assert not task.done(), f"it ended by itself: {task}"
            if answer := await check():
                return answer
            if loop.time() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}\n{await self.describe()}")
            await asyncio.sleep(0.05)

    async def wait_job(
        self,
        check: Callable[[Raw], Any],
        what: str,
        name: str = "sample",
        *,
        seconds: float = WAIT_SECONDS,
        **where: Any,
    ) -> Raw:
        """Return the Job as soon as `check` holds of its status."""

        async def look() -> Raw | None:
            found = await self.find(JOBS, name, **where)
            return found if found is not None and check(found.get("status") or {}) else None

        found: Raw = await self.wait_until(look, what, seconds)
        return found

    async def wait_deleted(
        self, resource: Resource, name: str, *, seconds: float = WAIT_SECONDS, **where: Any
    ) -> None:
        async def look() -> bool:
            return await self.find(resource, name, **where) is None

        await self.wait_until(look, f"{resource.kind} {name} gone", seconds)

    async def wait_reason(
        self, type_: str, reason: str, name: str = "sample", *, seconds: float = WAIT_SECONDS
    ) -> Raw:
        """Return the condition of a Job once it has this reason."""
        found = await self.wait_job(
            lambda status: condition(status, type_).get("reason") == reason,
            f"{type_} with reason {reason}",
            name,
            seconds=seconds,
        )
        return condition(found["status"], type_)

    async def wait_gated(self, daemon_set: str) -> None:
        """Return once new pods are gated: the DaemonSet controller has observed the gate."""

        async def look() -> bool:
            found = await self.find(DAEMON_SETS, daemon_set)
            if found is None or not is_gated(found["spec"]["template"]):
                return False
            observed = (found.get("status") or {}).get("observedGeneration", 0)
            return int(observed) >= int(found["metadata"]["generation"])

        await self.wait_until(look, "the gate is up")

    async def describe(self) -> str:
        lines = [f"executions: {dict(self.nodes.executions)}"]
        for resource in (JOBS, DAEMON_SETS, PODS, JOB_REPORTS):
            for raw in await self.all(resource):
                raw["metadata"].pop("managedFields", None)
                if resource is PODS:
                    raw = {"metadata": raw["metadata"]["name"], "status": raw.get("status")}  # noqa: PLW2901
                if resource is DAEMON_SETS:
                    raw = {"metadata": raw["metadata"], "status": raw.get("status")}  # noqa: PLW2901
                lines.append(f"{resource.kind}: {raw}")
        return "\n".join(lines)

    # --- end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop the programs."""
        for process in list(self.processes):
            await self.stop(process)


def condition(status: Raw, type_: str) -> Raw:
    return next((c for c in status.get("conditions") or () if c["type"] == type_), {})


@contextlib.asynccontextmanager
async def open_harness(
    env: KubeEnv,
    *namespaces: str,
    nodes: Sequence[str] = ("a", "b", "c"),
    behaviour: Behaviour = done,
    controller: bool = True,
    terminator: bool = True,
    terminator_account: str = ACCOUNT,
) -> AsyncIterator[Harness]:
    """Start these nodes, and both programs by default."""
    logs = Logs()
    certs = env.folder / "certs"
    await logs.start(certs / "apiserver.crt", certs / "apiserver.key")
    async with await KubeClient.connect(
        kubeconfig=str(env.kubeconfig), user_agent="world"
    ) as admin:
        simulated = SimulatedNodes(admin, logs, namespaces, behaviour)
        nodes_task = asyncio.create_task(simulated.run())
        found = Harness(
            env, admin, simulated, namespaces[0], nodes_task, terminator_account=terminator_account
        )
        try:
            await simulated.join(*nodes)
            if controller:
                await found.start_controller()
            if terminator:
                await found.start_terminator()
            yield found
            assert not nodes_task.done(), nodes_task
        finally:
            # Nodes that are left would be nodes of the Jobs of all tests that follow.
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(logs.stop)
                stack.push_async_callback(_clear, admin, simulated)
                stack.push_async_callback(asyncio.wait, {nodes_task})
                stack.callback(nodes_task.cancel)
                await found.close()


async def _clear(admin: KubeClient, simulated: SimulatedNodes) -> None:
    for namespace in simulated.namespaces:
        for resource in (JOBS, DAEMON_SETS, PODS):
            for raw in (await admin.list(resource, namespace, metadata_only=True))["items"] or ():
                meta = raw["metadata"]
                with contextlib.suppress(NotFound):
                    if meta.get("finalizers"):
                        body = {"metadata": {"finalizers": None}}
                        await admin.merge_patch(resource, meta["name"], body, namespace)
                    await admin.delete(
                        resource,
                        meta["name"],
                        namespace,
                        options=DeleteOptions(grace_period_seconds=0),
                    )
    for raw in (await admin.list(NODES, label_selector=f"{OWNER_LABEL}={simulated.id}")).get(
        "items"
    ) or ():
        with contextlib.suppress(NotFound):
            await admin.delete(NODES, raw["metadata"]["name"])
