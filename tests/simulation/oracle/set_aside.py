"""A run stops waiting only for nodes that are unreachable: they are set aside.

What a program can know of a node is what its watch has shown it. A node that is down because of its
own task is set aside like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakekube.node_lifecycle import ready_status, taints_of
from tests.simulation.cordons import KEY as CORDON
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "set aside",
        "A node is set aside only if it was unreachable when the controller decided so.",
        mutant="sets_reachable_nodes_aside",
        seed=9,
    ),
)


def judge_set_aside(world: World, old: Raw, new: Raw) -> None:
    """Judge which nodes a report sets aside."""
    before = (old.get("status") or {}).get("nodeStates") or {}
    after = (new.get("status") or {}).get("nodeStates") or {}
    job_uid = new["spec"]["job"]["uid"]
    for node, record in after.items():
        is_known = (before.get(node) or {}).get("uid") == record.get("uid")
        if "setAsideAt" not in record or (is_known and "setAsideAt" in before[node]):
            continue
        seen_until = world.decided_on.get(job_uid, (0.0, 0.0))[1]
        seen = world.oracle.completion.node_versions.newest(node, seen_until)
        if seen is not None and is_reachable(seen):
            words = f"{node} is set aside, and is reachable: {record.get('message')}"
            world.oracle.violate("set aside", words)


def is_reachable(node: Raw) -> bool:
    """Return whether a raw node is Ready, and has no taint for its condition."""
    keys = {taint["key"] for taint in taints_of(node)}
    is_held = any(key.startswith("node.kubernetes.io/") and key != CORDON for key in keys)
    return ready_status(node) == "True" and not is_held
