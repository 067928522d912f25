"""Shards with as much as the limits allow: what the terminator and the controller may write."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.line_limits import (
    LAST_LINE_BYTES,
    LAST_LINES_BYTES,
    LAST_LINES_NODES,
    LONG_LINE_NODES,
    PROGRESS_NODES,
    SHORT_LINE_BYTES,
)
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from daemonset_job.api.task_progress import TaskProgress
from tests.unit.builders import NOW

# The CRD and the parser take numbers of 15 digits.
MOST = 10**15 - 1
STAMP = "2026-01-02T03:04:05.123456789Z"


def failed_record(message: str, **fields: Any) -> NodeRecord:
    """Return the record of a failed node in a rollout, with all that it may have."""
    filled: dict[str, Any] = {
        "uid": "u" * 36,
        "state": NodeState.FAILED,
        "reason": "BackoffLimitExceeded",
        "message": message,
        "attempts": 100,
        "attempts_in_earlier_pods": 90,
        "finished_in_pod": 10,
        "ignored_failures": 9,
        "exit_code": 137,
        "started_at": NOW,
        "finished_at": NOW + timedelta(seconds=9),
        "active_since": NOW,
        "pod_uid": "p" * 36,
        "retry": "2026-01-02T03:04:05Z",
        "turn_at": NOW,
        "step": 20,
    }
    return NodeRecord(**{**filled, **fields})


# The further fields of a record of policy Continuous.
CONTINUOUS: dict[str, Any] = {
    "revision": "1-0123456789abcdef",
    "selection": "left 0123456789abcdef",
    "rerun": "1-0123456789abcdef",
    "earlier_pods": tuple(str(n) * 36 for n in range(8)),
}


def ledger_of(records: Mapping[str, NodeRecord]) -> dict[str, Evidence]:
    """Return the evidence of failed nodes, with the longest lines that the terminator keeps."""
    return {name: _entry(number, record) for number, (name, record) in enumerate(records.items())}


def _entry(number: int, record: NodeRecord) -> Evidence:
    entry = Evidence(
        node_uid=record.uid,
        pod="p" * 63,
        pod_uid=record.pod_uid,
        failed_at=STAMP,
        last_lines=_lines(number),
        attempt=100,
        revision=record.revision,
    )
    if number >= PROGRESS_NODES:
        return entry
    return replace(entry, progress=TaskProgress(record.pod_uid, 101, MOST, MOST))


def _lines(number: int) -> tuple[str, ...]:
    if number < LAST_LINES_NODES:
        return ("x" * (LAST_LINES_BYTES // 50),) * 50
    is_long = number < LAST_LINES_NODES + LONG_LINE_NODES
    return ("x" * (LAST_LINE_BYTES if is_long else SHORT_LINE_BYTES),)
