"""Pods of a run that are gone, and the records of those that are deleted to take its start back.

Such a record has its pod as an attempt before the pod is deleted. Whether it was one is known from
the last status of the pod, if that was seen. So it is of the pod in which a node failed before its
task had begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
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


def is_orphan(pod: Pod, job: Job) -> bool:
    """Return whether the next DaemonSet of the Job would adopt the pod, which has the Job's UID.

    Deleted with `--cascade=orphan`, a DaemonSet leaves such pods.
    """
    return pod.orphan_labels == (job.daemon_set_name, names.job_label(job.name))


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


def has_failed_unstarted(record: NodeRecord) -> bool:
    """Return whether the node has failed, and its task had not begun by then.

    The pod in which it failed can begin it until it is gone. Once it is known to have started
    nothing, the record has no pod.
    """
    return record.state == NodeState.FAILED and not record.attempts and record.started_at is None


def without_ended_pods(
    records: Mapping[str, NodeRecord], ended: EndedPods
) -> dict[str, NodeRecord]:
    """Return the records, without pods that have ended and have started nothing."""
    return {
        name: _without_pod(record) if record.pod_uid in ended.without_start else record
        for name, record in records.items()
    }


def _without_pod(record: NodeRecord) -> NodeRecord:
    if is_marked(record):
        return replace(record, reason="", message="", attempts=0, active_since=None, pod_uid="")
    return replace(record, pod_uid="") if has_failed_unstarted(record) else record
