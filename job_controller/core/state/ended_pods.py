"""Pods of a run that are gone, and the records of those that are deleted to take its start back.

Such a record has its pod as an attempt before the pod is deleted. Whether it was one is known from
the last status of the pod, if that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState

_MARK_WORDS: Final = "the pod is deleted to take the start of the run back"


@dataclass(frozen=True, slots=True)
class EndedPods:
    """What this process saw of a run's pods that are gone.

    `without_start` has the UIDs of those whose last status shows that no container of them was
    created. `ran_on` is the node of one that has run, or may have, "" for none.
    """

    without_start: frozenset[str] = frozenset()
    ran_on: str = ""


NO_ENDED_PODS: Final = EndedPods()


def mark(record: NodeRecord, pod_uid: str, retry: str) -> NodeRecord:
    """Return the record of a node that has not begun, with a pod of it as an attempt."""
    return replace(
        record,
        state=NodeState.WAITING,
        reason=NodeReason.POD_TAKEN_BACK,
        message=_MARK_WORDS,
        attempts=1,
        pod_uid=pod_uid,
        retry=retry,
    )


def is_marked(record: NodeRecord) -> bool:
    """Return whether the record has a pod as an attempt only because that pod is deleted."""
    return record.reason == NodeReason.POD_TAKEN_BACK


def without_known_marks(
    records: Mapping[str, NodeRecord], ended: EndedPods
) -> dict[str, NodeRecord]:
    """Return the records, without the attempts of pods that have ended without a start."""
    return {
        name: replace(record, reason="", message="", attempts=0, pod_uid="")
        if is_marked(record) and record.pod_uid in ended.without_start
        else record
        for name, record in records.items()
    }
