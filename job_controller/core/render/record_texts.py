"""The texts in the records of one shard, shortened where the API server would refuse the shard.

It refuses a write of more than 1.5 MiB, whatever it has to record. So what happened to a node is
always kept, and its message gives way. If that is not enough, earlier failures are only counted.
Only shards of a rollout have more than 250 nodes.

The sizes are bounds, because to render a thousand nodes takes longer than the rest of a reconcile.
The room does not depend on the lines on record, but on all that the terminator may write: both
programs may write at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from daemonset_job.api.json_text import json_bytes, json_value_bytes
from daemonset_job.api.line_limits import most_line_bytes
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport
from daemonset_job.api.shard_room import BARE_BYTES, NODES_PER_ROLLOUT_SHARD, SHARD_BYTES
from daemonset_job.api.states import NodeState
from job_controller.core.render.node_failures import count_bytes, with_fewer_failures
from job_controller.core.text.sanitize import single_line

# What etcd takes for an object, see `max-request-bytes`.
OBJECT_BYTES: Final = 1536 * 1024
# The object's metadata and its key, and what the summary of a run grows in one write.
_OTHER_BYTES: Final = 12 * 1024
# The longest messages of records, in bytes of JSON: the first one for which all have room.
MESSAGE_LIMITS: Final = (300, 240, 180, 120, 60, 24)
# Each reconcile makes the messages of nodes that wait again, one for each node of a shard.
_REMEMBERED: Final = 2048
# Pods that are kept if there is no room for more, as of a completed node.
LEAST_EARLIER_PODS: Final = 2
# What a node takes at most, without what is counted below: its two names, its record, its entry in
# the ledger. A record of policy Continuous has three fields more, and a list of pods.
_NODE_BYTES: Final = 500 + 290
_CONTINUOUS_BYTES: Final = 129
_POD_BYTES: Final = 39
_MESSAGE_FRAME: Final = 13
# The room that the terminator has for the results of each node, whatever those of others take.
_RESULTS_BYTES: Final = SHARD_BYTES // NODES_PER_ROLLOUT_SHARD - BARE_BYTES
# A smaller shard always has room. With all that records can have and the largest results, 250 nodes
# take 1.3 MB.
_SMALL_NODES: Final = 250
_SMALL_SPEC_BYTES: Final = 160 * 1024


def fit_record_texts(
    report: JobReport, records: dict[str, NodeRecord], *, has_results: bool
) -> dict[str, NodeRecord]:
    """Return the records of a shard, with texts that it has room for.

    What was shortened stays so, although the shard has room again: else both would alternate.
    """
    if len(records) <= _SMALL_NODES and report.spec_bytes <= _SMALL_SPEC_BYTES:
        return records
    full, records = records, _as_recorded(report, records)
    room = _room_for_messages(report, records, has_results=has_results)
    sizes = {name: json_bytes(each.message) for name, each in records.items() if each.message}
    room -= len(sizes) * _MESSAGE_FRAME
    if sum(sizes.values()) <= room:
        return records
    limits = (each for each in MESSAGE_LIMITS if _sum_up_to(each, sizes) <= room)
    limit = next(limits, 0)
    kept = limit or MESSAGE_LIMITS[-1]
    shortened = {
        name: replace(records[name], message=shorten_message(full[name].message, kept))
        for name, size in sizes.items()
        if size > kept
    }
    records = {**records, **shortened}
    if limit:
        return records
    records = _with_fewer_pods(records)
    room = _room_for_messages(report, records, has_results=has_results)
    room -= sum(_MESSAGE_FRAME + json_bytes(records[name].message) for name in sizes)
    return with_fewer_failures(records, -room)


@lru_cache(_REMEMBERED)
def shorten_message(message: str, limit: int) -> str:
    """Return a message of at most `limit` bytes of JSON that still quotes the line of the log."""
    if json_bytes(message) <= limit:
        return message
    words, quote, line = message.rpartition(": '")
    if not quote or not line.endswith("'"):
        return single_line(message, limit)
    room = limit - len(quote) - 1
    line = single_line(line[:-1], max(room // 2, room - json_bytes(words)))
    return f"{single_line(words, room - json_bytes(line))}{quote}{line}'"


def _as_recorded(report: JobReport, records: dict[str, NodeRecord]) -> dict[str, NodeRecord]:
    """Return the records with the messages on record that are shortened from theirs."""
    found = {}
    for name, record in records.items():
        known = report.records.get(name)
        if known is None or len(known.message) >= len(record.message):
            continue
        # A shortened message has nearly as many bytes as it may have.
        size = json_bytes(known.message)
        limit = min((each for each in MESSAGE_LIMITS if each >= size), default=size)
        if known.message == shorten_message(record.message, limit):
            found[name] = replace(record, message=known.message)
    return {**records, **found}


def _sum_up_to(limit: int, sizes: Mapping[str, int]) -> int:
    return sum(min(size, limit) for size in sizes.values())


def _room_for_messages(
    report: JobReport, records: Mapping[str, NodeRecord], *, has_results: bool
) -> int:
    """Return how many bytes a shard has left for messages, whatever the terminator writes."""
    summary = replace(report.status, node_states={}, node_list=())
    size = _OTHER_BYTES + report.spec_bytes + json_value_bytes(summary.to_raw())
    unrecorded = report.evidence.keys() - records.keys()
    size += sum(_NODE_BYTES + 2 * len(name) for name in unrecorded)
    with_lines = len(unrecorded)
    for name, record in records.items():
        entry = report.evidence.get(name)
        results = entry.results_bytes if entry is not None else 0
        size += _NODE_BYTES + 2 * len(name) + results
        if record.retry:
            size += json_bytes(record.retry)
        if record.revision:
            size += _CONTINUOUS_BYTES + _POD_BYTES * len(record.earlier_pods)
        if record.failures:
            size += count_bytes(record.failures)
        is_completed = entry is not None and entry.is_completed
        if record.state == NodeState.FAILED or not (has_results or is_completed):
            with_lines += 1
        elif has_results:
            size += max(_RESULTS_BYTES - results, 0)
    return OBJECT_BYTES - size - most_line_bytes(with_lines)


def _with_fewer_pods(records: dict[str, NodeRecord]) -> dict[str, NodeRecord]:
    """Return the records with the newest of the pods whose evidence no longer counts.

    A node has one pod at a time, so evidence of a still earlier one hardly arrives any more.
    """
    return {
        name: replace(record, earlier_pods=record.earlier_pods[:LEAST_EARLIER_PODS])
        if len(record.earlier_pods) > LEAST_EARLIER_PODS
        else record
        for name, record in records.items()
    }
