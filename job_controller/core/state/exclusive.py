"""Which nodes other Jobs with the same key `rollout.exclusive` use, or are about to use.

Two questions. A node is in use while a pod of another Job with the key is past its gate, and its
task has not completed. It is claimed while an older Job with the key has its turn there. The order
is that of the creation of the Jobs, so no two Jobs wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.states import ConditionType, NodeState, Phase

# How messages name a Job of which only pods are left.
DELETED_JOB = "that was deleted"
# And a Job of another namespace: neither its name nor its namespace is for other tenants.
FOREIGN_JOB = "of another namespace"
# Of a Job that starts no node until its window opens, which may be a day later.
_HOLDS = frozenset({ProgressingReason.OUTSIDE_WINDOW, ProgressingReason.INVALID_WINDOW})


@dataclass(frozen=True, slots=True)
class OtherRun:
    """A run with the same key: its pods, and what is on record. `job` None if it was deleted."""

    job: Job | None
    pods: tuple[Pod, ...] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    records: Mapping[str, NodeRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OtherUse:
    """The nodes that are in use, and those that are claimed, each with the name of the Job."""

    in_use: Mapping[str, str] = field(default_factory=dict)
    claimed: Mapping[str, str] = field(default_factory=dict)


NO_OTHER_USE = OtherUse()


def is_at_work(pod: Pod, evidence: Evidence | None) -> bool:
    """Return whether the task of a pod may be at work, or about to be.

    Only the completion of this very pod counts: a later pod of the node does its work again.
    """
    if pod.is_gated or pod.is_terminal:
        return False
    return evidence is None or not evidence.is_completed or evidence.pod_uid != pod.uid


def find_other_use(job: Job, runs: Iterable[OtherRun]) -> OtherUse:
    """Return which nodes the other runs with the key of this Job use or claim."""
    in_use: dict[str, str] = {}
    claimed: dict[str, str] = {}
    for run in runs:
        name = _name_of(run.job, job)
        for pod in run.pods:
            if is_at_work(pod, run.evidence.get(pod.node_name)):
                in_use[pod.node_name] = name
        if run.job is not None and _is_older(run.job, job) and _may_start(run.job):
            waiting = {pod.node_name for pod in run.pods if pod.is_gated and not pod.is_terminating}
            for node in waiting:
                if _has_turn(run.records.get(node)):
                    claimed[node] = name
    return OtherUse(in_use, claimed)


def _name_of(other: Job | None, job: Job) -> str:
    """Return how messages of a Job name another one, None for one that was deleted."""
    if other is None:
        return DELETED_JOB
    return other.name if other.namespace == job.namespace else FOREIGN_JOB


def _is_older(other: Job, job: Job) -> bool:
    return _age(other) < _age(job)


def _age(job: Job) -> tuple[str, str]:
    created = job.created_at.isoformat() if job.created_at is not None else ""
    return created, job.uid


def _may_start(job: Job) -> bool:
    """Return whether a Job starts nodes: a claim of one that does not would hold others up."""
    is_over = job.status.phase in {Phase.PAUSED, Phase.SUCCEEDED, Phase.FAILED}
    progressing = job.condition(ConditionType.PROGRESSING)
    is_held = progressing is not None and progressing.reason in _HOLDS
    return not (job.is_suspended or job.is_terminating or is_over or is_held)


def _has_turn(record: NodeRecord | None) -> bool:
    return record is not None and record.turn_at is not None and record.state == NodeState.WAITING
