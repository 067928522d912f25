"""No task starts on a node that the newest spec excludes, and none of a Job that is deleted.

A node is excluded if `spec.nodes`, or the node selector or the affinity of the template, does not
match it. So is a node with a taint NoExecute that the pods do not tolerate. After a taint
NoSchedule a pod that is there stays.

The controller keeps the gate of a pod on such a node as soon as it has read the change. A pod
without a gate goes in three steps: the controller changes the DaemonSet, the DaemonSet controller
deletes the pod, and the kubelet sees that. So its task may start for GOING_SECONDS more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.fakekube import daemon_sets
from tests.simulation import intent
from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import DAEMON_SETS, JOBS, NODES, PODS, Raw, Write, controller_of

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "excluded",
        "No gate is removed of a pod on a node that the newest spec excludes. Nor is it if the pod "
        "tolerates a taint which that spec does not tolerate. None is removed of a Job that is "
        "deleted, or complete by successPolicy.minCompleted. All of this is judged by what the "
        "controller has read.",
        mutant="starts_excluded_nodes",
        seed=11_000_000_259,
    ),
    Invariant(
        "started outside",
        "No task starts on a node that the newest spec has excluded for 8 s, or of a Job that was "
        "deleted 30 s ago.",
        mutant="keeps_former_selections",
        seed=11_000_000_188,
        excuses={
            "controller away": "The DaemonSet still chooses the node: the controller was away, a "
            "watch of it was late, or the API server did not take its writes "
            "(guarantees.md, Which nodes).",
            "Kubernetes late": "The DaemonSet controller or the garbage collector has not looked "
            "yet (guarantees.md, Which nodes).",
            "no DaemonSet": "A client has deleted the DaemonSet of the pod, and none has adopted "
            "the pod yet (guarantees.md, Which nodes).",
            "no node": "The Node object was deleted before it had been excluded for 8 s. Its "
            "machine has started the pod that is left of it, and has been registered again for "
            "less than 8 s (guarantees.md, Which nodes).",
        },
    ),
)

# From an edit, or a change of a node, until no pod without a gate is left that may start there.
GOING_SECONDS = 8.0
# From the deletion of a Job until its DaemonSet and the pods of that are deleted, too.
COLLECTED_SECONDS = 30.0


@dataclass(slots=True)
class ExcludedNodes:
    """Receives DaemonSets and Jobs, removed gates and starting tasks."""

    world: World
    oracle: Oracle
    # By the UID of a DaemonSet: its templates, with the moments of their writes.
    _templates: dict[str, list[tuple[float, Raw]]] = field(default_factory=dict)
    # By the UID of a Job: when it was deleted, and when it was said that enough nodes are done.
    _deleted: dict[str, float] = field(default_factory=dict)
    _enough: dict[str, float] = field(default_factory=dict)
    # By the name of a node: when its Node objects were deleted.
    _unregistered: dict[str, list[float]] = field(default_factory=dict)

    def written(self, write: Write) -> None:
        """Note a template, the deletion of a Job, and that enough nodes have completed."""
        uid, new, now = write.raw["metadata"]["uid"], write.new, self.world.loop.moment
        if write.plural == DAEMON_SETS and new is not None:
            known, template = self._templates.setdefault(uid, []), new["spec"]["template"]
            if not known or known[-1][1] != template:
                known.append((now, template))
        elif write.plural == JOBS and (new is None or "deletionTimestamp" in new["metadata"]):
            self._deleted.setdefault(uid, now)
        elif write.plural == JOBS:
            self._note_enough(write.old or {}, write.raw)
        elif write.plural == NODES and new is None:
            self._unregistered.setdefault(write.raw["metadata"]["name"], []).append(now)

    def _note_enough(self, old: Raw, new: Raw) -> None:
        uid, is_enough = new["metadata"]["uid"], is_true(new, "Complete", "MinCompletedReached")
        if not is_enough or old.get("spec") != new["spec"]:
            self._enough.pop(uid, None)
        if is_enough and old.get("spec") == new["spec"]:
            self._enough.setdefault(uid, self.world.loop.moment)

    # --- gates -------------------------------------------------------------------------------

    def judge_gate(self, pod: Raw) -> None:
        """Judge the removal of a pod's gate by the controller."""
        uid, node = self.oracle.job_of.get(pod["metadata"]["uid"], ""), pod["spec"]["meant_for"]
        decision = self.world.gates_decided.get(uid)
        if decision is None:
            return
        jobs_until, nodes_until = decision
        if self._deleted.get(uid, math.inf) < jobs_until:
            self.oracle.violate("excluded", f"{node} may start after the Job was deleted")
        if self._enough.get(uid, math.inf) < jobs_until:
            self.oracle.violate("excluded", f"{node} may start, and enough nodes have completed")
        specs = self.oracle.completion.known(uid, jobs_until)
        nodes = self.oracle.completion.node_versions.since(node, nodes_until)
        cases = [(spec, raw) for spec in specs for raw in nodes]
        if not any(intent.matches(spec, raw) for spec, raw in cases):
            words = f"{node} may start, which no spec chooses that the controller may know"
            self.oracle.violate("excluded", words)
        # Otherwise the scheduler keeps the pod off.
        tolerates = any(not daemon_sets.keeping_off(pod, raw) for raw in nodes)
        if tolerates and all(_keeping_off(spec, raw) for spec, raw in cases):
            words = f"{node} may start, and no spec that the controller may know tolerates a taint"
            self.oracle.violate("excluded", words)

    # --- tasks -------------------------------------------------------------------------------

    def task_starts(self, run: PodRun) -> None:
        """Judge the start of an instance of a task."""
        uid, now = self.oracle.job_of.get(run.pod_uid, ""), self.world.loop.moment
        if not uid or run.is_forged:
            return
        since = now - GOING_SECONDS
        is_gone = now - self._deleted.get(uid, math.inf) > COLLECTED_SECONDS
        if not is_gone and self._was_chosen(uid, run.machine.name, since):
            return
        if not self._was_chosen(uid, run.machine.name, -math.inf):
            why = "which no spec has ever chosen"
        elif self._is_excused(run, uid, is_gone=is_gone):
            return
        else:
            why = "its Job is deleted" if is_gone else f"excluded for {GOING_SECONDS:g} s"
        self.oracle.violate("started outside", f"{run.machine.name} starts, {why}")

    def _was_chosen(self, uid: str, name: str, since: float) -> bool:
        """Return whether from a moment on a spec of the Job has let a pod stay on the node.

        If none ever has, the pod was never right, and nothing that is late excuses it.
        """
        specs = self.oracle.completion.known(uid, since)
        nodes = self.oracle.completion.node_versions.since(name, since)
        return any(intent.placement(s, n).should_continue for s in specs for n in nodes)

    def _is_excused(self, run: PodRun, uid: str, *, is_gone: bool) -> bool:
        """Return whether there is a reason why a pod that should be gone is there."""
        world, since = self.world, self.world.loop.moment - GOING_SECONDS
        pod = world.server.now(PODS, run.raw) or run.raw
        owners = {raw["metadata"]["uid"] for raw in world.server.all(DAEMON_SETS)}
        owner = controller_of(pod)
        if owner not in owners:
            self.oracle.excuse("started outside", "no DaemonSet")
            return True
        if is_gone:
            since = world.loop.moment - COLLECTED_SECONDS
        elif self._is_left(run, since):
            # What counts are these seconds before its Node object was deleted.
            since = self._left_at(run) - GOING_SECONDS
            if self._was_chosen(uid, run.machine.name, since):
                self.oracle.excuse("started outside", "no node")
                return True
        if not is_gone and self._is_chosen(owner, run.machine.name, since):
            if self._was_well(since):
                return False
            self.oracle.excuse("started outside", "controller away")
            return True
        is_late = world.late_until("slow_gc" if is_gone else "slow_daemon_sets") > since
        if is_late:
            self.oracle.excuse("started outside", "Kubernetes late")
        return is_late

    def _is_left(self, run: PodRun, since: float) -> bool:
        """Return whether a pod is of a Node object that is gone, and no other was there in time.

        The DaemonSet controller looks at the pods of registered nodes only.
        """
        raw, born = self.world.server.get(NODES, run.machine.name, ""), self.oracle.born
        if raw is None:
            return True
        registered = born[raw["metadata"]["uid"]]
        return registered > since and born[run.pod_uid] < registered

    def _left_at(self, run: PodRun) -> float:
        """Return when the Node object of a pod that is left was deleted.

        The DaemonSet controller may create a pod just after that.
        """
        deleted, born = self._unregistered[run.machine.name], self.oracle.born[run.pod_uid]
        return next((at for at in deleted if at > born), deleted[-1])

    def _is_chosen(self, owner: str, name: str, since: float) -> bool:
        """Return whether from a moment on the DaemonSet has let a pod stay on the node."""
        templates = self._templates_since(owner, since)
        nodes = self.oracle.completion.node_versions.since(name, since)
        return any(daemon_sets.placement(t, n).should_continue for t in templates for n in nodes)

    def _templates_since(self, uid: str, moment: float) -> list[Raw]:
        """Return the templates that a DaemonSet has had from a moment on."""
        known = self._templates[uid]
        before = [template for at, template in known if at < moment][-1:]
        return [*before, *(template for at, template in known if at >= moment)]

    def _was_well(self, since: float) -> bool:
        """Return whether nothing has disturbed the controller since a moment."""
        controller = self.world.processes["controller"]
        is_well = controller.is_up and controller.started_at < since
        return is_well and self.world.undisturbed_from["controller"] < since


def _keeping_off(spec: Raw, node: Raw) -> list[Raw]:
    """Return the taints of a raw node that a Job of this raw spec does not tolerate."""
    return daemon_sets.keeping_off(spec.get("template") or {}, node)
