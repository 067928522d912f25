"""No write changes nothing, unless the cache of its writer was stale.

A cache is stale until the newest version of the object was delivered before the decision to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.oracle.invariant import Invariant

if TYPE_CHECKING:
    from tests.simulation.client import Call
    from tests.simulation.process import Process
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "idle write",
        "A program writes only what changes something, as far as its caches can show.",
        mutant="writes_unchanged_status",
        seed=3,
    ),
)


def judge_idle_write(world: World, process: Process, what: Call, sent_at: float) -> None:
    """Judge a write of a process that changed nothing."""
    _, plural, name, namespace = what
    known = process.cached(plural, name, namespace)
    current = world.server.get(plural, name, namespace)
    if known is None or current is None:
        return
    if known.resource_version != current["metadata"]["resourceVersion"]:
        return
    decided = sent_at
    if process.name == "controller":
        decided = world.decided_at.get(world.oracle.job_about(plural, current), sent_at)
    delivered = process.watches[plural].delivered_at.get((namespace, name), 0.0)
    if delivered < min(decided, sent_at):
        words = f"{process.name}: {' '.join(what[:3])} changes nothing"
        world.oracle.violate("idle write", words)
