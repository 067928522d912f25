"""A small cluster on the fake API server: Jobs with their nodes, pods, logs and reports.

It also plays the controller where a test says so: `agree` sets the Complete condition. Pods come
and go as the test says; the status of every DaemonSet follows from them and from the nodes, as the
DaemonSet controller writes it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from daemonset_job.api import names
from daemonset_job.api.job import nodes_hash
from daemonset_job.api.report import new_report
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NODES, PODS
from terminator.config import Config, Options
from terminator.ledger.writer import Ledger
from terminator.main import Terminator
from terminator.metrics import Metrics
from tests.clocks import LoopClock
from tests.contract.daemon_set_controller import write_status
from tests.contract.fake_api import START, FakeApiServer
from tests.contract.fake_logs import FakeLog
from tests.contract.fake_storage import Event, Raw
from tests.fakekube.daemon_sets import REQUIRED

LABELS = {"daemonset-job": "true"}
LOG_PATH = "/log"


async def eventually(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Return what `check` returns once it is true; AssertionError after `seconds` of the loop."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not (result := check()):
        assert loop.time() < end, f"not within {seconds} s"
        await asyncio.sleep(0.02)
    return result


def running(**changes: Any) -> Raw:
    return {"state": {"running": {}}, "restartCount": 0, **changes}


def terminated(code: int, restarts: int = 0) -> Raw:
    ended = {"exitCode": code, "finishedAt": "2030-01-01T00:00:09Z"}
    return {"state": {"terminated": ended}, "restartCount": restarts}


def _affinity(nodes: Iterable[str]) -> dict[str, Any]:
    """Return the affinity of pods that are for these nodes and no others.

    A term without requirements matches no node.
    """
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in nodes
    ]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms or [{}]}}}


@dataclass
class FakeRun:
    """One Job in the fake cluster."""

    server: FakeApiServer
    name: str
    namespace: str
    nodes: tuple[str, ...]
    uid: str = ""
    daemon_set_uid: str = ""

    def pod(self, node: str) -> str:
        return f"{self.name}-{node}"

    @property
    def daemon_set(self) -> str:
        """The name of the DaemonSet."""
        return names.daemon_set_name(self.name)

    def choose(self, *nodes: str) -> None:
        """Have the DaemonSet want these nodes, as far as they exist."""
        body = {"spec": {"template": {"spec": {"affinity": _affinity(nodes)}}}}
        self.server.patch(DAEMON_SETS, self.daemon_set, body, self.namespace)

    def log(self, node: str, *, previous: bool = False) -> FakeLog:
        return self.server.log(self.pod(node), self.namespace, previous=previous)

    def print_tokens(self, *nodes: str) -> None:
        """Have the tasks on these nodes print the token, by default on all nodes."""
        for node in nodes or self.nodes:
            self.log(node).write("done")

    def set_container(self, node: str, status: Raw, kind: str = "containerStatuses") -> None:
        body = {"status": {kind: [{"name": names.CONTAINER_NAME, **status}]}}
        self.server.patch(PODS, self.pod(node), body, self.namespace)

    def add_pod(self, node: str, name: str | None = None, owner: str | None = None) -> Raw:
        uid = self.daemon_set_uid if owner is None else owner
        name = name or self.pod(node)
        self.server.log(name, self.namespace)
        return self.server.put(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": {**LABELS, "job": self.name},
                    "ownerReferences": [
                        {"kind": "DaemonSet", "name": "x", "uid": uid, "controller": True}
                    ],
                },
                "spec": {"nodeName": node},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [{"name": names.CONTAINER_NAME, **running()}],
                },
            },
        )

    def add_report(self, shard: int = 0, evidence: Raw | None = None) -> str:
        raw = new_report(
            namespace=self.namespace,
            name=f"{self.name}-{self.uid[:8]}",
            job_name=self.name,
            job_uid=self.uid,
            shard=shard,
            spec={},
        )
        self.server.put(JOB_REPORTS, raw | {"evidence": evidence or {}})
        return str(raw["metadata"]["name"])

    def reports(self) -> list[Raw]:
        return [
            raw for raw in self.server.list(JOB_REPORTS) if raw["spec"]["job"]["uid"] == self.uid
        ]

    def evidence(self) -> dict[str, Raw]:
        """Return the ledger, all shards as one."""
        return {
            node: entry
            for raw in self.reports()
            for node, entry in (raw.get("evidence") or {}).items()
        }

    def completed(self) -> set[str]:
        return {node for node, entry in self.evidence().items() if entry.get("completedAt")}

    def agree(
        self, condition: str = "Complete", *, unknown: Collection[str] = (), **status: Any
    ) -> None:
        """Do as the controller does when its count is complete: the record, then the Job.

        The record has every node as completed, also those that are not. So a test can show that the
        terminator does not rely on the controller's count. Nodes that are `unknown` to the
        controller are left out.
        """
        states = {
            raw["metadata"]["name"]: {"uid": raw["metadata"]["uid"], "state": "Completed"}
            for raw in self.server.list(NODES)
            if raw["metadata"]["name"] not in unknown
        }
        for raw in self.reports():
            name = raw["metadata"]["name"]
            patch = {"status": {"nodeStates": states}}
            self.server.patch(JOB_REPORTS, name, patch, self.namespace)
        body = {
            "observedGeneration": 1,
            "conditions": [{"type": condition, "status": "True"}],
            **status,
        }
        self.server.patch(JOBS, self.name, {"status": body}, self.namespace)

    @property
    def exists(self) -> bool:
        return self.server.exists(JOBS, self.name, self.namespace)


@dataclass
class TerminatorCluster:
    """The fake cluster, and the terminators that run on it."""

    server: FakeApiServer
    client: KubeClient
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _due: bool = False

    def __post_init__(self) -> None:
        self.server.storage.listeners.append(self._on_event)

    def _on_event(self, _event: Event) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._sync)

    def _sync(self) -> None:
        self._due = False
        for found in self.server.list(DAEMON_SETS):
            write_status(self.server, found)

    def taint(self, node: str, effect: str, key: str = "example.com/maintenance") -> None:
        """Put a taint on a node; effect "" takes it away."""
        taints = [{"key": key, "effect": effect}] if effect else []
        self.server.patch(NODES, node, {"spec": {"taints": taints}}, "")

    def add_node(self, name: str) -> None:
        if not self.server.exists(NODES, name):
            self.server.put(NODES, {"metadata": {"name": name}})

    def add_job(
        self,
        name: str = "sample",
        nodes: tuple[str, ...] = ("a", "b", "c"),
        namespace: str = "default",
        *,
        report: bool = True,
        **spec: Any,
    ) -> FakeRun:
        """Create a Job with everything the controller and Kubernetes make of it."""
        run = FakeRun(self.server, name, namespace, nodes)
        for node in nodes:
            self.add_node(node)
        meta = {"name": name, "namespace": namespace, "generation": 1}
        job = self.server.put(JOBS, {"metadata": meta, "spec": {"image": "x", **spec}})
        run.uid = job["metadata"]["uid"]
        owner = {"kind": "Job", "name": name, "uid": run.uid, "controller": True}
        found = self.server.put(
            DAEMON_SETS,
            {
                "metadata": {
                    "name": run.daemon_set,
                    "namespace": namespace,
                    "generation": 1,
                    "labels": LABELS,
                    "annotations": {names.ANNOTATION_NODES_HASH: nodes_hash(spec)},
                    "ownerReferences": [owner],
                },
                "spec": {"template": {"spec": {"affinity": _affinity(nodes)}}},
            },
        )
        run.daemon_set_uid = found["metadata"]["uid"]
        for node in nodes:
            run.add_pod(node)
        self._sync()
        if report:
            run.add_report()
        return run

    def start(
        self, config: Config | None = None, options: Options | None = None
    ) -> tuple[Terminator, asyncio.Task[None]]:
        """Run a terminator; returns it and its task."""
        terminator = Terminator(
            self.client,
            options or Options(),
            config or Config(resync_period=1000.0),
            Metrics(),
            LoopClock(START),
        )
        task = asyncio.create_task(terminator.run())
        self.tasks.append(task)
        return terminator, task

    async def kill(self, terminator: Terminator, task: asyncio.Task[None]) -> None:
        """End a terminator without a flush, as SIGKILL does."""

        async def nothing(_ledger: Ledger) -> None:
            pass

        with patch.object(terminator._scope, "_final_flush", nothing):
            await self.stop(task)

    async def stop(self, task: asyncio.Task[None]) -> None:
        """End a terminator as SIGTERM does."""
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def sample(self, terminator: Terminator, name: str, **labels: str) -> float:
        """Return the value of a metric."""
        value = terminator._metrics.registry.get_sample_value(f"dsj_{name}", labels)
        assert value is not None, name
        return value
