"""The cluster of a run: API server, both programs, simulated nodes, and what the programs log."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loguru import logger

from daemonset_job.api import names
from daemonset_job.kube.client.answers import RawObject, send_json
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import AlreadyExists, Forbidden, Invalid, KubeError
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.resource import (
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    SCHEDULED_JOBS,
    Resource,
)
from job_controller.core.receivers import Endpoint, Receiver
from job_controller.core.sources import Source
from tests.integration import harness as harness_module
from tests.integration.harness import Harness
from tests.integration.kube_env import KubeEnv
from tests.integration.simulated_nodes import Logs, SimulatedNodes
from tests.mutation.tasks import Tasks

Raw = dict[str, Any]

# The nodes and their labels; the oracle looks here for what a Job's spec.nodes chooses.
NODES: Mapping[str, Mapping[str, str]] = {
    "a": {"zone": "x", "disk": "ssd", "os-version": "1.10"},
    "b": {"zone": "y", "os-version": "1.1"},
    "c": {"zone": "x"},
}
# Timeouts in seconds. They are short, so that a Job shows a lasting fault while it is watched.
TIMEOUTS: dict[str, Any] = {
    "pod_start_timeout_seconds": 5,
    "node_unreachable_grace_period_seconds": 5,
}
# The administrator's side of checks and notifications: an address that refuses connections.
RECEIVER, SOURCE, QUERY = "chat", "web", "errors"
_NOWHERE = "http://127.0.0.1:9/"


class Admin(KubeClient):
    """An administrator's client, which plays a part of the DaemonSet controller: refused pods.

    A pod that the API server does not take becomes an event of the DaemonSet (pkg/controller
    RealPodControl), and nothing worse.
    """

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        **how: Any,
    ) -> RawObject:
        """Create an object; for a pod that is refused, return what was asked for."""
        try:
            return await super().create(resource, body, namespace, **how)
        except (Forbidden, Invalid) as error:
            if resource != PODS:
                raise
            await self._tell_refused(body, namespace or "", error)
            return dict(body)

    async def _tell_refused(
        self, body: Mapping[str, Any], namespace: str, error: KubeError
    ) -> None:
        (owner,) = body["metadata"]["ownerReferences"]
        about = {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": namespace}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{owner['name'][:200]}.{owner['uid'][:13]}"},
            "involvedObject": {**about, "name": owner["name"], "uid": owner["uid"]},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": f"Error creating: {error.message}"[:1024],
            "source": {"component": "daemonset-controller"},
        }
        with contextlib.suppress(AlreadyExists):
            await super().create(EVENTS, event, namespace)

    async def create_any(
        self, resource: Resource, namespace: str, manifest: Any, **query: str
    ) -> Raw:
        """Create an object of any JSON, also such that no other client would send."""
        return await send_json(
            self._transport,
            Request(
                "create",
                resource,
                namespace,
                query={"fieldValidation": "Strict", **query},
                body=json.dumps(manifest).encode(),
                timeout_seconds=60,
            ),
        )

    async def refusal_in_schedule(self, namespace: str, spec: Any) -> KubeError | None:
        """Return why a ScheduledJob does not take a Job's spec, by a dry run; None if it does."""
        manifest = {
            "apiVersion": names.API_VERSION,
            "kind": names.SCHEDULED_KIND,
            "metadata": {"generateName": "mutant-"},
            "spec": {"schedule": "0 0 29 2 *", "jobTemplate": {"spec": spec}},
        }
        try:
            await self.create_any(SCHEDULED_JOBS, namespace, manifest, dryRun="All")
        except KubeError as error:
            return error
        return None

    async def patch_job(self, namespace: str, name: str, body: Any) -> Raw:
        """Merge-patch a Job with any JSON."""
        return await send_json(
            self._transport,
            Request(
                "patch",
                JOBS,
                namespace,
                name,
                query={"fieldValidation": "Strict"},
                body=json.dumps(body).encode(),
                content_type="application/merge-patch+json",
                timeout_seconds=60,
            ),
        )


