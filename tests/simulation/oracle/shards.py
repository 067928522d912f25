"""Reports of several shards: every node of the run is recorded once, and no other node.

Evidence about a node is in one shard of its run at any time. If a terminator is killed while a
write is under way, its successor cannot know of it, and there may be two. No shard has more
evidence or records than it may hold. A record may move to the shard of its node's evidence; at rest
it is in one only. Pods that evidence and records name are pods of the report's own Job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import REPORTS, Raw

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "shards",
        "Each node is in one shard of its run's report. No shard has more nodes than it may hold, "
        "and none has a node or pod of another Job.",
        mutant="fills_first_shard_only",
        seed=5,
    ),
)


def evidence_faults(world: World, job_of: Mapping[str, str], old: Raw, new: Raw) -> list[str]:
    """Return in words what is wrong with what was just written into a report's evidence."""
    before, after = old.get("evidence") or {}, new.get("evidence") or {}
    name, job_uid = new["metadata"]["name"], new["spec"]["job"]["uid"]
    fresh = {node: entry for node, entry in after.items() if entry != before.get(node)}
    if world.writer_is_dead:
        world.written_after_death |= {(node, name) for node in fresh}
    others = {r["metadata"]["name"]: r for r in reports_of(world, job_uid)}
    del others[name]
    faults = [
        f"{node} is in {name} and in {other_name}"
        for other_name, other in others.items()
        for node in fresh.keys() & (other.get("evidence") or {}).keys()
        if not {(node, name), (node, other_name)} & world.written_after_death
    ]
    if fresh and len(after) > world.schedule.shard_nodes:
        faults.append(f"{len(after)} nodes in the evidence of {name}")
    if "terminator" in world.unconfirmed_writers:
        faults = [f"{words}, after a lost answer" for words in faults]
    faults += _foreign(job_of, job_uid, fresh)
    return faults


def record_faults(world: World, job_of: Mapping[str, str], old: Raw, new: Raw) -> list[str]:
    """Return in words what is wrong with what was just written into a report's records.

    After a lost answer the controller does not know what it wrote. It may write that again, to
    another shard, which then has more nodes than it may until the next reconcile.
    """
    before, after = ((raw.get("status") or {}).get("nodeStates") or {} for raw in (old, new))
    fresh = {node: record for node, record in after.items() if record != before.get(node)}
    faults = _foreign(job_of, new["spec"]["job"]["uid"], fresh)
    limit = world.schedule.shard_nodes * (2 if "controller" in world.unconfirmed_writers else 1)
    if after.keys() - before.keys() and len(after) > limit:
        faults.append(f"{len(after)} nodes on record in {new['metadata']['name']}")
    return faults


def rest_faults(world: World, job_uid: str) -> list[str]:
    """Return in words what is wrong with where a run's nodes are on record."""
    reports = reports_of(world, job_uid)
    counts = Counter(node for report in reports for node in _records(report))
    return [f"{node} is on record {count} times" for node, count in counts.items() if count > 1]


def reports_of(world: World, job_uid: str) -> list[Raw]:
    """Return the raw reports of a run, the first shard first."""
    found = [r for r in world.server.all(REPORTS) if r["spec"]["job"]["uid"] == job_uid]
    return sorted(found, key=lambda report: report["spec"].get("shard", 0))


def node_states(world: World, job_uid: str) -> Raw:
    """Return the records of a run's nodes, all shards as one."""
    return {
        node: record
        for report in reversed(reports_of(world, job_uid))
        for node, record in _records(report).items()
    }


def _records(report: Raw) -> Raw:
    return (report.get("status") or {}).get("nodeStates") or {}


def _foreign(job_of: Mapping[str, str], job_uid: str, entries: Raw) -> list[str]:
    return [
        f"{node}: {entry['podUID']} is no pod of this Job"
        for node, entry in entries.items()
        if entry.get("podUID") and job_of.get(entry["podUID"]) != job_uid
    ]
