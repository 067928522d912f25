"""The number of completed nodes in the status never goes down while all of them still count.

A node counts once, whatever happens to its pod, its labels and its taints, and whichever watch is
behind. Schedules in which nodes leave the cluster or Jobs change are not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import is_continuous
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "falling count",
        "While no node leaves the cluster and no Job changes, the number of completed nodes never "
        "goes down.",
        mutant="excludes_cordoned_nodes",
        seed=70,
    ),
)

# What makes nodes that completed no longer desired, or other nodes.
CHURN = {"leave", "renew", "reregister", "select", "edit", "rerun"}
# With policy Continuous a node that comes back is due again.
CHURN_OF_CONTINUOUS = CHURN | {"zone", "taint", "drain", "relabel"}


class CompletedCount:
    """Judges what the status of a Job says of completed nodes."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._oracle = oracle
        # A node that is drained permanently leaves the cluster.
        self._kinds = {
            "leave" if (d.kind, d.seconds) == ("drain", 0.0) else d.kind
            for d in world.schedule.disturbances
        }

    def judge(self, old: Raw, new: Raw) -> None:
        """Judge the counts of a status that replaces another."""
        if self._kinds & (CHURN_OF_CONTINUOUS if is_continuous(new) else CHURN):
            return
        before, after = (((job.get("status") or {}).get("nodes") or {}) for job in (old, new))
        if after.get("completed", 0) < before.get("completed", 0):
            words = f"completed: {before['completed']} to {after.get('completed', 0)}"
            self._oracle.violate("falling count", words)
