"""The events of a Job: which changes of its status are reported as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from daemonset_job.api import names
from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import EventReason, NodeReason, ProgressingReason, SuspendedReason
from daemonset_job.api.rerun import REQUEST_LIMIT
from daemonset_job.api.states import ConditionType, NodeState
from job_controller.core.plan import Event
from job_controller.core.render.messages import failure_message
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.node_observed import UNEXPLAINED_WORDS
from job_controller.core.state.snapshot import Snapshot, merge_records
from job_controller.core.text.sanitize import single_line

# Conditions that are reported as an event when they become True, and its reason.
_CONDITION_EVENTS = {
    ConditionType.COMPLETE: EventReason.COMPLETED,
    ConditionType.FAILED: EventReason.FAILED,
    ConditionType.SUSPENDED: EventReason.PAUSED,
}


# Bytes of node names in an event.
_NAMES_LIMIT = 200
# Pauses that a person has asked for.
_EXPECTED_PAUSES = (SuspendedReason.SUSPENDED, SuspendedReason.WAITING_FOR_APPROVAL)


def recreation_events(job: Job) -> Iterator[Event]:
    """Return the event that the DaemonSet was deleted and is created again."""
    yield Event(
        "Warning",
        EventReason.DAEMON_SET_RECREATED,
        f"DaemonSet {job.daemon_set_name} was deleted during the run and is created again; "
        "completed nodes do not run again",
    )


def state_events(snapshot: Snapshot, status: JobStatus, counts: NodeCounts) -> list[Event]:
    """Return the events of the next status: one for each change of the run, none for nodes."""
    job = snapshot.job
    events: list[Event] = []
    for type_, reason in _CONDITION_EVENTS.items():
        condition = status.condition(type_)
        if condition is not None and condition.status and not job.is_true(type_):
            expected = type_ == ConditionType.COMPLETE or condition.reason in _EXPECTED_PAUSES
            kind: Literal["Normal", "Warning"] = "Normal" if expected else "Warning"
            events.append(Event(kind, reason, condition.message))
    if is_alteration_unrecorded(job, status):
        events.append(Event("Warning", EventReason.DAEMON_SET_ALTERED, _alteration(status)))
    complete = status.condition(ConditionType.COMPLETE)
    if job.is_true(ConditionType.COMPLETE) and complete is not None:
        events.extend(_events_after_completion(snapshot, status, counts, complete))
    if status.observed_retry != job.status.observed_retry:
        events.append(_retry_event(snapshot, counts))
    return events or _progress_events(job, status)


def _retry_event(snapshot: Snapshot, counts: NodeCounts) -> Event:
    """Return what a retry request does: which nodes are tried again, or that there are none.

    Those are the nodes whose pod is replaced, and those that the report has as failed, whatever
    pod they have by now. After a crash the report may have the retry that the status lacks.
    """
    job = snapshot.job
    nodes = {name for name, node in counts.nodes.items() if node.replace_pod or node.awaits_retry}
    nodes |= {
        name
        for name, record in merge_records(snapshot).items()
        if _is_retried(record, job.retry_request)
        and (node := snapshot.nodes.get(name)) is not None
        and node.uid == record.uid
    }
    if nodes:
        words = f"{len(nodes)} of {counts.desired} nodes are tried again ({fold(nodes, limit=200)})"
        return Event("Normal", EventReason.RETRYING, words)
    if job.is_true(ConditionType.FAILED):
        return Event("Normal", EventReason.RETRYING, "the failed run is continued")
    words = "no node has failed or waits in a back-off: the retry request changes nothing"
    return Event("Normal", EventReason.NOTHING_TO_RETRY, words)


def rerun_events(snapshot: Snapshot, counts: NodeCounts) -> Iterator[Event]:
    """Return the event that a rerun request, which the next status has, is not followed in full."""
    rerun, key = snapshot.job.rerun, names.ANNOTATION_RERUN
    if rerun.characters:
        words = (
            f"the annotation {key} has {rerun.characters} characters and is not followed: name "
            f"fewer nodes, at most {REQUEST_LIMIT} characters, and the others in another request"
        )
        yield Event("Warning", EventReason.RERUN_IGNORED, words)
        return
    known = merge_records(snapshot).keys() | counts.nodes.keys()
    if not counts.is_exact:
        # Some may have no pod yet.
        known |= snapshot.nodes.keys()
    if unknown := rerun.nodes - known:
        words = single_line(fold(unknown, limit=_NAMES_LIMIT), _NAMES_LIMIT)
        yield Event(
            "Warning",
            EventReason.RERUN_IGNORED,
            f"the annotation {key} names nodes that the Job does not have: {words}; their names "
            "are those of `kubectl get nodes`, separated by commas, up to the first @",
        )


def _is_retried(before: NodeRecord, retry: str) -> bool:
    """Return whether the node had failed before this retry request, or is tried again by it."""
    if before.state == NodeState.FAILED:
        return before.retry != retry
    return bool(before.retry) and before.retry == retry


def _has_new_failure(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether a node fails whose report does not say so: another may have healed."""
    known = merge_records(snapshot)
    return any(
        (before := known.get(name)) is None or before.state != NodeState.FAILED
        for name in counts.names(NodeState.FAILED)
    )


