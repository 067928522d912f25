"""The model of Kubernetes' own controllers: DaemonSets, the scheduler, both garbage collectors.

The DaemonSet controller decides by `tests.fakekube.daemon_sets`, on a delayed view of the nodes and
the current pods (its expectations prevent a second pod), and then writes its status. Pods get the
gates that the template has when it decides. The scheduler binds a pod to a node whose taints it
tolerates. Not modelled: crashes of the DaemonSet controller, history of revisions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVarTuple

from tests.fakekube import daemon_sets, scheduler
from tests.fakekube.conditions import with_condition
from tests.fakekube.daemon_set_objects import build_pod, owned_pods
from tests.fakekube.daemon_sets import has_failed, is_deleting
from tests.fakekube.failed_pods import FailedPods
from tests.fakekube.garbage_collector import has_lost_node, is_orphan
from tests.fakekube.pod_endings import collected
from tests.simulation.cordons import CORDON_TAINT, has_taint, is_cordoned
from tests.simulation.orphans import adopt_pods
from tests.simulation.server import (
    DAEMON_SETS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    SCHEDULED_JOBS,
    Raw,
    Write,
    controller_of,
    node_of,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

Ts = TypeVarTuple("Ts")
# How long the scheduler waits before it looks again at a pod that no node would take.
RETRY_SECONDS = 2.0
# The pod garbage collector's quarantine of nodes, shortened (40 s in Kubernetes).
QUARANTINE_SECONDS = 20.0
_NOWHERE = daemon_sets.Placement(should_run=False, should_continue=False)


class ClusterModel:
    """Reacts to what happens in the API, each controller in its own time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._server = world.server
        self._view: dict[str, Raw] = {}
        self._dirty: set[tuple[str, str]] = set()
        self._creating: set[tuple[str, str]] = set()
        self._serial = 0
        self._syncs = 0
        self._written_syncs: dict[str, int] = {}
        # UIDs of DaemonSets that were not looked at since a node went that could have their pod.
        self._unheard: set[str] = set()
        self._failed_pods = FailedPods()

    def changed(self, write: Write) -> None:
        """React to a write."""
        plural, old, new, raw = write.plural, write.old, write.new, write.raw
        if plural == PODS:
            self._pod_changed(raw, new)
        elif plural == DAEMON_SETS:
            if old is None and is_orphan(raw, self._has_job):
                self._collect(DAEMON_SETS, controller_of(raw))  # made for an owner that is gone
            if new is None:
                self._collect(PODS, raw["metadata"]["uid"])
            elif old is None or old["spec"] is not new["spec"]:
                self._touch(raw)
        elif plural in {JOBS, SCHEDULED_JOBS} and new is None:
            for owned in (DAEMON_SETS, JOBS):
                self._collect(owned, raw["metadata"]["uid"])
        elif plural == JOBS and old is None and is_orphan(raw, self._has_job):
            self._collect(JOBS, controller_of(raw))
        elif plural == NODES:
            self._node_changed(write)

    def explain(self, job_uid: str) -> str:
        """Return in words what the counters of a Job's DaemonSet do not know, "" for nothing."""
        owned = (d for d in self._server.all(DAEMON_SETS) if controller_of(d) == job_uid)
        if any(daemon_set["metadata"]["uid"] in self._unheard for daemon_set in owned):
            return ", the DaemonSet controller counts a node that has gone"
        return ""

    def seen_node(self, name: str) -> Raw | None:
        """Return a node as the DaemonSet controller has seen it last, None if it has not."""
        return self._view.get(name)

    # --- DaemonSets ----------------------------------------------------------------------

    def _touch(self, daemon_set: Raw) -> None:
        key = (daemon_set["metadata"]["namespace"], daemon_set["metadata"]["name"])
        if key not in self._dirty:
            self._dirty.add(key)
            self._later("daemonset-controller", "slow_daemon_sets", 0.01, 0.2, self._sync, key)

    def _node_changed(self, write: Write) -> None:
        old, new, raw = write.old, write.new, write.raw
        if old is None or new is None or _placing(old) != _placing(new):
            self._later("nodes-view", "slow_daemon_sets", 0.01, 0.3, self._see, raw, new)
        if new is not None and is_cordoned(new) != has_taint(new):
            self._later("node-controller", "", 0.01, 0.5, self._taint_by_cordon, new)
        if new is None:
            self._world.loop.call_later(
                QUARANTINE_SECONDS, self._collect_pods_of, raw["metadata"]["name"]
            )

    def _taint_by_cordon(self, node: Raw) -> None:
        """Put the taint on a node that keeps other pods off while it is cordoned, or take it."""
        raw = self._server.get(NODES, node["metadata"]["name"], "")
        if raw is not None:
            taints = [CORDON_TAINT] if is_cordoned(raw) else []
            self._world.put_taints("node-controller", raw, {CORDON_TAINT["key"]}, taints)

    def _see(self, raw: Raw, new: Raw | None) -> None:
        """Take a node as it is now, and look at the DaemonSets for which that is another answer.

        As addNode and updateNode of the DaemonSet controller do. It has no handler for nodes that
        are deleted: its counters have them until something else has it look, such as a pod.
        """
        name = raw["metadata"]["name"]
        before, now = self._view.get(name), self._server.get(NODES, name, "")
        others = {key: node for key, node in self._view.items() if key != name}
        self._view = others if now is None else {**others, name: now}
        if before is not None and now is not None and not _is_same(before, now):
            before = None
        for daemon_set in self._server.all(DAEMON_SETS):
            template = daemon_set["spec"]["template"]
            was, wish = (
                _NOWHERE if node is None else daemon_sets.placement(template, node)
                for node in (before, now)
            )
            if now is None and was.should_continue:
                self._unheard.add(daemon_set["metadata"]["uid"])
            elif now is not None and (wish.should_run if before is None else wish != was):
                self._touch(daemon_set)

    def _sync(self, key: tuple[str, str]) -> None:
        self._dirty.discard(key)
        daemon_set = self._server.objects[DAEMON_SETS].get(key)
        if daemon_set is None:
            return
        uid = daemon_set["metadata"]["uid"]
        if is_deleting(daemon_set):
            return
        self._unheard.discard(uid)
        if any(owner == uid for owner, _ in self._creating):
            self._touch(daemon_set)  # one sync of a DaemonSet at a time, and it makes its pods
            return
        self._syncs += 1
        adopt_pods(self._server, daemon_set)
        nodes = [self._view[name] for name in sorted(self._view)]
        pods = owned_pods(daemon_set, self._server.all(PODS))
        found = daemon_sets.sync(daemon_set, nodes, pods, partial(self._stays, daemon_set))
        for pod in found.delete:
            self._server.drop("daemonset-controller", PODS, pod)
        for node in found.create:
            self._create(daemon_set, node)
        self._later(
            "daemonset-controller",
            "",
            0.0,
            0.15,
            self._write_status,
            (self._syncs, daemon_set, self._view, found.counts),
        )

    def _stays(self, daemon_set: Raw, pod: Raw) -> bool:
        """Return whether it is too early to remove a failed pod; if so, look again later."""
        pause = self._failed_pods.pause(daemon_set, pod, self._world.loop.moment)
        if pause:
            self._world.loop.call_later(pause, self._touch, daemon_set)
        return pause > 0

    def _create(self, daemon_set: Raw, node: str) -> None:
        if (daemon_set["metadata"]["uid"], node) in self._creating:
            return
        self._creating.add((daemon_set["metadata"]["uid"], node))
        self._later("daemonset-controller", "", 0.005, 0.1, self._make_pod, daemon_set, node)

    def _make_pod(self, daemon_set: Raw, node: str) -> None:
        world, meta = self._world, daemon_set["metadata"]
        self._creating.discard((meta["uid"], node))
        if self._server.now(DAEMON_SETS, daemon_set) is None:
            return
        if world.is_refused(PODS):
            self._refuse(daemon_set)
            world.loop.call_later(1.0, self._touch, daemon_set)
            return
        self._serial += 1
        pod = build_pod(daemon_set, node)
        name = f"{meta['name']}-{node}-{self._serial}"
        body = {
            "metadata": {**pod["metadata"], "name": name},
            "spec": {**pod["spec"], "meant_for": node},
            "status": {"phase": "Pending"},
        }
        self._server.create("daemonset-controller", PODS, body, meta["namespace"])
        self._touch(daemon_set)  # as its watch shows the new pod

    def _refuse(self, daemon_set: Raw) -> None:
        meta = daemon_set["metadata"]
        name = f"refused-{meta['uid']}"
        body = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "DaemonSet", "uid": meta["uid"]},
            "reason": "FailedCreate",
            "message": "pods are forbidden: exceeded quota",
            "lastTimestamp": self._world.clock.stamp(),
        }
        if self._server.get(EVENTS, name, meta["namespace"]) is None:
            self._server.create("daemonset-controller", EVENTS, body, meta["namespace"])

    def _write_status(self, outcome: tuple[int, Raw, Raw, Raw]) -> None:
        """Write the status of a sync, unless that of a later one is written already."""
        number, daemon_set, nodes, counts = outcome
        meta = daemon_set["metadata"]
        if self._written_syncs.get(meta["uid"], 0) > number:
            return
        self._written_syncs[meta["uid"]] = number
        status = {"observedGeneration": meta["generation"], **counts}
        if self._server.now(DAEMON_SETS, daemon_set) is None:
            return
        oracle, template = self._world.oracle, daemon_set["spec"]["template"]
        desired = daemon_sets.desired_nodes(template, nodes.values())
        oracle.completion.counted(controller_of(daemon_set), nodes)
        oracle.turns.counted(controller_of(daemon_set), nodes)
        oracle.gates.daemon_set_synced(meta["uid"], desired)
        self._server.set_status("daemonset-controller", DAEMON_SETS, daemon_set, status)

    # --- pods ----------------------------------------------------------------------------

    def _pod_changed(self, raw: Raw, new: Raw | None) -> None:
        world = self._world
        for daemon_set in self._server.all(DAEMON_SETS):
            if daemon_set["metadata"]["uid"] == controller_of(raw):
                self._touch(daemon_set)
        if new is None:
            if machine := world.machines.get(raw["spec"].get("nodeName", "")):
                machine.pod_removed(raw["metadata"]["uid"])
            return
        if scheduler.may_bind(new):
            self._later("scheduler", "slow_scheduler", 0.01, 0.2, self._bind, new)
        machine = world.machines.get(new["spec"].get("nodeName", ""))
        if machine is not None and not has_failed(new):
            machine.pod_changed(new)

    def _bind(self, unbound: Raw) -> None:
        pod = self._server.now(PODS, unbound)
        if pod is None or pod["spec"].get("nodeName"):
            return
        meta, node = pod["metadata"], self._server.get(NODES, node_of(pod), "")
        if (
            node is not None
            and self._world.has_room(node["metadata"]["name"])
            and scheduler.fits(pod, node)
        ):
            body: dict[str, Any] = {"spec": {"nodeName": node["metadata"]["name"]}}
            if found := (pod.get("status") or {}).get("conditions"):
                body["status"] = {"conditions": with_condition(found, scheduler.scheduled())}
            self._server.patch("scheduler", PODS, meta["name"], body, namespace=meta["namespace"])
            return
        if node is None:
            self._mark_unschedulable(pod, scheduler.NO_NODE)
        else:
            oracle = self._world.oracle
            oracle.failures.allow_failure(node_of(pod), oracle.job_of.get(pod["metadata"]["uid"]))
            self._mark_unschedulable(pod, scheduler.TAINTED_NODE)
        self._world.loop.call_later(RETRY_SECONDS, self._bind, pod)

    def _mark_unschedulable(self, pod: Raw, message: str) -> None:
        """Report that no node takes the pod, once for each reason."""
        status = scheduler.unschedulable(pod.get("status"), message, self._world.clock.stamp())
        if status is not None:
            self._server.set_status("scheduler", PODS, pod, status)

    # --- garbage -------------------------------------------------------------------------

    def _collect(self, plural: str, owner_uid: str) -> None:
        self._later("garbage-collector", "slow_gc", 0.05, 1.0, self._collect_now, plural, owner_uid)

    def _has_job(self, uid: str) -> bool:
        owners = (*self._server.all(JOBS), *self._server.all(SCHEDULED_JOBS))
        return any(raw["metadata"]["uid"] == uid for raw in owners)

    def _collect_now(self, plural: str, owner_uid: str) -> None:
        for raw in self._server.all(plural):
            if is_orphan(raw, owner_uid.__ne__):
                self._server.drop("garbage-collector", plural, raw)

    def _collect_pods_of(self, node: str) -> None:
        if self._server.get(NODES, node, "") is not None:
            return
        for pod in self._server.all(PODS):
            if has_lost_node(pod, node.__ne__):
                meta = pod["metadata"]
                self._server.set_status("pod-gc", PODS, pod, collected(pod))
                self._server.remove("pod-gc", PODS, meta["name"], meta["namespace"])

    def _later(
        self,
        actor: str,
        slowed_by: str,
        low: float,
        high: float,
        act: Callable[[*Ts], object],
        *args: *Ts,
    ) -> None:
        world = self._world
        delay = world.lag(actor, low, high)
        if slowed_by:
            delay = max(delay, world.slowed_until(slowed_by) - world.loop.moment)
        world.loop.call_later(delay, act, *args)


def _is_same(node: Raw, other: Raw) -> bool:
    return bool(node["metadata"]["uid"] == other["metadata"]["uid"])


def _placing(node: Raw) -> tuple[Raw, list[Raw] | None]:
    """Return what of a node decides which pods it takes."""
    return node["metadata"]["labels"], (node.get("spec") or {}).get("taints")
