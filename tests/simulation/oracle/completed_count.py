"""The number of completed nodes in the status never goes down while the nodes stay the same.

A node counts once, whatever happens to its pod. Schedules in which nodes join, leave or change are
not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import DAEMON_SETS, PODS, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "falling count",
        "While no node joins, leaves or changes, the number of completed nodes never goes down.",
        mutant="excludes_cordoned_nodes",
        seed=70,
        excuses={
            "stale": "The controller decided without the newest DaemonSet or pods of the Job, "
            "because a watch was behind.",
        },
    ),
)

# What makes nodes that completed no longer desired, or other nodes.
CHURN = {
    "leave",
    "renew",
    "reregister",
    "zone",
    "select",
    "edit",
    "taint",
    "drain",
    "rerun",
    "relabel",
}


class CompletedCount:
    """Judges what the status of a Job says of completed nodes."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        self._churns = any(d.kind in CHURN for d in world.schedule.disturbances)

    def judge(self, old: Raw, new: Raw) -> None:
        """Judge the counts of a status that replaces another."""
        if self._churns:
            return
        before, after = (((job.get("status") or {}).get("nodes") or {}) for job in (old, new))
        if after.get("completed", 0) >= before.get("completed", 0):
            return
        daemon_set = self._oracle.daemon_set_of(new["metadata"]["uid"])
        if self._was_behind(daemon_set, new):
            self._oracle.excuse("falling count", "stale")
        else:
            self._oracle.violate(
                "falling count", f"completed: {before['completed']} to {after['completed']}"
            )

    def _was_behind(self, daemon_set: Raw | None, job: Raw) -> bool:
        """Return whether the controller decided without the newest DaemonSet or pods of a Job.

        guarantees.md says that a count can be lower for as long as a watch is behind. The report
        is written before the Job's status, and both are of one decision.
        """
        if daemon_set is None:
            return True
        controller = self._world.processes["controller"]
        uid = daemon_set["metadata"]["uid"]
        pods = [pod for pod in self._world.server.all(PODS) if controller_of(pod) == uid]
        known = {
            pod.name for pod in controller.watches[PODS].reflector.store if pod.owner_uid == uid
        }
        if known != {pod["metadata"]["name"] for pod in pods}:
            return True
        decided_at = self._world.decided_at.get(job["metadata"]["uid"])
        for plural, raw in ((DAEMON_SETS, daemon_set), *((PODS, pod) for pod in pods)):
            meta = raw["metadata"]
            cached = controller.cached(plural, meta["name"], meta["namespace"])
            if cached is None or cached.resource_version != meta["resourceVersion"]:
                return True
            watch = controller.watches[plural]
            delivered = watch.delivered_at.get((meta["namespace"], meta["name"]), 0.0)
            if decided_at is None or delivered >= decided_at:
                return True
        return False
