"""The turns of nodes in their records, and since when nodes are set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import whole_seconds
from job_controller.core.render.late_records import change_records
from job_controller.core.rollout.kept_nodes import find_unreturned, has_taken_turn
from job_controller.core.rollout.rollout_state import RolloutState, keeps_turn
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.set_aside_nodes import is_set_aside, stays_set_aside
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

_ENDED = frozenset({NodeState.COMPLETED, NodeState.FAILED})


def with_turns(
    snapshot: Snapshot, records: Mapping[str, NodeRecord], rollout: RolloutState, now: datetime
) -> dict[str, NodeRecord]:
    """Return the new records with the turns that nodes keep and get, and with who is set aside."""
    before, ledger = merge_records(snapshot), merge_evidence(snapshot)
    uids = snapshot.pod_uids
    found: dict[str, NodeRecord] = {}
    for name, new in records.items():
        record, known = new, before.get(name)
        aside = _set_aside_at(snapshot, known, record, name)
        if aside is None and name in rollout.set_aside:
            aside = whole_seconds(now)
        turn_at, step = None, 0
        has_place = aside is None or record.state in _ENDED
        if known is not None and has_place and keeps_turn(known, record):
            turn_at, step = known.turn_at, known.step
        elif name in rollout.turns:
            turn_at, step = whole_seconds(now), rollout.turns[name]
        elif known is not None and known.revision == record.revision:
            # The step has had the node of that name, whatever became of it since. If it gets its
            # next turn, no other node takes its place.
            is_same = known.uid == record.uid
            step = known.step if is_same or has_taken_turn(known, ledger.get(name), uids) else 0
        if (record.turn_at, record.step, record.set_aside_at) != (turn_at, step, aside):
            record = replace(record, turn_at=turn_at, step=step, set_aside_at=aside)
        found[name] = record
    return found


def record_returned(
    snapshot: Snapshot, counts: NodeCounts, statuses: Sequence[tuple[JobReport, ReportStatus]]
) -> list[tuple[JobReport, ReportStatus]]:
    """Return the reports to write, without the turns that nodes give back; the rest of them stays.

    It is for a run that has ended and may be retried, while its nodes are not counted. `statuses`
    are reports that are written anyway.
    """
    unreturned = find_unreturned(snapshot, counts)

    def find_returned(records: Mapping[str, NodeRecord]) -> dict[str, NodeRecord]:
        return {
            name: replace(record, turn_at=None, step=0)
            for name, record in records.items()
            if record.step and record.pod_uid in unreturned
        }

    return change_records(snapshot.reports, statuses, find_returned)


def _set_aside_at(
    snapshot: Snapshot, known: NodeRecord | None, record: NodeRecord, name: str
) -> datetime | None:
    if known is None or not is_set_aside(snapshot, known, name):
        return None
    return known.set_aside_at if stays_set_aside(snapshot, record, name) else None
