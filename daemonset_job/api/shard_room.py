"""How many nodes the ledger of one shard takes: by their number, and by the size of their results.

Pure. Both programs compute it by the same rule. The terminator puts a node into a shard only while
it has room, and the controller creates shards before they are needed.

A node counts as one unit, with results of up to some bytes. Larger results count in parts of a
unit. A shard has as many units as it takes nodes (`nodes_per_shard`). Together they have room for
SHARD_BYTES of evidence. With the records of as many nodes, that stays below etcd's
limit of 1.5 MiB for an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.result_limits import most_stored_bytes

# How many nodes a shard takes at most. The API server reads and writes all of a shard for each
# change. With 250 nodes instead of 1,000, a run of 1,003 nodes took 7 % less CPU of everything.
NODES_PER_SHARD: Final = 250
# With a rollout all turns are in one report, as long as they fit: a turn is written only to the
# report as it was read.
NODES_PER_ROLLOUT_SHARD: Final = 1000
SHARD_BYTES: Final = 600_000
# What one node takes of it without results and last lines: its key, UIDs, name of the pod, times.
BARE_BYTES: Final = 200
# For how many nodes with the largest results there has to be room, if as many have no evidence.
# Otherwise evidence could wait for a shard that the controller does not create.
_AHEAD: Final = 5


def nodes_per_shard(spec: JobSpec) -> int:
    """Return how many nodes a shard of a Job takes at most."""
    return NODES_PER_SHARD if spec.rollout is None else NODES_PER_ROLLOUT_SHARD


@dataclass(frozen=True, slots=True)
class EvidenceSizes:
    """What the evidence of a Job's nodes takes; `reserve_bytes` is for results yet to come.

    `node_bytes` is one unit.

    An entry that may still get results reserves room for the largest ones, because evidence stays
    in its shard. `may_repeat`: each node may run the task again, and print other results.
    """

    reserve_bytes: int = 0
    has_late_results: bool = False
    may_repeat: bool = False
    node_bytes: int = SHARD_BYTES // NODES_PER_SHARD

    @classmethod
    def of(cls, spec: JobSpec, nodes: int) -> EvidenceSizes:
        """Return the sizes for a Job in shards that take `nodes` nodes."""
        most = most_stored_bytes(len(spec.results)) if spec.results else 0
        node_bytes = SHARD_BYTES // nodes
        return cls(
            max(most + BARE_BYTES - node_bytes, 0),
            spec.completion.mode == CompletionMode.EXIT,
            spec.is_continuous,
            node_bytes,
        )

    @property
    def most(self) -> int:
        """How many bytes a node takes at most."""
        return self.node_bytes + self.reserve_bytes

    def of_entry(self, entry: Evidence) -> int:
        """Return how many bytes of a shard an entry takes, now or later."""
        extra = max(entry.results_bytes + BARE_BYTES - self.node_bytes, 0)
        if not self._is_settled(entry):
            extra = max(extra, self.reserve_bytes)
        return self.node_bytes + extra

    def _is_settled(self, entry: Evidence) -> bool:
        """Return whether an entry gets no further results.

        In mode Exit they arrive after the completion, all at once.
        """
        if self.may_repeat or not entry.is_completed:
            return False
        return not self.has_late_results or entry.results_bytes > 0


@dataclass(slots=True)
class ShardRoom:
    """The room that one shard has left for evidence."""

    left_bytes: int
    is_empty: bool = False

    @classmethod
    def of(
        cls,
        evidence: Mapping[str, Evidence],
        sizes: EvidenceSizes,
        limit: int,
        others: Iterable[str] = (),
    ) -> ShardRoom:
        """Return the room of a shard of `limit` nodes that has this evidence.

        `others` are nodes whose evidence may be there, too.
        """
        used = sum(map(sizes.of_entry, evidence.values()))
        used += sum(sizes.most for node in others if node not in evidence)
        return cls(limit * sizes.node_bytes - used, used == 0)

    def fits(self, size: int) -> bool:
        """Return whether a node of that size fits; an empty shard takes one of any size."""
        return self.is_empty or size <= self.left_bytes

    def take(self, size: int) -> None:
        """Give room to a node of that size."""
        self.left_bytes -= size
        self.is_empty = False

    def count(self, size: int) -> int:
        """Return how many nodes of that size fit."""
        return max(self.left_bytes // size, int(self.is_empty))


def count_missing(
    ledgers: Iterable[Mapping[str, Evidence]], nodes: int, sizes: EvidenceSizes, limit: int
) -> int:
    """Return how many further shards are needed so that `nodes` nodes have evidence.

    Nodes without evidence are expected to be as large as those that have it are on average. For
    some of them there has to be room whatever they print.
    """
    ledgers = list(ledgers)
    known = [
        sizes.of_entry(entry)
        for ledger in ledgers
        for entry in ledger.values()
        if entry.is_completed and entry.results_bytes
    ]
    expected = -(-sum(known) // len(known)) if known else sizes.node_bytes
    unrecorded = max(nodes - len(set[str]().union(*ledgers)), 0)
    rooms = [ShardRoom.of(ledger, sizes, limit) for ledger in ledgers]
    rooms.append(ShardRoom.of({}, sizes, limit))
    return max(
        _count_missing(rooms, unrecorded, expected),
        _count_missing(rooms, min(unrecorded, _AHEAD), sizes.most),
    )


def _count_missing(rooms: Sequence[ShardRoom], nodes: int, size: int) -> int:
    """Return how many shards like the last one of `rooms` are needed beside the others."""
    *others, fresh = rooms
    left = nodes - sum(max(room.count(size), 0) for room in others)
    return -(-left // fresh.count(size)) if left > 0 else 0
