"""Which shards the report of a run needs, and which shard has which node's record."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport
from daemonset_job.api.shard_room import EvidenceSizes, count_missing, nodes_per_shard
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot


def missing_shards(snapshot: Snapshot, counts: NodeCounts) -> list[int]:
    """Return the numbers of the shards that are needed and do not exist."""
    # What does not count, as evidence of an earlier revision, takes room all the same.
    held = (names for report in snapshot.reports for names in (report.records, report.evidence))
    known = set(counts.nodes).union(*held)
    # The DaemonSet's count may be forged: there cannot be more nodes than exist.
    count = max(min(counts.desired, len(snapshot.nodes)), len(known), 1)
    limit = nodes_per_shard(snapshot.job.spec)
    there = {report.shard for report in snapshot.reports}
    missing = [] if 0 in there else [0]
    # A report may have more records than the limit: of a Job that had a rollout, or of a version
    # that put 1,000 nodes into each.
    recorded = len(set[str]().union(*(report.records for report in snapshot.reports)))
    room = sum(max(limit - len(report.records), 0) for report in snapshot.reports)
    without_room = max(count - recorded - room - limit * len(missing), 0)
    more = -(-without_room // limit)
    ledgers: list[Mapping[str, Evidence]] = [report.evidence for report in snapshot.reports]
    ledgers += [{}] * (len(missing) + more)
    sizes = EvidenceSizes.of(snapshot.job.spec, limit)
    more += count_missing(ledgers, count, sizes, limit)
    unused = (shard for shard in itertools.count() if shard not in {*there, *missing})
    return [*missing, *itertools.islice(unused, more)]


def assign_to_shards(
    reports: list[JobReport], records: Mapping[str, NodeRecord], limit: int
) -> dict[int, dict[str, NodeRecord]]:
    """Return the records by shard; no new one goes to a shard that has `limit`.

    A record stays in its shard, however many there are: a smaller limit than before would drop it,
    as the shard for it does not exist yet. A new one goes to the shard of the node's evidence if
    that has room, else to the first shard with room.
    """
    shares: dict[int, dict[str, NodeRecord]] = {report.shard: {} for report in reports}
    record_shard: dict[str, int] = {}
    evidence_shard: dict[str, int] = {}
    for report in reports:
        for name in report.records:
            record_shard.setdefault(name, report.shard)
        for name in report.evidence:
            evidence_shard.setdefault(name, report.shard)

    def has_room(shard: int | None) -> bool:
        return shard is not None and len(shares[shard]) < limit

    for name in sorted(
        records, key=lambda name: (name not in record_shard, name not in evidence_shard, name)
    ):
        place = record_shard.get(name)
        if place is None:
            place = evidence_shard.get(name)
            if not has_room(place):
                place = next(filter(has_room, shares), None)
        if place is not None:
            shares[place][name] = records[name]
    return shares
