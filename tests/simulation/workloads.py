"""The model of other clients' pods: where they run, their evictions, and their successors.

The rules of evictions are those of pkg/registry/core/pod/rest/eviction.go. A pod with a budget is
evicted only while enough others are healthy; one that is being deleted is so in any case. A
ReplicaSet creates the successor at once. The scheduler looks for a node that is Ready, and not
cordoned or tainted unless the pod tolerates that. It binds the pod a moment later, whatever has
become of the node. On a machine that is down no pod ends. Not modelled: pods that end by
themselves, and several budgets of a pod.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daemonset_job.kube.client.errors import Conflict, NotFound, Throttled
from tests.fakekube.daemon_sets import is_terminal
from tests.fakekube.node_lifecycle import ready_status, taints_of
from tests.simulation.cordons import is_cordoned
from tests.simulation.schedule import Workload
from tests.simulation.server import NODES, PODS, Raw, Write

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMESPACE = "shop"
# The kubelet's mark of a pod from a file of its node.
MIRROR = "kubernetes.io/config.mirror"
# Kinds of controllers that have a pod on each node.
ON_EACH_NODE = {"DaemonSet", "Node"}
RETRY_SECONDS = 2.0
REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclass(slots=True, eq=False)
class OtherPod:
    """A pod: on which node it is since when, and when it was deleted and has gone."""

    workload: Workload
    name: str
    uid: str
    node: str = ""
    bound_at: float = math.inf
    ready_at: float = math.inf
    deleted_at: float = math.inf
    gone_at: float = math.inf

    @property
    def path(self) -> str:
        """How messages name it."""
        return f"{NAMESPACE}/{self.name}"

    def was_on(self, node: str, since: float, until: float) -> bool:
        """Return whether it was on a node at some moment of that time."""
        return self.node == node and self.bound_at <= until and self.gone_at > since

    def raw(self, moment: float) -> Raw:
        """Return the object in the API as it was at a moment."""
        kind, meta = self.workload.kind, {"namespace": NAMESPACE, "name": self.name}
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": self.workload.name, "uid": "-"}
        metadata: dict[str, Any] = {**meta, "uid": self.uid, "labels": {"app": self.workload.name}}
        metadata["ownerReferences"] = [{**owner, "controller": True}] if kind else []
        if kind == "Node":
            metadata["annotations"] = {MIRROR: "hash"}
        if self.deleted_at <= moment:
            metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        volumes = [{"name": "cache", "emptyDir": {}}] if self.workload.has_empty_dir else []
        spec: dict[str, Any] = {"nodeName": self.node, "volumes": volumes}
        if self.workload.tolerates_cordon:
            spec["tolerations"] = [{"operator": "Exists"}]
        return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


@dataclass(slots=True)
class Workloads:
    """All pods that ever were, and how many of each workload its budget keeps healthy."""

    world: World
    pods: list[OtherPod] = field(default_factory=list)
    budgets: dict[str, int | None] = field(default_factory=dict)

    def begin(self) -> None:
        """Have the pods on the nodes that are there from the beginning."""
        # The nodes whose turns are late are full, and the first one may be empty.
        nodes = sorted(raw["metadata"]["name"] for raw in self.world.server.all(NODES))[::-1]
        for workload in self.world.schedule.workloads:
            self.budgets[workload.name] = workload.healthy
            if workload.kind in ON_EACH_NODE or not nodes:
                continue
            for number in range(workload.replicas):
                pod = self._make(workload)
                pod.node, pod.bound_at, pod.ready_at = nodes[number % len(nodes)], 0.0, 0.0

    def changed(self, write: Write) -> None:
        """React to a node that joins or leaves."""
        if write.plural != NODES or (write.old is not None and write.new is not None):
            return
        name, now = write.raw["metadata"]["name"], self.world.loop.moment
        if write.old is None:
            for workload in self.world.schedule.workloads:
                if workload.kind in ON_EACH_NODE:
                    pod = self._make(workload)
                    pod.node, pod.bound_at, pod.ready_at = name, now, now
            return
        for pod in list(self.on_node(name)):
            pod.gone_at = now
            if pod.deleted_at > now:
                self._replace(pod)

    def scale(self, name: str) -> None:
        """Have one more pod of a workload, which the scheduler has yet to place."""
        for workload in self.world.schedule.workloads:
            if workload.name == name:
                self._place(self._make(workload))

    # --- what the API server answers -----------------------------------------------------

    def listed(self, node: str, age: float) -> list[Raw]:
        """Return the pods on a node that have not ended, those of Jobs too; others of a while ago.

        A DaemonSet controls the pods of a Job, so it does not matter when they came.
        """
        moment = self.world.loop.moment - age
        others = [pod.raw(moment) for pod in self.pods if pod.was_on(node, moment, moment)]
        ours = self.world.server.all(PODS)
        on_node = [pod for pod in ours if pod["spec"].get("nodeName") == node]
        return [*others, *(pod for pod in on_node if not is_terminal(pod))]

    def evict(self, name: str, namespace: str, options: Raw) -> None:
        """Evict a pod; NotFound, Conflict, and Throttled if its budget does not allow it."""
        if own := self.world.server.get(PODS, name, namespace):
            self.world.oracle.evictions.judge(own, own["spec"].get("nodeName") or "")
            self.world.server.drop("controller", PODS, own)
            return
        pod = next((each for each in self._living() if each.path == f"{namespace}/{name}"), None)
        if pod is None:
            raise NotFound(f"pods {name} not found")
        if options["preconditions"]["uid"] != pod.uid:
            raise Conflict(f"the UID in the precondition does not match {pod.uid}")
        now = self.world.loop.moment
        self.world.oracle.evictions.judge(pod.raw(now), pod.node)
        if pod.deleted_at <= now:
            return
        self._check_budget(pod)
        pod.deleted_at = now
        self._replace(pod)
        grace = float(options.get("gracePeriodSeconds") or pod.workload.grace)
        machine = self.world.machines.get(pod.node)
        later = machine.call_later if machine is not None else self.world.loop.call_later
        later(min(grace, pod.workload.grace), self._end, pod)

    def _check_budget(self, pod: OtherPod) -> None:
        needed, now = self.budgets[pod.workload.name], self.world.loop.moment
        if needed is None:
            return
        healthy = sum(
            each.workload is pod.workload and each.ready_at <= now < each.deleted_at
            for each in self._living()
        )
        if healthy - (pod.ready_at <= now) < needed:
            words = f"The disruption budget {pod.workload.name} needs {needed} healthy pods"
            causes = [{"reason": "DisruptionBudget", "message": f"{words} and has {healthy}"}]
            raise Throttled(REFUSAL, details={"causes": causes})

    # --- where they are ------------------------------------------------------------------

    def on_node(self, node: str, since: float | None = None) -> Iterator[OtherPod]:
        """Yield the pods that are on a node, or have been since a moment."""
        now = self.world.loop.moment
        begin = now if since is None else since
        return (pod for pod in self.pods if pod.was_on(node, begin, now))

    def _living(self) -> Iterator[OtherPod]:
        return (pod for pod in self.pods if pod.gone_at == math.inf)

    def _make(self, workload: Workload) -> OtherPod:
        number = len(self.pods)
        pod = OtherPod(workload, f"{workload.name}-{number}", f"{number:05x}000-other")
        self.pods.append(pod)
        return pod

    def _replace(self, pod: OtherPod) -> None:
        """Have the controller of a pod that is being deleted create another one."""
        if pod.workload.kind == "ReplicaSet":
            self._place(self._make(pod.workload))

    def _place(self, pod: OtherPod) -> None:
        """Look for a node; there may be none for now."""
        world = self.world
        if world.is_over:
            return
        nodes = [node["metadata"]["name"] for node in world.server.all(NODES) if _takes(node, pod)]
        if not nodes:
            world.loop.call_later(RETRY_SECONDS, self._place, pod)
            return
        node = min(nodes, key=lambda name: (sum(1 for _ in self.on_node(name)), name))
        world.loop.call_later(world.lag("other-scheduler", 0.01, 0.3), self._bind, pod, node)

    def _bind(self, pod: OtherPod, node: str) -> None:
        world = self.world
        if world.server.get(NODES, node, "") is None:
            self._place(pod)
            return
        pod.node, pod.bound_at = node, world.loop.moment
        pod.ready_at = world.loop.moment + world.lag("other-kubelets", 0.3, 2.0)
        world.note("other-scheduler", "binds", pod.path, node)

    def _end(self, pod: OtherPod) -> None:
        if pod.gone_at == math.inf:
            pod.gone_at = self.world.loop.moment
            self.world.note("other-kubelets", "end", pod.path, pod.node)


def _takes(node: Raw, pod: OtherPod) -> bool:
    """Return whether a raw node takes a pod, which tolerates nothing, or cordons."""
    if pod.workload.tolerates_cordon:
        return ready_status(node) == "True"
    return ready_status(node) == "True" and not is_cordoned(node) and not taints_of(node)
