"""The earlier failures of each node: kept in its record when a retry or a token replaces one.

This is the only place that changes them. They are only appended to. A list that becomes too long,
or for which a shard has no room, loses its oldest entries, which stay counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.json_text import json_value_bytes
from daemonset_job.api.node_failure import NodeFailure
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport, merge_records
from daemonset_job.api.states import NodeState
from job_controller.core.render.shard_size import room_for_failures
from job_controller.core.text.sanitize import single_line

# How many failures of a node are kept, the newest ones.
FAILURES_KEPT: Final = 5
# Of a failure's message, whose end has the last line of the log; in bytes of JSON.
MESSAGE_LIMIT: Final = 120
# Of a retry request. A longer one is shortened to its start and a hash.
RETRY_LIMIT: Final = 63
# The failures in one shard, as bytes of JSON: one of each of a thousand nodes.
FAILURES_LIMIT_BYTES: Final = 192 * 1024


def keep_failures(
    reports: Sequence[JobReport], records: Mapping[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Return the new records with the failures that `reports` have of these nodes.

    Each failure that its record no longer shows is added. A node that is created again under its
    name keeps the failures of the one before.
    """
    before = merge_records(reports)
    kept: dict[str, NodeRecord] = {}
    room: dict[int, int] = {}
    for name, record in records.items():
        known = before.get(name)
        if known is None:
            kept[name] = _with_failures(record, NodeRecord(record.uid, record.state))
            continue
        longest = _longest(reports, name, known)
        # A longer list in another shard has the failure of `known` already.
        if _count(longest) > _count(known) or not _is_superseded(known, record):
            kept[name] = _with_failures(record, longest)
            continue
        shard = min(report.shard for report in reports if name in report.records)
        if shard not in room:
            room[shard] = _room_in(reports, shard)
        appended = _append_failure(known, room[shard])
        room[shard] -= count_bytes(appended.failures) - count_bytes(known.failures)
        kept[name] = _with_failures(record, appended)
    return kept


def has_failures(record: NodeRecord) -> bool:
    """Return whether the node has failed before, in a try that is over."""
    return _count(record) > 0


def with_fewer_failures(records: Mapping[str, NodeRecord], excess: int) -> dict[str, NodeRecord]:
    """Return the records without failures that take `excess` bytes; they stay counted.

    Of the nodes that have most of them, the oldest ones go first.
    """
    fewer = dict(records)
    for kept in reversed(range(FAILURES_KEPT)):
        for name, record in fewer.items():
            if excess <= 0:
                return fewer
            if len(record.failures) <= kept:
                continue
            dropped = len(record.failures) - kept
            excess -= count_bytes(record.failures[:dropped])
            omitted = record.omitted_failures + dropped
            fewer[name] = replace(
                record, failures=record.failures[dropped:], omitted_failures=omitted
            )
    return fewer


def _count(record: NodeRecord) -> int:
    return record.omitted_failures + len(record.failures)


def _is_superseded(known: NodeRecord, record: NodeRecord) -> bool:
    """Return whether a node's recorded failure is not in its new record."""
    if known.state != NodeState.FAILED:
        return False
    return known.uid != record.uid or not record.has_failed(known.retry)


def _append_failure(known: NodeRecord, room: int) -> NodeRecord:
    """Return the record with its failure in the list, which may grow by `room` bytes.

    Older failures of the node make room for it. If there are none, it is only counted.
    """
    failure = NodeFailure(
        finished_at=known.finished_at,
        reason=known.reason,
        message=single_line(known.message, MESSAGE_LIMIT),
        exit_code=known.exit_code,
        attempts=known.attempts,
        retry=names.shorten(known.retry, RETRY_LIMIT),
    )
    failures, limit = (*known.failures, failure), count_bytes(known.failures) + room
    while failures and (len(failures) > FAILURES_KEPT or count_bytes(failures) > limit):
        failures = failures[1:]
    omitted = known.omitted_failures + len(known.failures) + 1 - len(failures)
    return replace(known, failures=failures, omitted_failures=omitted)


def _longest(reports: Sequence[JobReport], name: str, known: NodeRecord) -> NodeRecord:
    """Return the record of the node that has most failures; it may be in two shards."""
    if len(reports) == 1:
        return known
    found = (report.records[name] for report in reports if name in report.records)
    return max(found, key=_count, default=known)


def _with_failures(record: NodeRecord, source: NodeRecord) -> NodeRecord:
    if (record.failures, record.omitted_failures) == (source.failures, source.omitted_failures):
        return record
    return replace(record, failures=source.failures, omitted_failures=source.omitted_failures)


def _room_in(reports: Sequence[JobReport], shard: int) -> int:
    """Return by how many bytes the failures of a shard may grow."""
    report = next(report for report in reports if report.shard == shard)
    failures = sum(count_bytes(record.failures) for record in report.records.values())
    return min(FAILURES_LIMIT_BYTES - failures, room_for_failures(report))


def count_bytes(failures: Sequence[NodeFailure]) -> int:
    """Return the size of the failures as the API server keeps them, with their commas."""
    return sum(json_value_bytes(each.to_raw()) + 1 for each in failures)
