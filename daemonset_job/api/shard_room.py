"""How many nodes the ledger of one shard takes: by their number, and by the size of their results.

Pure. Both programs compute it by the same rule. The terminator puts a node into a shard only while
it has room, and the controller creates shards before they are needed.

A node counts as one unit, with results of up to 400 bytes. Larger results count in parts of a unit.
A shard has NODES_PER_SHARD units. They and the records of as many nodes stay below etcd's limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.result_limits import most_stored_bytes

# What one node takes of the evidence of a shard: its key, UIDs, name of the pod and times. To them
# is added either its last line or that many bytes of results.
NODE_BYTES: Final = 600
_INCLUDED_BYTES: Final = 400
# For how many nodes with the largest results there has to be room, if as many have no evidence.
# Otherwise evidence could wait for a shard that the controller does not create.
_AHEAD: Final = 5


@dataclass(frozen=True, slots=True)
class EvidenceSizes:
    """What the evidence of a Job's nodes takes; `reserve_bytes` is for results yet to come.

    An entry that may still get results reserves room for the largest ones, because evidence stays
    in its shard. `may_repeat`: each node may run the task again, and print other results.
    """

    reserve_bytes: int = 0
    has_late_results: bool = False
    may_repeat: bool = False

    @classmethod
    def of(cls, spec: JobSpec) -> EvidenceSizes:
        """Return the sizes for a Job."""
        most = most_stored_bytes(len(spec.results)) if spec.results else 0
        return cls(
            max(most - _INCLUDED_BYTES, 0),
            spec.completion.mode == CompletionMode.EXIT,
            spec.is_continuous,
        )

    @property
    def most(self) -> int:
        """How many bytes a node takes at most."""
        return NODE_BYTES + self.reserve_bytes

    def of_entry(self, entry: Evidence) -> int:
        """Return how many bytes of a shard an entry takes, now or later."""
        extra = max(entry.results_bytes - _INCLUDED_BYTES, 0)
        return NODE_BYTES + (extra if self._is_settled(entry) else max(extra, self.reserve_bytes))

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
        return cls(limit * NODE_BYTES - used, used == 0)

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
    expected = -(-sum(known) // len(known)) if known else NODE_BYTES
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
