"""Completed nodes that have left the selection of a Job of policy Continuous, and still count.

One that an edit of the Job took out does not count, nor one that had not completed what was due
when it left. Nor does one that came back, is due again, and is kept out by a taint or has left once
more. If the return need not be known, its record says whether it is. Both answers are right if
something was asked for, or taken back, while the controller did not have to know yet that the
labels had left. So they are if labels left or came back while the Job had another selection.
"""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING

from tests.simulation import intent
from tests.simulation.oracle.shards import node_states
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.world import World


def completed_unselected(world: World, job: Raw, desired: Raw) -> list[dict[str, str]]:
    """Return the sets of such nodes, with UIDs, one of which is right."""
    certain: dict[str, str] = {}
    doubtful: dict[str, str] = {}
    uid, demands = job["metadata"]["uid"], world.oracle.demands
    for raw in world.server.all(NODES):
        name, node_uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        if name in desired or world.oracle.evidence.entered.get((uid, name), ("",))[0] != node_uid:
            continue
        pod_uid = world.oracle.evidence.entered_pods.get((uid, name))
        is_completed = (node_states(world, uid).get(name) or {}).get("state") == "Completed"
        if not is_completed and demands.has_returned(uid, name, node_uid, pod_uid):
            continue
        if intent.matches(job["spec"], raw):
            # Only a taint keeps it out.
            if world.oracle.has_met(uid, name, node_uid, demands.due(uid, name, node_uid)):
                is_doubtful = demands.is_named_elsewhere(uid, name) or demands.may_be_earlier(
                    uid, pod_uid or ""
                )
                (doubtful if is_doubtful else certain)[name] = node_uid
            continue
        is_certain = _counts_after_labels(world, uid, raw)
        if is_certain is not None:
            (certain if is_certain else doubtful)[name] = node_uid
    some = chain.from_iterable(combinations(doubtful, n) for n in range(len(doubtful) + 1))
    return [certain | {name: doubtful[name] for name in names} for names in some]


def _counts_after_labels(world: World, uid: str, node: Raw) -> bool | None:
    """Return whether a node that matches no more counts; False: it may, None: it does not."""
    demands, oracle = world.oracle.demands, world.oracle
    name, node_uid = node["metadata"]["name"], node["metadata"]["uid"]
    left, is_crossed = demands.left.get((uid, node_uid)), (uid, node_uid) in demands.crossed
    if left is None:  # an edit took it out
        return False if is_crossed else None
    is_met = oracle.has_met(uid, name, node_uid, demands.due(uid, name, node_uid, until=left.at))
    *_, entered_at = oracle.evidence.entered[uid, name]
    read_until = demands.unread_from(uid, name, entered_at, left.at)
    if read_until < left.at:
        before = demands.due(uid, name, node_uid, until=read_until)
        return False if is_met or oracle.has_met(uid, name, node_uid, before) else None
    # An edit has taken it in since, and another one has taken it out.
    is_edited = any(intent.matches(spec, node) for spec in oracle.completion.specs[uid].values())
    is_asked = demands.is_asked_within(uid, name, left.at)
    if left.is_known and not (is_asked or is_edited or is_crossed):
        return True if is_met else None
    now = demands.due(uid, name, node_uid)
    return False if is_met or oracle.has_met(uid, name, node_uid, now) else None
