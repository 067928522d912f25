"""Around the controller under test: a fake API server on which pods appear and tasks complete.

What the DaemonSet controller and kubelets would do is done at once, whenever something changes;
the ledger is written by the test, in the terminator's place.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.api.times import format_time
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    EVENTS,
    JOB_REPORTS,
    JOBS,
    NODES,
    PODS,
    Resource,
)
from job_controller.config import Config
from job_controller.main import new_controller
from job_controller.metrics import Metrics
from tests.clocks import LoopClock
from tests.contract.daemon_set_controller import collect_pods, keep_pods, write_status
from tests.contract.fake_api import START, FakeApiServer
from tests.contract.fake_faults import Request
from tests.contract.fake_storage import Raw
from tests.fakekube.containers import terminated
from tests.fakekube.daemon_set_objects import owned_pods
from tests.fakekube.daemon_sets import node_of
from tests.fakekube.node_lifecycle import ready
from tests.fakekube.pod_status import container_statuses, phase_of, ready_condition
from tests.fakekube.scheduler import may_bind

DAEMON_SET = "sample-daemonset-job"
WRITES = {"POST", "PUT", "PATCH", "DELETE"}


class FakeCluster:
    """The cluster of one test. The nodes named are there, Ready, when the first Job is applied.

    Not before: looptime sets its clock back to 0 when the test begins, after the fixtures.
    """

    def __init__(self, server: FakeApiServer, *nodes: str) -> None:
        self.server = server
        self.plays = True
        self.starts_tasks = True
        # Why the API server takes no pod; the DaemonSet controller has nothing to create them with.
        self.failed_create_message = ""
        self._serial = 0
        self._due = False
        self._to_join = list(nodes)
        server.storage.listeners.append(self._on_event)

    # --- what others do ------------------------------------------------------------------

    def join(self, node: str) -> None:
        """Have a node join."""
        status = {"conditions": [ready("True", self.stamp())]}
        self.server.put(NODES, {"metadata": {"name": node}, "status": status})

    def apply(self, name: str = "sample", namespace: str = "default", **spec: Any) -> Raw:
        """Create or change a Job."""
        while self._to_join:
            self.join(self._to_join.pop(0))
        return self.server.put(
            JOBS,
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"image": "example/task:v1", **spec},
            },
        )

    def complete(self, node: str) -> None:
        """Enter a node in the ledger, as the terminator does."""
        (report,) = self.server.list(JOB_REPORTS)
        pod = self.pod(node)
        entry = {
            "nodeUID": self.server.get(NODES, node, "")["metadata"]["uid"],
            "completedAt": self.stamp(),
            "pod": pod["metadata"]["name"],
            "podUID": pod["metadata"]["uid"],
        }
        self.server.patch(JOB_REPORTS, report["metadata"]["name"], {"evidence": {node: entry}})

    def fail(self, node: str) -> None:
        """Have the task on a node end with exit code 1."""
        pod = self.pod(node)
        (task,) = pod["status"]["containerStatuses"]
        ended = terminated(1, ended=self.stamp())
        body = {"status": {"containerStatuses": [{**task, "state": ended}]}}
        self.server.patch(PODS, pod["metadata"]["name"], body)

    def stamp(self) -> str:
        return format_time(self.server.clock.now())

    # --- looking -------------------------------------------------------------------------

    def pod(self, node: str) -> Raw:
        return next(pod for pod in self.server.list(PODS) if node_of(pod) == node)

    def status(self, name: str = "sample") -> Raw:
        return self.server.get(JOBS, name).get("status") or {}

    def condition(self, type_: str, name: str = "sample") -> Raw:
        found = self.status(name).get("conditions") or ()
        return next((c for c in found if c["type"] == type_), {})

    def completed(self) -> int:
        return int((self.status().get("nodes") or {}).get("completed", 0))

    def is_settled(self) -> bool:
        """Whether every node has its pod, counted, and the gate is up."""
        nodes = self.status().get("nodes") or {}
        if not nodes.get("desired") or not self.server.exists(DAEMON_SETS, DAEMON_SET):
            return False
        active = sum(not gated(pod) for pod in self.server.list(PODS))
        return nodes["active"] + nodes["completed"] == active and gated(
            self.server.get(DAEMON_SETS, DAEMON_SET)["spec"]["template"]
        )

    def writes(self, pattern: str = "") -> list[Request]:
        """Return the writing requests to paths that hold `pattern`, in order."""
        return [
            request
            for request in self.server.requests
            if request.method in WRITES
            and pattern in request.path
            and "dryRun" not in request.query
        ]

    def events(self) -> list[str]:
        return sorted(raw["reason"] for raw in self.server.list(EVENTS))

    def daemon_set_patches(self) -> int:
        return len(self.writes("/daemonsets/"))

    def daemon_set_tries(self) -> int:
        """Return how often the server was asked whether it would take the DaemonSet."""
        return sum("dryRun" in request.query for request in self.server.requests)

    # --- DaemonSet controller, scheduler, kubelets ---------------------------------------

    def _on_event(self, _event: Any) -> None:
        if self.plays and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._due = False
        self.server.collect_garbage()
        collect_pods(self.server)
        for found in self.server.list(DAEMON_SETS, names.MANAGED_SELECTOR):
            if self.failed_create_message:
                write_status(self.server, found)
                self.refuse_pods(found, self.failed_create_message)
                continue
            keep_pods(self.server, found, partial(self._pod_name, found))
            for pod in owned_pods(found, self.server.list(PODS)):
                if self.starts_tasks and may_bind(pod):
                    self._start(pod)

    def refuse_pods(self, daemon_set: Raw, message: str, **event: Any) -> None:
        """Write the event of a pod that was refused."""
        meta = daemon_set["metadata"]
        about = {"kind": "DaemonSet", "namespace": meta["namespace"], "uid": meta["uid"]}
        self.server.put(
            EVENTS,
            {
                "metadata": {"name": f"{meta['name']}.1", "namespace": meta["namespace"]},
                "involvedObject": about,
                "reason": "FailedCreate",
                "message": message,
                **event,
            },
        )

    def allow_pods(self) -> None:
        """Have the API server take pods again."""
        self.failed_create_message = ""
        self._on_event(None)

    def _pod_name(self, daemon_set: Raw) -> str:
        self._serial += 1
        return f"{daemon_set['metadata']['name']}-{self._serial}"

    def hold_pod(self, pod: Raw) -> None:
        """Bind a pod to its node, whose kubelet never gets its containers created."""
        task = {
            "name": names.CONTAINER_NAME,
            "state": {"waiting": {"reason": "ContainerCreating"}},
            "restartCount": 0,
        }
        status = {"phase": "Pending", "startTime": self.stamp(), "containerStatuses": [task]}
        meta, body = pod["metadata"], {"spec": {"nodeName": node_of(pod)}, "status": status}
        self.server.patch(PODS, meta["name"], body, meta["namespace"])

    def _start(self, pod: Raw) -> None:
        since = self.stamp()
        status = {"startTime": since, **container_statuses(pod, {}, since)}
        phase = phase_of(pod, status)
        conditions = [ready_condition(pod, status, phase)]
        body = {
            "spec": {"nodeName": node_of(pod)},
            "status": {**status, "phase": phase, "conditions": conditions},
        }
        self.server.patch(PODS, pod["metadata"]["name"], body, pod["metadata"]["namespace"])


def gated(pod_or_template: Raw) -> bool:
    return bool(pod_or_template["spec"].get("schedulingGates"))


@pytest.fixture
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's clock is the loop's, as the server's is."""
    monkeypatch.setattr("job_controller.main.SystemClock", lambda: LoopClock(START))


@contextlib.asynccontextmanager
async def running(
    server: FakeApiServer,
    *,
    client: KubeClient | None = None,
    metrics: Metrics | None = None,
    **config: Any,
) -> AsyncIterator[asyncio.Task[None]]:
    """Run a controller until the context ends; it must not have ended by itself."""
    async with client or KubeClient(server.url) as connected:
        controller = new_controller(connected, Config(**config), metrics or Metrics())
        task = asyncio.create_task(controller.run())
        try:
            yield task
            assert not task.done(), task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(check: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Return the first true answer of `check`; asked often, in the loop's time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (answer := check()):
        assert loop.time() < deadline, f"not within {seconds:g} s"
        await asyncio.sleep(0.25)
    return answer


def on_first(
    server: FakeApiServer, resource: Resource, type_: str, act: Callable[[], None]
) -> None:
    """Call `act` when the first such event is stored, before any watch receives it."""

    def listen(event: Any) -> None:
        if event.kind == (resource.group, resource.plural) and event.type == type_:
            server.storage.listeners.remove(listen)
            act()

    server.storage.listeners.insert(0, listen)