def _events_after_completion(
    snapshot: Snapshot, status: JobStatus, counts: NodeCounts, complete: Condition
) -> Iterator[Event]:
    """Return what happened to a completed Job that is kept: nodes added, nodes that failed."""
    job = snapshot.job
    if not complete.status:
        yield Event("Normal", EventReason.NODES_ADDED, complete.message)
        return
    before, after = job.status.nodes, status.nodes
    if before is None or after is None:
        return
    if after.failed > before.failed or _has_new_failure(snapshot, counts):
        yield Event("Warning", EventReason.NODE_FAILED, failure_message(counts, 0))


def _progress_events(job: Job, status: JobStatus) -> list[Event]:
    before = job.condition(ConditionType.PROGRESSING)
    after = status.condition(ConditionType.PROGRESSING)
    if after is None or (before is not None and before.reason == after.reason):
        return _cause_events(before, after)
    if after.status is False:
        return [Event("Warning", after.reason, after.message)]
    if before is not None and not before.status:
        was_paused = before.reason == ProgressingReason.PAUSED
        words = "run resumed" if was_paused else f"the run continues, it was {before.reason}"
        return [Event("Normal", EventReason.RESUMED, words)]
    return []


def _cause_events(before: Condition | None, after: Condition | None) -> list[Event]:
    """Return the event of a cause that is found only after its effect was reported."""
    if before is None or after is None or after.reason != ProgressingReason.TASK_NOT_STARTED:
        return []
    if UNEXPLAINED_WORDS not in before.message or UNEXPLAINED_WORDS in after.message:
        return []
    return [Event("Warning", after.reason, after.message)]


def exit_events(before: Mapping[str, NodeRecord], counts: NodeCounts) -> Iterator[Event]:
    """Return the event about the first tasks that exited after their token; once in a run."""
    exited = [name for name, node in counts.nodes.items() if node.repeats_task]
    if exited and not any(r.reason == NodeReason.TASK_EXITED for r in before.values()):
        message = counts.record(min(exited)).message
        yield Event(
            "Warning", EventReason.TASK_EXITED, f"the task on {fold(exited, limit=200)} {message}"
        )


def start_blocker_events(job: Job, start_blocker: Blocker | None) -> Iterator[Event]:
    """Return the event of the blocker of a Job's start, once for each generation."""
    before = job.condition(ConditionType.PROGRESSING)
    previous_reason = before.reason if before is not None else ""
    is_same = job.status.observed_generation == job.generation
    if start_blocker is not None and not (previous_reason == start_blocker.reason and is_same):
        is_waiting = start_blocker.reason == ProgressingReason.WAITING_FOR_JOB
        kind: Literal["Normal", "Warning"] = "Normal" if is_waiting else "Warning"
        yield Event(kind, start_blocker.reason, start_blocker.message)


def is_alteration_unrecorded(job: Job, status: JobStatus) -> bool:
    """Return whether the Job's status lacks a change of its DaemonSet by other clients."""
    return _alteration(status) != _alteration(job.status)


def _alteration(status: JobStatus) -> str:
    found = status.condition(ConditionType.ALTERED)
    return found.message if found is not None else ""
