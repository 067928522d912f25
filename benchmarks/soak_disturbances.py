"""The disturbances of a soak run, done to the cluster.

Each one takes back what it did when its time is over, and when the run is interrupted. `restore`
does so for all of them together, as they leave marks: a taint's key, a quota's name, a label.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from benchmarks.soak_cluster import RECOVERY_SECONDS, CommandError, SoakCluster, patiently
from benchmarks.soak_oracle import Touch
from benchmarks.soak_samples import SYSTEM, SYSTEM_PODS
from benchmarks.soak_schedule import Disturbance
from daemonset_job.api import names
from daemonset_job.kube.client.errors import KubeError, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS, NODES, PODS, Resource
from hack.devcluster import fakenodes

Candidate = TypeVar("Candidate")

TAINT = "soak.daemonset-job/disturbed"
QUOTA = "soak-disturbance"
CORDONED = "soak.daemonset-job/cordoned"
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
# It ends when the kubelet is well again.
_HEALTH = "127.0.0.1:10248/healthz"
_RESTART_KUBELET = (
    "systemctl restart kubelet; for n in $(seq 20); do sleep 1; "
    f"h=$(curl -s -m 2 http://{_HEALTH} || wget -qO- {_HEALTH}); "
    '[ "$h" = ok ] && exit 0; done; echo the kubelet is not well >&2; exit 1'
)


class Disturber:
    """Does to a cluster what was drawn, and notes which pods it has ended by that."""

    def __init__(self, cluster: SoakCluster, log: Callable[[Mapping[str, Any]], None]) -> None:
        self.ended = 0
        """How many processes of the system were ended on purpose, counted for each program."""
        self._cluster = cluster
        self._client = cluster.client
        self._log = log
        # One real node at a time: what needs one that works can then rely on the others.
        self._real = asyncio.Lock()
        self._base = set(cluster.simulated_nodes())
        self.kinds: Mapping[str, Callable[[Disturbance], Awaitable[str]]] = {
            "taint-simulated": self._taint_simulated,
            "taint-real": self._taint_real,
            "cordon": self._cordon,
            "drain": self._drain,
            "evict-pod": self._evict_pod,
            "delete-pod": self._delete_pod,
            "delete-daemonset": self._delete_daemon_set,
            "nodes-join": self._nodes_join,
            "node-leaves": self._node_leaves,
            "quota": self._quota,
            "api-server-pause": lambda what: self._pause_blindly(what, "kube-apiserver"),
            "controller-manager-pause": (
                lambda what: self._pause_blindly(what, "kube-controller-manager")
            ),
            "scheduler-pause": lambda what: self._pause_component(what, "kube-scheduler"),
            "controller-pause": lambda what: self._pause_program(what, "job-controller"),
            "terminator-pause": lambda what: self._pause_program(what, "terminator"),
            "kubelet-pause": self._pause_kubelet,
            "kubelet-restart": self._restart_kubelet,
            "kill-controller": lambda _: self._kill("job-controller"),
            "kill-terminator": lambda _: self._kill("terminator"),
            "delete-system-pod": self._delete_system_pod,
            "node-stop": self._stop_node,
            # Back at once: its tasks are killed, and its node may never be called unreachable.
            "node-reboot": self._stop_node,
        }
        """What does each kind of disturbance, and returns in words what it was done to."""

    async def disturb(self, what: Disturbance) -> None:
        """Do one disturbance to its end; what cannot be done is noted and left."""
        began = time.time()
        line = {"type": "disturbance", "at": began, "kind": what.kind}
        try:
            words = await self.kinds[what.kind](what)
        except (KubeError, CommandError) as error:
            words = f"not done: {error}"
        self._log({**line, "seconds": round(time.time() - began, 1), "words": words})

    # --- nodes -------------------------------------------------------------------------

    async def _taint_simulated(self, what: Disturbance) -> str:
        return await self._taint(what, _choose(sorted(self._base), what.pick))

    async def _taint_real(self, what: Disturbance) -> str:
        async with self._real:
            node = _choose(await self._free_nodes(), what.pick)
            return await self._taint(what, node)

    async def _taint(self, what: Disturbance, node: str) -> str:
        effect = EFFECTS[int(what.pick * 1000) % len(EFFECTS)]
        if effect == "NoExecute":
            self._touch(what.kind, node=node)
        taint = {"key": TAINT, "value": "soak", "effect": effect}
        await self._edit_taints(node, lambda taints: [*taints, taint])
        try:
            await asyncio.sleep(what.seconds)
        finally:
            await self._edit_taints(node, _without_ours)
        return f"{node} {effect}"

    async def _edit_taints(
        self, node: str, edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
    ) -> None:
        async def once() -> None:
            found = await self._client.get(NODES, node)
            body = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "spec": {"taints": edit(found["spec"].get("taints") or [])},
            }
            await self._client.merge_patch(NODES, node, body)

        with suppress(NotFound):
            for _ in range(5):
                try:
                    await patiently(once)
                except KubeError as error:
                    if error.status != 409:
                        raise
                else:
                    return

    async def _cordon(self, what: Disturbance) -> str:
        node = _choose(sorted(self._cluster.nodes), what.pick)
        await self._set_cordon(node, True)
        try:
            await asyncio.sleep(what.seconds)
        finally:
            await self._set_cordon(node, False)
        return node

    async def _drain(self, what: Disturbance) -> str:
        async with self._real:
            node = _choose(await self._free_nodes(), what.pick)
            await self._set_cordon(node, True)
            try:
                pods = [p for p in await self._pods() if p["spec"].get("nodeName") == node]
                for pod in pods:
                    await self._evict(pod)
                await asyncio.sleep(what.seconds)
            finally:
                await self._set_cordon(node, False)
            return f"{node}, {len(pods)} pods"

    async def _set_cordon(self, node: str, cordoned: bool) -> None:
        body = {
            "metadata": {"annotations": {CORDONED: "true" if cordoned else None}},
            "spec": {"unschedulable": True if cordoned else None},
        }
        with suppress(NotFound):
            await patiently(lambda: self._client.merge_patch(NODES, node, body))

    async def _nodes_join(self, what: Disturbance) -> str:
        nodes = [f"fake-soak-{int(what.pick * 1e6)}-{number}" for number in range(3)]
        try:
            for name in nodes:
                await self._client.create(NODES, fakenodes.node(name))
            await asyncio.sleep(what.seconds)
        finally:
            for name in nodes:
                self._touch(what.kind, node=name)
                await self._remove_node(name)
        return ", ".join(nodes)

    async def _node_leaves(self, what: Disturbance) -> str:
        node = _choose(sorted(self._base), what.pick)
        self._touch(what.kind, node=node)
        await self._remove_node(node)
        try:
            await asyncio.sleep(what.seconds)
        finally:
            await self._bring_back(node)
        return node

    async def _remove_node(self, node: str) -> None:
        with suppress(NotFound):
            await patiently(lambda: self._client.delete(NODES, node))

    async def _bring_back(self, node: str) -> None:
        with suppress(KubeError):
            await patiently(lambda: self._client.create(NODES, fakenodes.node(node)))

    async def _stop_node(self, what: Disturbance) -> str:
        async with self._real:
            workers = [n for n in await self._free_nodes() if "control-plane" not in n]
            node = _choose(workers, what.pick)
            self._touch(what.kind, node=node)
            await self._cluster.docker("stop", "-t", "1", node)
            try:
                await asyncio.sleep(what.seconds)
            finally:
                await self._cluster.docker("start", node)
                self._touch(what.kind, node=node)
            return node

    async def _pause_kubelet(self, what: Disturbance) -> str:
        """Have all that a node reports, and its logs, come late."""
        async with self._real:
            node = _choose(await self._free_nodes(), what.pick)
            await self._pause(node, "*/kubelet' '*", what.seconds)
            return f"{node} {what.seconds:.1f} s"

    async def _restart_kubelet(self, what: Disturbance) -> str:
        """Have a kubelet admit its pods once more; their containers go on."""
        async with self._real:
            node = _choose(await self._free_nodes(), what.pick)
            self._touch(what.kind, node=node)
            try:
                await self._cluster.on_node(node, _RESTART_KUBELET)
            finally:
                self._touch(what.kind, node=node)
            return node

    async def _system_nodes(self) -> set[str]:
        pods = (await self._client.list(PODS, SYSTEM, label_selector=SYSTEM_PODS))["items"]
        return {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName")}

    async def _free_nodes(self) -> list[str]:
        """Return the real nodes that the system's own pod is not on: its long life is watched."""
        taken = await self._system_nodes()
        return [node for node in self._cluster.real_nodes() if node not in taken]

    # --- pods --------------------------------------------------------------------------

    async def _pods(self) -> list[Mapping[str, Any]]:
        page = await self._client.list(PODS, label_selector=names.MANAGED_SELECTOR)
        return [
            pod
            for pod in page["items"]
            if pod["metadata"]["namespace"] in self._cluster.namespaces
            and "deletionTimestamp" not in pod["metadata"]
        ]

    async def _evict_pod(self, what: Disturbance) -> str:
        pod = _choose(await self._pods(), what.pick)
        await self._evict(pod)
        return str(pod["metadata"]["name"])

    async def _evict(self, pod: Mapping[str, Any]) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._touch_pod("evicted", pod)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        with suppress(NotFound):
            await self._client.create(PODS.with_subresource("eviction"), body, namespace, name=name)

    async def _delete_pod(self, what: Disturbance) -> str:
        pod = _choose(await self._pods(), what.pick)
        self._touch_pod("deleted", pod)
        with suppress(NotFound):
            await self._client.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        return str(pod["metadata"]["name"])

    async def _delete_daemon_set(self, what: Disturbance) -> str:
        page = await self._client.list(DAEMON_SETS, label_selector=names.MANAGED_SELECTOR)
        found = _choose(
            [d for d in page["items"] if d["metadata"]["namespace"] in self._cluster.namespaces],
            what.pick,
        )["metadata"]
        self._touch(what.kind, found["namespace"], found["labels"][names.LABEL_JOB])
        with suppress(NotFound):
            await self._client.delete(DAEMON_SETS, found["name"], found["namespace"])
        return f"{found['namespace']}/{found['name']}"

    async def _quota(self, what: Disturbance) -> str:
        namespace = _choose(self._cluster.namespaces, what.pick)
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": QUOTA, "namespace": namespace},
            "spec": {"hard": {"pods": "0"}},
        }
        await self._client.create(QUOTAS, quota, namespace)
        try:
            await asyncio.sleep(what.seconds)
        finally:
            with suppress(NotFound):
                await patiently(lambda: self._client.delete(QUOTAS, QUOTA, namespace))
        return namespace

    # --- the system --------------------------------------------------------------------

    async def _pause_blindly(self, what: Disturbance, component: str) -> str:
        """Pause a component without which no change of a node is seen."""
        began = time.time()
        try:
            return await self._pause_component(what, component)
        finally:
            self._cluster.history.blind.append((began, time.time() + RECOVERY_SECONDS))

    async def _pause_component(self, what: Disturbance, component: str) -> str:
        node = next(node for node in self._cluster.real_nodes() if "control-plane" in node)
        await self._pause(node, f"*{component}' '*", what.seconds)
        return f"{what.seconds:.1f} s"

    async def _pause_program(self, what: Disturbance, program: str) -> str:
        """Have all that a program watches come late, and its writes: then all of it at once."""
        nodes = sorted(await self._system_nodes() & set(self._cluster.real_nodes()))
        pauses = (self._pause(node, f"*/bin/{program}' '*", what.seconds) for node in nodes)
        await asyncio.gather(*pauses)
        return f"{', '.join(nodes)} {what.seconds:.1f} s"

    async def _pause(self, node: str, pattern: str, seconds: float) -> None:
        # In one command, so that it goes on even if the harness does not live to say so.
        pause = f"kill -STOP $i; sleep {seconds:.1f}; kill -CONT $i"
        await self._cluster.on_node(node, _for_each(pattern, pause))

    async def _kill(self, program: str) -> str:
        script = _for_each(f"*/bin/{program}' '*", "kill -9 $i; echo killed")
        outputs = [await self._cluster.on_node(n, script) for n in self._cluster.real_nodes()]
        killed = sum(output.count("killed") for output in outputs)
        self.ended += killed
        return f"{killed} processes"

    async def _delete_system_pod(self, what: Disturbance) -> str:
        pods = (await self._client.list(PODS, SYSTEM, label_selector=SYSTEM_PODS))["items"]
        pod = _choose(pods, what.pick)["metadata"]["name"]
        self.ended += 1
        await self._client.delete(PODS, pod, SYSTEM)
        return str(pod)

    # --- the end -----------------------------------------------------------------------

    async def restore(self) -> None:
        """Take back whatever any disturbance has left on the cluster."""
        nodes = (await patiently(lambda: self._client.list(NODES)))["items"]
        for node in nodes:
            name = node["metadata"]["name"]
            if name.startswith("fake-soak-"):
                await self._remove_node(name)
                continue
            if any(taint["key"] == TAINT for taint in node["spec"].get("taints") or ()):
                await self._edit_taints(name, _without_ours)
            if CORDONED in (node["metadata"].get("annotations") or {}):
                await self._set_cordon(name, False)
        for name in self._base - {node["metadata"]["name"] for node in nodes}:
            await self._bring_back(name)
        for namespace in self._cluster.namespaces:
            with suppress(NotFound):
                await self._client.delete(QUOTAS, QUOTA, namespace)

    def _touch(self, what: str, namespace: str = "", job: str = "", node: str = "") -> None:
        self._cluster.touches.append(Touch(time.time(), what, namespace, job, node))

    def _touch_pod(self, what: str, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        job = metadata["labels"][names.LABEL_JOB]
        self._touch(what, metadata["namespace"], job, pod["spec"].get("nodeName") or "")


class NothingToChooseError(CommandError):
    """There is nothing of the kind that a disturbance is about."""


def _choose(candidates: Sequence[Candidate], pick: float) -> Candidate:
    if not candidates:
        raise NothingToChooseError("there is none")
    return candidates[int(pick * len(candidates))]


def _without_ours(taints: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [taint for taint in taints if taint["key"] != TAINT]


def _for_each(pattern: str, then: str) -> str:
    """Return a script that does something to every process, by its command line; $i is its pid."""
    return (
        "for p in /proc/[0-9]*; do c=$(tr '\\0' ' ' < $p/cmdline 2>/dev/null); i=${p#/proc/}; "
        f"case \"$c\" in sh' '*) ;; {pattern}) {then} ;; esac; done; :"
    )
