"""Thousands of nodes for the benchmark of Jobs that stay: nodes, DaemonSet controller, kubelets.

They follow watches, so that they read nothing while nothing happens. What the DaemonSet controller
decides is that of tests/fakekube. Each task ends with 0 as soon as its pod is bound.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import AlreadyExists, Conflict, KubeError, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS, NODES, PODS, Resource
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.writes import DeleteOptions
from tests.fakekube.daemon_set_objects import build_pod, build_status, has_status
from tests.fakekube.daemon_sets import node_of, sync
from tests.fakekube.node_lifecycle import ready

Raw = dict[str, Any]

AT_ONCE = 16
STEP_SECONDS = 0.2


class SimulatedNodes:
    """The nodes, and the pods of DaemonSets in one namespace. `starts` counts tasks by node."""

    def __init__(self, admin: KubeClient, namespace: str) -> None:
        self.starts: dict[str, int] = {}
        self._admin = admin
        self._namespace = namespace
        self._objects: dict[Resource, dict[str, Raw]] = {NODES: {}, PODS: {}, DAEMON_SETS: {}}
        self._changed = asyncio.Event()
        self._room = asyncio.Semaphore(AT_ONCE)

    @property
    def pods(self) -> dict[str, Raw]:
        """Return the pods by name."""
        return self._objects[PODS]

    async def join(self, nodes: Iterable[str]) -> None:
        """Have nodes join the cluster, Ready."""
        await self._each(self._join, nodes)

    async def _join(self, name: str) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"conditions": [ready("True", moment)]},
        }
        await self._admin.create(NODES, body)
        # The API server gives every new node the taint not-ready.
        await self._admin.merge_patch(NODES, name, {"spec": {"taints": None}})

    async def run(self) -> None:
        """Follow the objects, and act, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in self._objects:
                group.create_task(self._follow(resource))
            group.create_task(self._play())

    async def _follow(self, resource: Resource) -> None:
        namespace = None if resource == NODES else self._namespace
        what, known = Selection(resource, namespace), self._objects[resource]
        while True:
            with suppress(KubeError):
                page = await self._admin.list(resource, namespace)
                known.clear()
                known.update({raw["metadata"]["name"]: raw for raw in page.get("items") or ()})
                version = page["metadata"]["resourceVersion"]
                self._changed.set()
                async with self._admin.watch(what, resource_version=version) as events:
                    async for event in events:
                        self._take(known, event["type"], event["object"])

    def _take(self, known: dict[str, Raw], kind: str, raw: Raw) -> None:
        if kind not in {"ADDED", "MODIFIED", "DELETED"}:
            return
        name = raw["metadata"]["name"]
        if kind == "DELETED":
            known.pop(name, None)
        else:
            known[name] = raw
        self._changed.set()

    async def _play(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for found in list(self._objects[DAEMON_SETS].values()):
                await self._keep(found)
            await self._each(self._act, list(self.pods.values()))
            await asyncio.sleep(STEP_SECONDS)

    async def _keep(self, found: Raw) -> None:
        nodes, pods = list(self._objects[NODES].values()), list(self.pods.values())
        outcome = sync(found, nodes, pods)
        status = build_status(found, nodes, pods)

        async def create(node: str) -> None:
            made = await self._admin.create(PODS, build_pod(found, node), self._namespace)
            self.pods.setdefault(made["metadata"]["name"], made)

        await self._each(create, outcome.create)
        await self._each(self._delete, outcome.delete)
        if not has_status(found, status):
            name = found["metadata"]["name"]
            where = DAEMON_SETS.with_subresource("status")
            with suppress(NotFound, Conflict):
                await self._admin.merge_patch(where, name, {"status": status}, self._namespace)

    async def _act(self, pod: Raw) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        if meta.get("deletionTimestamp"):
            await self._delete(pod)
        elif not spec.get("nodeName") and not spec.get("schedulingGates"):
            await self._start(pod)

    async def _start(self, pod: Raw) -> None:
        """Bind the pod; its task runs and ends with 0."""
        name, node = pod["metadata"]["name"], node_of(pod)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        binding, status = PODS.with_subresource("binding"), PODS.with_subresource("status")
        await self._admin.create(binding, body, self._namespace, name=name)
        self.starts[node] = self.starts.get(node, 0) + 1
        ended = await self._admin.merge_patch(
            status, name, {"status": completed_status()}, self._namespace
        )
        if name in self.pods:
            self.pods[name] = ended

    async def _delete(self, pod: Raw) -> None:
        options = DeleteOptions(grace_period_seconds=0)
        meta = pod["metadata"]
        await self._admin.delete(
            PODS, meta["name"], self._namespace, uid=meta["uid"], options=options
        )
        self.pods.pop(meta["name"], None)

    async def _each(self, act: Callable[[Any], Awaitable[None]], items: Iterable[Any]) -> None:
        async def one(item: Any) -> None:
            async with self._room:
                # Another client may have changed the object: the next step sees it.
                with suppress(NotFound, Conflict, AlreadyExists):
                    await act(item)

        await asyncio.gather(*map(one, items))


def completed_status() -> Raw:
    """Return the status of a pod whose task has ended with 0, in mode Exit."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    common = {"restartCount": 0, "image": "x", "imageID": "x", "ready": True}
    ended = {"exitCode": 0, "startedAt": moment, "finishedAt": moment, "reason": "Completed"}
    task = {"name": names.CONTAINER_NAME, "state": {"terminated": ended}, **common}
    hold = {"name": names.PAUSE_CONTAINER_NAME, "state": {"running": {"startedAt": moment}}}
    return {
        "phase": "Running",
        "startTime": moment,
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [task],
        "containerStatuses": [{**hold, **common}],
    }
