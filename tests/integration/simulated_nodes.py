"""Simulates a cluster's DaemonSet controller, scheduler, kubelets and garbage collectors.

They run beside a real API server, the real controller and the real terminator, and change real
objects with the rights of an administrator. Every step lists the whole cluster again. Between steps
only the state of nodes is kept: how often each task was started, and what it wrote.

What each of them decides and writes is that of tests/fakekube.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import AlreadyExists, Conflict, KubeError, NotFound
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    JOBS,
    NODES,
    PODS,
    Resource,
)
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.writes import DeleteOptions
from tests.fakekube.daemon_set_objects import (
    build_pod,
    build_status,
    has_status,
    owned_pods,
)
from tests.fakekube.daemon_set_objects import controller_uid as owner_uid
from tests.fakekube.daemon_sets import is_deleting, sync
from tests.fakekube.daemon_sets import node_of as target_node
from tests.fakekube.failed_pods import FailedPods
from tests.fakekube.garbage_collector import has_lost_node, is_orphan
from tests.fakekube.node_lifecycle import (
    READY_KEYS,
    ready,
    ready_taints,
    replace_taints,
    taints_of,
)
from tests.fakekube.pod_endings import collected
from tests.fakekube.scheduler import may_bind
from tests.integration.kubelet import Behaviour, NodeClock, TaskRun, done, now, stamp
from tests.integration.kubelet_logs import Logs
from tests.integration.pod_life import Life

__all__ = [
    "OWNER_LABEL",
    "Behaviour",
    "Logs",
    "Raw",
    "SimulatedNodes",
    "TaskRun",
    "done",
    "is_gated",
    "owner_uid",
    "target_node",
]

Raw = dict[str, Any]

OWNER_LABEL = "example.com/world"
MAINTENANCE = "example.com/maintenance"


@dataclass(eq=False)
class SimulatedNodes:
    """A cluster of nodes of its own, for the Jobs of some namespaces.

    A test may change these at any time: `behaviour` of the task, and `collects_garbage`. `frozen`
    are the nodes whose kubelet does nothing, `skew` is by how much a node's clock is ahead. With
    `keeps_grace` a task that does not end on TERM stays until the grace period of its deleted pod
    is over. Without, the kubelet ends it at once.
    """

    admin: KubeClient
    logs: Logs
    namespaces: tuple[str, ...]
    behaviour: Behaviour = done
    collects_garbage: bool = True
    keeps_grace: bool = False
    frozen: set[str] = field(default_factory=set)
    skew: dict[str, timedelta] = field(default_factory=dict)
    executions: Counter[str] = field(default_factory=Counter)
    images: Counter[str] = field(default_factory=Counter)
    id: str = field(default_factory=lambda: uuid4().hex[:6])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _lives: dict[str, Life] = field(default_factory=dict)
    _failed_pods: FailedPods = field(default_factory=FailedPods)

    # --- nodes ---------------------------------------------------------------------------

    def name(self, node: str) -> str:
        """Return the full name of a node: worlds share one server."""
        return f"{node}-{self.id}"

    def short(self, node_name: str) -> str:
        return node_name.removesuffix(f"-{self.id}")

    def clock(self, node: str) -> NodeClock:
        """Return the clock of a node."""
        return NodeClock(partial(self._skew_of, node))

    def _skew_of(self, node: str) -> timedelta:
        return self.skew.get(node, timedelta(0))

    async def join(self, *nodes: str, labels: Mapping[str, str] | None = None) -> None:
        """Have nodes join the cluster, Ready."""
        for node in nodes:
            body = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.name(node), "labels": dict(labels or {})},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": self.logs.port}},
                    "conditions": [ready("True", stamp(self.clock(node).now()))],
                },
            }
            await self.admin.create(NODES, body)
            # The API server gives every new node the taint not-ready, which the node lifecycle
            # controller takes away. In the same step the node becomes one of this nodes.
            known = {"metadata": {"labels": {OWNER_LABEL: self.id}}, "spec": {"taints": None}}
            await self.admin.merge_patch(NODES, self.name(node), known)
        self._changed.set()

    async def leave(self, node: str) -> None:
        """Have a node leave: the object and its pods go."""
        await self.admin.delete(NODES, self.name(node))
        self._changed.set()

    async def taint(self, node: str, effect: str, key: str = MAINTENANCE) -> None:
        """Put a taint on a node, as `kubectl taint` does; another effect of that key stays."""
        await self._set_taints(node, remove=set(), add=[{"key": key, "effect": effect}])

    async def untaint(self, node: str, key: str = MAINTENANCE) -> None:
        """Take the taints of that key from a node."""
        await self._set_taints(node, remove={key}, add=[])

    async def _set_taints(
        self, node: str, *, remove: Collection[str], add: Sequence[Mapping[str, Any]]
    ) -> None:
        found = await self.admin.get(NODES, self.name(node))
        standing = [taint for taint in taints_of(found) if taint not in add]
        taints = replace_taints(standing, remove, add)
        await self.admin.merge_patch(NODES, self.name(node), {"spec": {"taints": taints}})
        self._changed.set()

    async def lose(self, node: str, *, since: timedelta) -> None:
        """Have a node's kubelet fall silent: the node has been not Ready for `since`.

        The node lifecycle controller says so, by the clock of the control plane.
        """
        self.frozen.add(node)
        await self._set_ready(node, "Unknown", now() - since)

    async def unready(self, node: str) -> None:
        """Have a node's kubelet say that it is not Ready; its tasks go on."""
        await self._set_ready(node, "False", self.clock(node).now())

    async def recover(self, node: str) -> None:
        """Have a node be Ready again."""
        self.frozen.discard(node)
        await self._set_ready(node, "True", self.clock(node).now())

    async def _set_ready(self, node: str, status: str, since: datetime) -> None:
        """Write the Ready condition, and the taints that the node lifecycle controller has for it.

        While a node is not Ready, the DaemonSet controller counts its pod as misscheduled.
        """
        body = {"status": {"conditions": [ready(status, stamp(since))]}}
        await self.admin.merge_patch(NODES.with_subresource("status"), self.name(node), body)
        await self._set_taints(node, remove=READY_KEYS, add=ready_taints(status))

    # --- running -------------------------------------------------------------------------

    async def run(self) -> None:
        """Play until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for namespace in self.namespaces:
                    for resource in (JOBS, DAEMON_SETS, PODS):
                        group.create_task(self._listen(resource, namespace))
                group.create_task(self._play())
        finally:
            tasks = [task for life in self._lives.values() for task in life.tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, resource: Resource, namespace: str) -> None:
        while True:
            with contextlib.suppress(KubeError):
                what = Selection(resource, namespace, metadata_only=True)
                version = (await self.admin.page(what, limit=1)).resource_version
                self._changed.set()
                async with self.admin.watch(what, resource_version=version) as events:
                    async for _ in events:
                        self._changed.set()
            await asyncio.sleep(0.05)

    async def _play(self) -> None:
        while True:
            self._changed.clear()
            # Another client may change the same object at the same time: the next step sees it.
            with contextlib.suppress(NotFound, Conflict, AlreadyExists):
                for namespace in self.namespaces:
                    await self._step(namespace)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._changed.wait()
            await asyncio.sleep(0.01)

    async def _step(self, namespace: str) -> None:
        # Dependents before their owners, so that a child made meanwhile is never an orphan.
        pods = await self._list(PODS, namespace)
        sets = await self._list(DAEMON_SETS, namespace)
        jobs = await self._list(JOBS, namespace)
        nodes = await self._list(NODES, None, label_selector=f"{OWNER_LABEL}={self.id}")
        self._bury({uid(pod) for pod in pods}, namespace)
        if self.collects_garbage:
            owned = [job for job in jobs if owner_kind(job) == "Job"]
            await self._collect(JOBS, owned, {uid(job) for job in jobs})
            await self._collect(DAEMON_SETS, sets, {uid(job) for job in jobs})
            await self._collect(PODS, pods, {uid(found) for found in sets})
        for found in sets:
            await self._keep_daemon_set(found, owned_pods(found, pods), nodes)
        known = {node["metadata"]["name"] for node in nodes}
        for pod in pods:
            await self._schedule_or_run(pod, known)

    async def _list(
        self, resource: Resource, namespace: str | None, label_selector: str | None = None
    ) -> list[Raw]:
        # Of Jobs the metadata is enough, and one of a test may be too deep to be read.
        page = await self.admin.list(
            resource, namespace, label_selector=label_selector, metadata_only=resource == JOBS
        )
        return page.get("items") or []

    # --- garbage collectors --------------------------------------------------------------

    async def _collect(self, resource: Resource, items: list[Raw], owners: set[str]) -> None:
        for raw in items:
            if is_orphan(raw, owners.__contains__) and not is_deleting(raw):
                await self.delete(resource, raw)

    async def _collect_pod(self, pod: Raw) -> None:
        """Fail and remove a pod whose node has gone; in Kubernetes that takes a while."""
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": collected(pod)}
        status = PODS.with_subresource("status")
        await self.admin.merge_patch(status, meta["name"], body, meta["namespace"])
        await self.delete(PODS, pod, grace=0)

    async def delete(
        self, resource: Resource, raw: Mapping[str, Any], grace: int | None = None
    ) -> None:
        """Delete an object, unless it is another one by now (UID)."""
        meta = raw["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            await self.admin.delete(
                resource,
                meta["name"],
                meta["namespace"],
                uid=meta["uid"],
                options=DeleteOptions(grace_period_seconds=grace),
            )

    # --- DaemonSet controller ------------------------------------------------------------

    async def _keep_daemon_set(self, found: Raw, pods: list[Raw], nodes: list[Raw]) -> None:
        meta = found["metadata"]
        if is_deleting(found):
            await self._finish_foreground_deletion(found, pods)
            return
        outcome = sync(found, nodes, pods, partial(self._stays, found))
        for node in outcome.create:
            await self.admin.create(PODS, build_pod(found, node), meta["namespace"])
        for pod in outcome.delete:
            await self.delete(PODS, pod)
        status = build_status(found, nodes, pods)
        if not has_status(found, status):
            await self.admin.merge_patch(
                DAEMON_SETS.with_subresource("status"),
                meta["name"],
                {"metadata": {"uid": meta["uid"]}, "status": status},
                meta["namespace"],
            )

    def _stays(self, found: Raw, pod: Mapping[str, Any]) -> bool:
        """Return whether a failed pod stays for now, so that its node gets no other one."""
        return self._failed_pods.pause(found, pod, asyncio.get_running_loop().time()) > 0

    async def _finish_foreground_deletion(self, found: Raw, pods: list[Raw]) -> None:
        for pod in pods:
            await self.delete(PODS, pod)
        meta = found["metadata"]
        if not pods and meta.get("finalizers") == ["foregroundDeletion"]:
            body = {"metadata": {"uid": meta["uid"], "finalizers": None}}
            await self.admin.merge_patch(DAEMON_SETS, meta["name"], body, meta["namespace"])

    # --- scheduler and kubelets ----------------------------------------------------------

    async def _schedule_or_run(self, pod: Raw, nodes: set[str]) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        node = target_node(pod)
        if not owner_uid(pod):
            return
        if has_lost_node(pod, nodes.__contains__):
            await self._collect_pod(pod)
        elif self.short(node) in self.frozen:
            return
        elif is_deleting(pod):
            await self._end(pod)
        elif spec.get("nodeName"):
            if meta["uid"] not in self._lives:
                life = Life(self, pod)
                self._lives[meta["uid"]] = life
                life.begin()
        elif node in nodes and may_bind(pod):
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta["name"], "uid": meta["uid"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            await self.admin.create(
                PODS.with_subresource("binding"), body, meta["namespace"], name=meta["name"]
            )

    async def _end(self, pod: Raw) -> None:
        """Do as the kubelet does with a pod that is being deleted."""
        life = self._lives.get(uid(pod))
        if life is not None:
            await life.end_unstarted()
        if life is None or not life.takes_time(keeps_grace=self.keeps_grace):
            await self.delete(PODS, pod, grace=0)
        else:
            life.end(pod)

    def _bury(self, living: set[str], namespace: str) -> None:
        """End the containers of pods that are gone."""
        for pod_uid, life in list(self._lives.items()):
            if pod_uid not in living and life.namespace == namespace:
                for task in life.tasks:
                    task.cancel()
                del self._lives[pod_uid]


def owner_kind(raw: Mapping[str, Any]) -> str:
    """Return the kind of the first owner of an object, "" without one."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return owners[0]["kind"] if owners else ""


def uid(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"]["uid"])


def is_gated(pod_or_template: Mapping[str, Any]) -> bool:
    return bool(pod_or_template["spec"].get("schedulingGates"))
