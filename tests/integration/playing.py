"""The rest of a cluster, played: DaemonSet controller, scheduler, kubelets, garbage collector.

Beside a real API server runs the real controller and the real terminator; everything else that a
Job needs is done here, on real objects, with the rights of an administrator. The world looks at
all of the cluster afresh at every step, so that it never acts on what it remembers; what it
remembers is what a node would: which task was started how often, and what it wrote.
"""

import asyncio
import contextlib
import ssl
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import web

from job_controller.api import names
from job_controller.kube.client import KubeClient
from job_controller.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from job_controller.kube.resources import (
    DAEMON_SETS,
    JOBS,
    NODES,
    PODS,
    Resource,
)
from job_controller.runtime.clock import SystemClock
from tests.contract.fake_logs import FakeLog, format_entry

Raw = dict[str, Any]

WORLD_LABEL = "example.com/world"
# A kubelet waits ten seconds and more before it starts a failed container again.
BACK_OFF_SECONDS = 0.1
# A played kubelet reports an exit this late, so that no test has to sit through the time that the
# terminator is given to read the log of a task that has ended (judge.LEDGER_GRACE).
LATE = timedelta(seconds=7)


@dataclass(frozen=True)
class Run:
    """What one start of the task does: waits for `after`, prints, and then ends or stays.

    `waiting` is why the container cannot be started, and `since` for how long the pod has been
    there. `late` is how long ago the kubelet says that the task ended.
    """

    lines: Sequence[str] = ("done",)
    exit_code: int | None = None
    after: asyncio.Event | None = None
    waiting: str = ""
    message: str = ""
    since: timedelta = timedelta(0)
    late: timedelta = LATE
    back_off: float = BACK_OFF_SECONDS


Behaviour = Callable[[str, int], Run]
"""What the task does on a node (by its short name) when it is started for the nth time there."""


def done(_node: str, _start: int) -> Run:
    """Print the token and wait, as a task should."""
    return Run()


def now() -> datetime:
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# --- kubelets ----------------------------------------------------------------------------


class Logs:
    """The log servers of all kubelets in one: HTTPS on a loopback port, as the API server asks."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, str, str], list[FakeLog]] = defaultdict(list)
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self, certificate: Path, key: Path) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        for instances in self.logs.values():
            instances[-1].end()
        # An orderly end of TLS takes two, and the API server keeps its connections for later, some
        # of which it has never used and no handler knows of.
        for transport in list(asyncio.get_running_loop()._transports.values()):
            if (transport.get_extra_info("sockname") or ("", 0))[1] == self.port:
                transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()

    def begin(self, namespace: str, pod: str) -> FakeLog:
        """Return the log of another instance of the task's container."""
        log = FakeLog(SystemClock())
        self.logs[namespace, pod, names.CONTAINER_NAME].append(log)
        return log

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        query, where = http.query, http.match_info
        instances = self.logs.get((where["namespace"], where["pod"], where["container"]), [])
        back = 2 if query.get("previous") == "true" else 1
        if len(instances) < back:
            return web.Response(status=400, text=f'container "{where["container"]}" is waiting')
        log = instances[-back]
        return await self._send(http, log, _first_entry(log, query))

    async def _send(self, http: web.Request, log: FakeLog, position: int) -> web.StreamResponse:
        query = http.query
        left = int(query.get("limitBytes") or 2**62)
        response = web.StreamResponse()
        is_open = False
        while left > 0:
            while position < len(log.entries) and left > 0:
                moment, line = log.entries[position]
                position += 1
                raw = format_entry(moment, line, timestamps=query.get("timestamps") == "true")
                if not is_open:
                    is_open = True
                    await response.prepare(http)
                await response.write(raw[:left])
                left -= len(raw)
            if log.ended or query.get("follow") != "true":
                break
            await log.changed()
        if not is_open:
            await response.prepare(http)
        await response.write_eof()
        return response


def _first_entry(log: FakeLog, query: Mapping[str, str]) -> int:
    since = query.get("sinceTime")
    moment = datetime.fromisoformat(since) if since else None
    start = next((i for i, (at, _) in enumerate(log.entries) if not moment or at >= moment), None)
    first = len(log.entries) if start is None else start
    tail = query.get("tailLines")
    return max(first, len(log.entries) - int(tail)) if tail is not None else first