@dataclass
class Complaints:
    """Defects and warnings that the programs logged."""

    # By the name of the Job, "" where the record names none.
    defects: dict[str, list[str]] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, message: Any) -> None:
        """Take a record of loguru."""
        record = message.record
        extra = record["extra"]
        words = f"{record['level'].name} {record['name']}: {record['message']}"
        if details := {k: v for k, v in extra.items() if k not in {"reconcile_id", "namespace"}}:
            words += f" {details}"
        if error := record["exception"]:
            frames = str(message).strip().splitlines()
            words += "\n" + "\n".join(line for line in frames[-7:] if line.strip())
        is_defect = error is not None or record["level"].no >= logger.level("ERROR").no
        where = self.defects if is_defect else self.warnings
        found = where.setdefault(str(extra.get("job", "")), [])
        if len(found) < 20 and words not in found:
            found.append(words)


@dataclass
class MutationCluster:
    """An open harness with a namespace for mutants and one for the control Job."""

    harness: Harness
    admin: Admin
    tasks: Tasks
    complaints: Complaints
    mutants: str
    control: str

    def node(self, short: str) -> str:
        """Return the full name of a node."""
        return self.harness.nodes.name(short)


def _outside(folder: Path) -> dict[str, Any]:
    """Return the configuration of the receiver and of the source that Jobs may name."""
    url = folder / "nowhere.url"
    url.write_text(_NOWHERE)
    endpoint, everywhere = Endpoint(str(url)), ("*",)
    queries, paths = {QUERY: "up"}, ("", "/ok")
    source = Source(SOURCE, endpoint, everywhere, paths, queries, allows_expressions=True)
    return {"receivers": (Receiver(RECEIVER, endpoint, everywhere),), "sources": (source,)}


@contextlib.asynccontextmanager
async def open_cluster(env: KubeEnv, patience: float = 1) -> AsyncIterator[MutationCluster]:
    """Run both programs and the simulated nodes on a real API server, in two fresh namespaces.

    All timeouts are `patience` times as long, because on a busy machine pods start late.
    """
    complaints = Complaints()
    sink = logger.add(
        complaints, level="WARNING", format="{message}", backtrace=False, diagnose=False
    )
    logs, tasks, certs = Logs(), Tasks(), env.folder / "certs"
    await logs.start(certs / "apiserver.crt", certs / "apiserver.key")
    mark = uuid.uuid4().hex[:6]
    mutants, control = f"mutants-{mark}", f"control-{mark}"
    async with await Admin.connect(kubeconfig=str(env.kubeconfig), user_agent="world") as admin:
        for name in (mutants, control):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await admin.create(NAMESPACES, body)
        nodes = tasks.nodes = SimulatedNodes(admin, logs, (mutants, control), tasks)
        # The control Job has the same nodes, but a task of its own plays them. So it waits for the
        # programs only, and not for the task that plays dozens of other Jobs.
        beside = SimulatedNodes(admin, logs, (control,), id=nodes.id)
        played = [asyncio.create_task(beside.run())]
        timeouts = {name: seconds * patience for name, seconds in TIMEOUTS.items()}
        harness = Harness(env, admin, nodes, mutants, played[0])
        try:
            for node, labels in NODES.items():
                await nodes.join(node, labels=labels)
            await harness.start_controller(**timeouts, **_outside(env.folder))
            await harness.start_terminator()
            nodes.namespaces = (mutants,)
            harness.nodes_task = asyncio.create_task(nodes.run())
            played.append(harness.nodes_task)
            yield MutationCluster(harness, admin, tasks, complaints, mutants, control)
        finally:
            await harness.close()
            for task in played:
                task.cancel()
            await asyncio.wait(played)
            await harness_module._clear(admin, nodes)
            await harness_module._clear(admin, beside)
            await logs.stop()
            logger.remove(sink)
