"""The gates of pods: when each was removed, after which read, and when a template must have one.

A run begins without the gate and gets it once every node has its first pod. The oracle enforces a
bound on that window. The gate has to be in the template DUE_SECONDS after the DaemonSet controller
has counted every desired node, if each has had a pod ever since. The bound is suspended while the
controller is disturbed (down, its watches stalled, its requests failing). Only a pod that was made
without the gate within that window may run the task of a completed node again. A DaemonSet that is
recreated with evidence on record must have the gate from the beginning, if the controller's watch
had delivered that evidence (`starts` has the excuses).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.fakekube import daemon_sets
from tests.simulation.oracle import due_again
from tests.simulation.oracle.facts import find_job
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import DAEMON_SETS, NODES, PODS, Raw, Write, controller_of

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "gate",
        "The template of a DaemonSet has the gate soon after every desired node has its first pod.",
        mutant="never_adds_gates",
        seed=2,
    ),
)

DUE_SECONDS = 8.0


class Gates:
    """What is known of pods' gates, by pod UID, and since when DaemonSets are exact."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._born_gated: dict[str, bool] = {}
        self._owner: dict[str, str] = {}
        self._window: dict[str, str] = {}
        self._read_at: dict[str, dict[str, float]] = {}
        self._exact_since: dict[str, float] = {}
        # By UID of the DaemonSet: UIDs by name of the nodes that its controller counts as desired.
        self._counted: dict[str, dict[str, str]] = {}

    def pod_written(self, write: Write, read_at: Mapping[str, float]) -> None:
        """Note the birth of a pod, the removal of its gate, and what ends exactness."""
        old, new, raw = write.old, write.new, write.raw
        uid = raw["metadata"]["uid"]
        owner = controller_of(raw)
        if old is None:
            self._born_gated[uid] = bool(raw["spec"].get("schedulingGates"))
            self._owner[uid] = owner
        elif new is None or ("deletionTimestamp" in new["metadata"]):
            self._exact_since.pop(owner, None)
        elif old["spec"].get("schedulingGates") and not new["spec"].get("schedulingGates"):
            self._read_at[uid] = dict(read_at)
            if write.actor == "controller":
                due_again.judge_gate(self._world, new)
                self._world.oracle.corrections.judge_gate(new)
                self._world.oracle.holds.judge_gate(new)
                self._world.oracle.cordons.judge_gate(new)
                self._world.oracle.evictions.judge_gate(new)
                self._world.oracle.excluded_nodes.judge_gate(new)
                self._world.oracle.images_first.gate_removed(new)
                self._world.oracle.turn_specs.gate_removed(new)

    def judge_start(self, pod_uid: str, job_uid: str, entered_at: float) -> tuple[str, str]:
        """Return (excuse, words) for the start of a completed node's task in a new pod."""
        if not self._born_gated.get(pod_uid, True):
            excuse = self._window.get(self._owner[pod_uid], "")
            return excuse, "its DaemonSet was made without the gate, with work on record"
        read_at = self._read_at.get(pod_uid, {}).get(job_uid, -1.0)
        # In the same moment, the read may have come first.
        if read_at <= entered_at:
            return (
                ("stale read", "")
                if read_at >= 0
                else ("", "its gate was removed without a reading")
            )
        return "", f"its gate was removed on a ledger read at {read_at:.3f} that had the node"

    def daemon_set_made(self, raw: Raw) -> None:
        """Note why pods of a new DaemonSet may be made without the gate, "" if they may not."""
        world, job_uid = self._world, controller_of(raw)
        self._window[raw["metadata"]["uid"]] = "window"
        if not any(job == job_uid for job, _ in world.oracle.evidence.entered):
            return
        watch = world.processes["controller"].watches.get("jobreports")
        decided = world.decided_at.get(job_uid, 0.0)
        has_seen = watch is not None and any(
            report.job_uid == job_uid
            and (report.evidence or report.records)
            and watch.delivered_at[report.namespace, report.name] < decided
            for report in watch.reflector.store
        )
        self._window[raw["metadata"]["uid"]] = "" if has_seen else "recreated"

    # --- the bound -----------------------------------------------------------------------

    def daemon_set_synced(self, uid: str, counted: dict[str, str]) -> None:
        """Begin to count the time in which the gate has to come, if every node has its pod."""
        world = self._world
        self._counted[uid] = counted
        daemon_set = next(
            (d for d in world.server.all(DAEMON_SETS) if d["metadata"]["uid"] == uid), None
        )
        if daemon_set is None or not self._is_exact(daemon_set):
            self._exact_since.pop(uid, None)
        elif uid not in self._exact_since:
            self._exact_since[uid] = since = world.loop.moment
            world.loop.call_later(DUE_SECONDS, self._check, uid, since)

    def _is_exact(self, daemon_set: Raw) -> bool:
        world = self._world
        uid = daemon_set["metadata"]["uid"]
        counted, nodes = self._counted.get(uid, {}), world.server.all(NODES)
        template = daemon_set["spec"]["template"]
        if not counted or counted != daemon_sets.desired_nodes(template, nodes):
            return False
        made = {}
        for pod in world.server.all(PODS):
            if controller_of(pod) != uid:
                continue
            node = pod["spec"]["meant_for"]
            # guarantees.md: a node that left before it was recorded counts for half a minute more.
            if "deletionTimestamp" in pod["metadata"] or not world.server.get(NODES, node, ""):
                return False
            made[node] = world.oracle.born[pod["metadata"]["uid"]]
        return all(made.get(n, -1.0) >= world.oracle.born[counted[n]] for n in counted)

    def _check(self, uid: str, since: float) -> None:
        world = self._world
        if world.is_over or self._exact_since.get(uid) != since:
            return
        controller = world.processes["controller"]
        if not controller.is_up or world.undisturbed_from["controller"] > since:
            if world.undisturbed_from["controller"] > since:
                self._exact_since[uid] = again = max(since, world.undisturbed_from["controller"])
                world.loop.call_at(
                    max(again, world.loop.moment) + DUE_SECONDS, self._check, uid, again
                )
            return
        for daemon_set in world.server.all(DAEMON_SETS):
            job_uid = controller_of(daemon_set)
            job = find_job(world.server, job_uid)
            if daemon_set["metadata"]["uid"] != uid or job is None:
                continue
            if not self._is_exact(daemon_set):
                # A node has gone: the DaemonSet controller does not see that by itself.
                self._exact_since.pop(uid, None)
                continue
            newest = max(
                world.oracle.born[pod["metadata"]["uid"]]
                for pod in world.server.all(PODS)
                if controller_of(pod) == uid
            )
            if newest > since:  # a node has gone, and another one has come
                self._exact_since[uid] = newest
                world.loop.call_at(newest + DUE_SECONDS, self._check, uid, newest)
                continue
            if not daemon_set["spec"]["template"]["spec"].get("schedulingGates"):
                why = world.oracle.completion.explain(job_uid, ())
                world.oracle.violate(
                    "gate", f"not up {DUE_SECONDS:g} s after every node had a pod{why}"
                )
