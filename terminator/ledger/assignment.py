"""Assigns evidence to the shards of a run's report, and builds the patches.

Pure. A node keeps the shard that it is recorded in; otherwise it goes to the lowest shard with
room (see ``shard_room``). Evidence is written whole, with null for every former field that it
lacks: a merge patch would keep the fields of an older node of the same name. Of most failing nodes
only the last line is written: a report has no room for more. Nor has it for the progress of all
nodes that have such lines.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.line_limits import (
    LAST_LINES_NODES,
    LONG_LINE_NODES,
    PROGRESS_NODES,
    SHORT_LINE_BYTES,
)
from daemonset_job.api.report import JobReport, metadata_without_managed_fields
from daemonset_job.api.shard_room import (
    BARE_BYTES,
    NODES_PER_ROLLOUT_SHARD,
    NODES_PER_SHARD,
    SHARD_BYTES,
    EvidenceSizes,
    ShardRoom,
)
from terminator.ledger.evidence import combine_evidence, is_recorded, with_fewer_results
from terminator.logs.report_limits import last_line_alone

Entries = dict[str, Evidence]
_EQUAL_SIZES = EvidenceSizes()
# What is there for each node of the largest shards.
UNIT_BYTES = SHARD_BYTES // NODES_PER_ROLLOUT_SHARD


@dataclass(frozen=True, slots=True)
class ShardRule:
    """How many nodes a shard takes: at most `limit`, and fewer by the sizes of their results."""

    limit: int = NODES_PER_SHARD
    sizes: EvidenceSizes = _EQUAL_SIZES

    @classmethod
    def of(cls, spec: JobSpec, limit: int) -> "ShardRule":
        """Return the rule for a Job whose shards take `limit` nodes."""
        return cls(limit, EvidenceSizes.of(spec, limit))


class _Rooms:
    """The room that each shard has by one rule, by name of the report."""

    def __init__(
        self, rule: ShardRule, ordered: Sequence[JobReport], home: Mapping[str, JobReport]
    ) -> None:
        self._sizes = rule.sizes
        others: dict[str, set[str]] = {report.name: set() for report in ordered}
        for node, report in home.items():
            if node not in report.evidence:
                others[report.name].add(node)
        self._rooms = {
            report.name: ShardRoom.of(report.evidence, rule.sizes, rule.limit, others[report.name])
            for report in ordered
        }

    def close(self, names: Iterable[str]) -> None:
        """Have no room in these reports, whatever they hold."""
        self._rooms |= {name: ShardRoom(0) for name in names}

    def find(
        self, entry: Evidence, preferred: JobReport | None, ordered: Sequence[JobReport]
    ) -> JobReport | None:
        """Return the preferred report if it has room for an entry, else the first that has."""
        size = self._sizes.of_entry(entry)
        places = ordered if preferred is None else (preferred, *ordered)
        return next((report for report in places if self._rooms[report.name].fits(size)), None)

    def take(self, entry: Evidence, report: JobReport) -> None:
        """Give room in a report to an entry."""
        self._rooms[report.name].take(self._sizes.of_entry(entry))


class _Growth:
    """The bytes that each report still takes of results of nodes that it has already.

    A Job may declare results while it runs. In reports that have its nodes by then, no room was
    kept for them. Results beyond SHARD_BYTES are left out, so that the report can be written. Each
    node has UNIT_BYTES of that, whatever the others print. No shard keeps less for a node.
    """

    def __init__(self, ordered: Iterable[JobReport]) -> None:
        self._left = {
            report.name: SHARD_BYTES - sum(map(_bytes_of, report.evidence.values()))
            for report in ordered
        }

    def limit(self, report: JobReport, node: str, entry: Evidence) -> Evidence:
        """Return the entry, without results that do not fit."""
        if not entry.results_bytes:
            return entry
        known = report.evidence.get(node)
        before = _bytes_of(known) if known is not None else 0
        allowed = max(before, UNIT_BYTES, before + self._left[report.name])
        beyond = _bytes_of(combine_evidence(known, entry)) - allowed
        if beyond > 0:
            entry = with_fewer_results(entry, entry.results_bytes - beyond)
        self._left[report.name] -= _bytes_of(combine_evidence(known, entry)) - before
        return entry


def _bytes_of(entry: Evidence) -> int:
    """Return how many bytes a node has in its report at least, or takes there."""
    return max(BARE_BYTES + entry.results_bytes, UNIT_BYTES)


_DEFAULT_RULE = ShardRule()


def assign_to_shards(
    pending: Mapping[str, Evidence],
    shards: Iterable[JobReport],
    rule: ShardRule = _DEFAULT_RULE,
    *,
    otherwise: ShardRule | None = None,
    unconfirmed: Mapping[str, str] | None = None,
    full: Collection[str] = (),
) -> dict[str, Entries]:
    """Return the new evidence in `pending`, by name of the report that it goes to.

    A node stays in the shard that has its evidence, or that a patch without an answer was sent to
    (`unconfirmed`, report by node). Other nodes go to the shard of their record if it has room,
    else to the first shard with room. Evidence without a shard stays pending until the controller
    creates one. Reports in `full` have no room, however few nodes they have. A node that has no
    room in any shard by `rule` gets it by `otherwise`. The number of shards that the controller
    creates depends on whether the Job has a rollout, which may have changed meanwhile.
    """
    ordered = sorted(shards, key=lambda report: report.shard)
    home = _home_shards(ordered, unconfirmed or {})
    on_record = {
        node: report for report in reversed(ordered) for node in report.records if node in pending
    }
    rules = [rule] if otherwise is None else [rule, otherwise]
    rooms = [_Rooms(each, ordered, home) for each in rules]
    for each in rooms:
        each.close(full)
    growth = _Growth(ordered)
    result: dict[str, Entries] = {}
    # Nodes with a record go first, so that no other node takes the room in its shard.
    for node in sorted(pending, key=lambda node: (node not in on_record, node)):
        entry, report = pending[node], home.get(node)
        if report is None:
            found = (each.find(entry, on_record.get(node), ordered) for each in rooms)
            report = next(filter(None, found), None)
            if report is None:
                continue
            for each in rooms:
                each.take(entry, report)
        else:
            entry = growth.limit(report, node, entry)
            if is_recorded(report.evidence.get(node), entry):
                continue
        result.setdefault(report.name, {})[node] = entry
    by_name = {report.name: report for report in ordered}
    limited = {
        name: _limit_lines(by_name[name], _limit_progress(by_name[name], entries))
        for name, entries in result.items()
    }
    return {name: entries for name, entries in limited.items() if entries}


def _limit_progress(report: JobReport, entries: Entries) -> Entries:
    """Return the entries with progress beside last lines for PROGRESS_NODES of the report only."""
    if not any(entry.progress for entry in entries.values()):
        return entries
    having = {
        node for node, entry in report.evidence.items() if entry.progress and entry.last_lines
    }
    limited: Entries = {}
    for node, entry in entries.items():
        known = report.evidence.get(node)
        lines = combine_evidence(known, entry).last_lines
        if not entry.progress or not lines or node in having or len(having) < PROGRESS_NODES:
            limited[node] = entry
            if entry.progress and lines:
                having.add(node)
        elif not entry.is_only_progress:
            limited[node] = replace(entry, progress=None)
    return limited


def _limit_lines(report: JobReport, entries: Entries) -> Entries:
    """Return the entries with the lines for which the report has room.

    The first LAST_LINES_NODES of a report have several, and LONG_LINE_NODES others a long one.
    """
    if not any(entry.last_lines for entry in entries.values()):
        return entries
    several = {node for node, entry in report.evidence.items() if _has_several_lines(entry)}
    long = {node for node, entry in report.evidence.items() if _has_long_line(entry)} - several
    limited: Entries = {}
    for node, entry in entries.items():
        kept = entry
        if _has_several_lines(kept) and node not in several:
            if len(several) < LAST_LINES_NODES:
                several.add(node)
                long.discard(node)
            else:
                kept = replace(kept, last_lines=last_line_alone(kept.last_lines))
        if node not in several and node not in long and _has_long_line(kept):
            if len(long) < LONG_LINE_NODES:
                long.add(node)
            else:
                kept = replace(kept, last_lines=last_line_alone(kept.last_lines, SHORT_LINE_BYTES))
        limited[node] = kept
    return limited


def _has_several_lines(entry: Evidence) -> bool:
    return entry.last_lines != last_line_alone(entry.last_lines)


def _has_long_line(entry: Evidence) -> bool:
    return any(json_bytes(line) > SHORT_LINE_BYTES for line in entry.last_lines[-1:])


def _home_shards(
    ordered: Sequence[JobReport], unconfirmed: Mapping[str, str]
) -> dict[str, JobReport]:
    """Return the shard of every node that has evidence, or may have it, by name of the node."""
    by_name = {report.name: report for report in ordered}
    home = {node: by_name[name] for node, name in unconfirmed.items() if name in by_name}
    return home | {node: report for report in reversed(ordered) for node in report.evidence}


def build_patch(report: JobReport, entries: Mapping[str, Evidence]) -> dict[str, Any]:
    """Return the merge patch that records `entries`; the report's UID is its precondition."""
    return {
        "metadata": metadata_without_managed_fields(report.uid),
        "evidence": {
            node: _raw_entry(report.evidence.get(node), entry) for node, entry in entries.items()
        },
    }


def _raw_entry(old: Evidence | None, new: Evidence) -> dict[str, Any]:
    entry = combine_evidence(old, new)
    raw, before = entry.to_raw(), old.to_raw() if old is not None else {}
    if old is not None and old.results and entry.results:
        # The map of results is merged too: names to be removed need their own null.
        raw["results"] = {**dict.fromkeys(old.results), **entry.results}
    return {**dict.fromkeys(before), **raw}