# --- the world ---------------------------------------------------------------------------


@dataclass(eq=False)
class World:
    """A cluster of nodes of its own, for the Jobs of some namespaces.

    What a test may change at any time: `behaviour` of the task; `collects_garbage`; `frozen`, the
    nodes whose kubelet does nothing.
    """

    admin: KubeClient
    logs: Logs
    namespaces: tuple[str, ...]
    behaviour: Behaviour = done
    collects_garbage: bool = True
    frozen: set[str] = field(default_factory=set)
    executions: Counter[str] = field(default_factory=Counter)
    id: str = field(default_factory=lambda: uuid4().hex[:6])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _lives: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    # --- nodes ---------------------------------------------------------------------------

    def name(self, node: str) -> str:
        """Return the full name of a node: worlds share one server."""
        return f"{node}-{self.id}"

    def short(self, node_name: str) -> str:
        return node_name.removesuffix(f"-{self.id}")

    async def join(self, *nodes: str, labels: Mapping[str, str] | None = None) -> None:
        """Have nodes join the cluster, Ready."""
        for node in nodes:
            body = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": self.name(node),
                    "labels": {WORLD_LABEL: self.id, **(labels or {})},
                },
                "status": {
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": self.logs.port}},
                    "conditions": [_ready("True", now())],
                },
            }
            await self.admin.create(NODES, body)
        self._changed.set()

    async def leave(self, node: str) -> None:
        """Have a node leave: the object and its pods go."""
        await self.admin.delete(NODES, self.name(node))
        self._changed.set()

    async def lose(self, node: str, *, since: timedelta) -> None:
        """Have a node's kubelet fall silent: not Ready, `since` so long ago."""
        self.frozen.add(node)
        body = {"status": {"conditions": [_ready("Unknown", now() - since)]}}
        await self.admin.merge_patch(NODES, self.name(node), body, subresource="status")

    async def recover(self, node: str) -> None:
        self.frozen.discard(node)
        body = {"status": {"conditions": [_ready("True", now())]}}
        await self.admin.merge_patch(NODES, self.name(node), body, subresource="status")
        self._changed.set()

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
            lives = list(self._lives.values())
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _listen(self, resource: Resource, namespace: str) -> None:
        while True:
            with contextlib.suppress(KubeError):
                page = await self.admin.list(resource, namespace, limit=1)
                version = page["metadata"]["resourceVersion"]
                self._changed.set()
                async with self.admin.watch(
                    resource, namespace, resource_version=version
                ) as events:
                    async for _ in events:
                        self._changed.set()
            await asyncio.sleep(0.05)

    async def _play(self) -> None:
        while True:
            self._changed.clear()
            # Somebody else may change the same object at the same time: the next step sees it.
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
        nodes = await self._list(NODES, None, label_selector=f"{WORLD_LABEL}={self.id}")
        self._bury({uid(pod) for pod in pods}, namespace)
        if self.collects_garbage:
            await self._collect(DAEMON_SETS, sets, {uid(job) for job in jobs})
            await self._collect(PODS, pods, {uid(found) for found in sets})
        for found in sets:
            own = [pod for pod in pods if owner_uid(pod) == uid(found)]
            await self._keep_daemon_set(found, own, nodes)
        known = {node["metadata"]["name"] for node in nodes}
        for pod in pods:
            await self._schedule_or_run(pod, known)

    async def _list(self, resource: Resource, namespace: str | None, **how: str) -> list[Raw]:
        return (await self.admin.list(resource, namespace, **how)).get("items") or []

    # --- garbage collector ---------------------------------------------------------------

    async def _collect(self, resource: Resource, items: list[Raw], owners: set[str]) -> None:
        for raw in items:
            meta = raw["metadata"]
            orphan = owner_uid(raw) and owner_uid(raw) not in owners
            if orphan and not meta.get("deletionTimestamp"):
                await self._delete(resource, raw)

    async def _delete(self, resource: Resource, raw: Raw, grace: int | None = None) -> None:
        meta = raw["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            await self.admin.delete(
                resource, meta["name"], meta["namespace"], uid=meta["uid"], grace_seconds=grace
            )

    # --- DaemonSet controller ------------------------------------------------------------

    async def _keep_daemon_set(self, found: Raw, pods: list[Raw], nodes: list[Raw]) -> None:
        """Have one pod on every node that the template's affinity allows.

        As in pkg/controller/daemon, a node whose pod is still terminating gets no other one.
        """
        meta = found["metadata"]
        if meta.get("deletionTimestamp"):
            await self._finish_foreground_deletion(found, pods)
            return
        template = found["spec"]["template"]
        wanted = {n["metadata"]["name"] for n in nodes if fits(template["spec"], n)}
        taken = set()
        for pod in pods:
            where = target_node(pod)
            taken.add(where)
            is_over = (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}
            if where not in wanted or is_over:
                await self._delete(PODS, pod)
        for node in sorted(wanted - taken):
            await self.admin.create(PODS, self._pod(found, template, node), meta["namespace"])
        status = {
            "observedGeneration": meta["generation"],
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(wanted & taken),
        }
        standing = found.get("status") or {}
        if any(standing.get(key, 0) != value for key, value in status.items()):
            await self.admin.merge_patch(
                DAEMON_SETS,
                meta["name"],
                {"metadata": {"uid": meta["uid"]}, "status": status},
                meta["namespace"],
                subresource="status",
            )

    async def _finish_foreground_deletion(self, found: Raw, pods: list[Raw]) -> None:
        for pod in pods:
            await self._delete(PODS, pod)
        meta = found["metadata"]
        if not pods and meta.get("finalizers") == ["foregroundDeletion"]:
            body = {"metadata": {"uid": meta["uid"], "finalizers": None}}
            await self.admin.merge_patch(DAEMON_SETS, meta["name"], body, meta["namespace"])

    def _pod(self, found: Raw, template: Raw, node: str) -> Raw:
        affinity = {
            **(template["spec"].get("affinity") or {}),
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [node]}
                            ]
                        }
                    ]
                }
            },
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{found['metadata']['name']}-",
                "labels": template["metadata"]["labels"],
                "annotations": template["metadata"].get("annotations") or {},
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "DaemonSet",
                        "name": found["metadata"]["name"],
                        "uid": uid(found),
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {**template["spec"], "affinity": affinity},
        }

    # --- scheduler and kubelet -----------------------------------------------------------

    async def _schedule_or_run(self, pod: Raw, nodes: set[str]) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        node = spec.get("nodeName") or target_node(pod)
        if not owner_uid(pod) or self.short(node) in self.frozen:
            return
        if meta.get("deletionTimestamp"):
            await self._delete(PODS, pod, grace=0)
        elif spec.get("nodeName"):
            if node in nodes and meta["uid"] not in self._lives:
                self._lives[meta["uid"]] = asyncio.create_task(self._live(pod))
        elif node in nodes and not spec.get("schedulingGates"):
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta["name"], "uid": meta["uid"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            await self.admin.create(
                PODS, body, meta["namespace"], name=meta["name"], subresource="binding"
            )

    def _bury(self, living: set[str], namespace: str) -> None:
        """End the containers of pods that are gone."""
        for pod_uid, life in list(self._lives.items()):
            if pod_uid not in living and life.get_name().startswith(f"{namespace}/"):
                life.cancel()
                del self._lives[pod_uid]

    async def _live(self, pod: Raw) -> None:
        """Be the kubelet for one pod, from its binding to its end."""
        meta = pod["metadata"]
        current = asyncio.current_task()
        assert current is not None
        current.set_name(f"{meta['namespace']}/{meta['name']}")
        node = self.short(pod["spec"]["nodeName"])
        kubelet = Kubelet(self, pod)
        log: FakeLog | None = None
        try:
            while True:
                run = self.behaviour(node, self.executions[node] + 1)
                if run.waiting:
                    await kubelet.waits(run)
                    await asyncio.sleep(BACK_OFF_SECONDS)
                    continue
                self.executions[node] += 1
                log = self.logs.begin(meta["namespace"], meta["name"])
                await kubelet.started()
                if run.after is not None:
                    await run.after.wait()
                log.write(*run.lines)
                if run.exit_code is None:
                    await asyncio.get_running_loop().create_future()
                log.end()
                await kubelet.ended(run)
                if kubelet.is_over:
                    return
                await asyncio.sleep(run.back_off)
                kubelet.restarts += 1
        except NotFound:
            return  # deleted meanwhile
        finally:
            if log is not None:
                log.end()


@dataclass(eq=False)
class Kubelet:
    """What the kubelet says of one pod."""

    world: World
    pod: Raw
    restarts: int = 0
    is_over: bool = False
    _last: Raw = field(default_factory=dict)
    _waiting: Raw = field(default_factory=dict)
    _began: datetime = field(default_factory=now)

    @property
    def is_init(self) -> bool:
        inits = self.pod["spec"].get("initContainers") or ()
        return any(c["name"] == names.CONTAINER_NAME for c in inits)

    async def waits(self, run: Run) -> None:
        state = {"waiting": {"reason": run.waiting, "message": run.message}}
        if state != self._waiting:
            self._waiting = state
            await self._say(state, "Pending", began=now() - run.since)

    async def started(self) -> None:
        self._began = now()
        phase = "Pending" if self.is_init else "Running"
        await self._say({"running": {"startedAt": stamp(self._began)}}, phase)

    async def ended(self, run: Run) -> None:
        terminated = {
            "exitCode": run.exit_code,
            "reason": "Error" if run.exit_code else "Completed",
            "startedAt": stamp(self._began - run.late),
            "finishedAt": stamp(now() - run.late),
        }
        self.is_over = self.is_init and run.exit_code == 0
        phase = "Running" if self.is_over or not self.is_init else "Pending"
        await self._say({"terminated": terminated}, phase)
        self._last = {"terminated": terminated}

    async def _say(self, state: Raw, phase: str, *, began: datetime | None = None) -> None:
        spec = self.pod["spec"]
        containers = spec["initContainers"] if self.is_init else spec["containers"]
        image = next((c["image"] for c in containers if c["name"] == names.CONTAINER_NAME), "")
        task = {
            "name": names.CONTAINER_NAME,
            "image": image,
            "imageID": "",
            "ready": "running" in state or self.is_over,
            "restartCount": self.restarts,
            "containerID": f"played://{self.pod['metadata']['uid']}/{self.restarts}",
            "state": state,
            "lastState": self._last,
        }
        status: Raw = {"phase": phase, "hostIP": "127.0.0.1"}
        start = (self.pod.get("status") or {}).get("startTime")
        if began is not None or start is None:
            start = stamp(began or now())
            self.pod = {**self.pod, "status": {"startTime": start}}
        status["startTime"] = start
        status["initContainerStatuses" if self.is_init else "containerStatuses"] = [task]
        meta = self.pod["metadata"]
        await self.world.admin.merge_patch(
            PODS, meta["name"], {"metadata": {"uid": meta["uid"]}, "status": status},
            meta["namespace"], subresource="status",
        )  # fmt: skip


def uid(raw: Raw) -> str:
    return raw["metadata"]["uid"]


def owner_uid(raw: Raw) -> str:
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def target_node(pod: Raw) -> str:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for each in term.get("matchFields") or ():
            return each["values"][0]
    return pod["spec"].get("nodeName") or ""


def fits(spec: Raw, node: Raw) -> bool:
    """Return whether the required node affinity of a pod's spec allows the node."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms")
    if not terms:
        return True
    labels = node["metadata"].get("labels") or {}
    name = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_holds(r, labels) for r in term.get("matchExpressions") or ())
        and all(_holds(r, name) for r in term.get("matchFields") or ())
        for term in terms
    )


def _holds(requirement: Raw, values: Mapping[str, str]) -> bool:
    value = values.get(requirement["key"])
    match requirement["operator"]:
        case "In":
            return value in requirement["values"]
        case "NotIn":
            return value not in requirement["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise NotImplementedError(other)


def _ready(status: str, since: datetime) -> Raw:
    return {
        "type": "Ready",
        "status": status,
        "reason": "Played",
        "message": "",
        "lastHeartbeatTime": stamp(now()),
        "lastTransitionTime": stamp(since),
    }


def is_gated(pod_or_template: Raw) -> bool:
    return bool(pod_or_template["spec"].get("schedulingGates"))
