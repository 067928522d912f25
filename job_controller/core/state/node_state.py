"""The state of one node, from its pod, the ledger and its earlier record.

State only moves forward. Completed is final. Failed is final until a retry is requested. Evictions
and unreachable nodes are not failures of the task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from daemonset_job.api.choices import CompletionMode, PodPolicy
from daemonset_job.api.container import ended_count
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import whole_seconds
from job_controller.core.state.causes import has_started, waits_to_be_tried_again
from job_controller.core.state.drain_failures import drain_failure
from job_controller.core.state.first_seen import node_failed, task_ended
from job_controller.core.state.last_lines import LAST_LINES_GRACE
from job_controller.core.state.node_context import (
    NodeInputs,
    RunContext,
    attempts_before,
    is_of_pod,
)
from job_controller.core.state.node_exits import (
    decidable_at,
    exited_after_token,
    failure_in_earlier_pod,
    is_unseen,
    last_code,
    task_failure,
)
from job_controller.core.state.node_observed import record_from_pod
from job_controller.core.state.node_timeouts import timeout_failure
from job_controller.core.state.node_unreachable import find_unreachable, with_absence
from job_controller.core.text.sanitize import single_line

# A message that ends with a line of the task's log.
_QUOTED_LINE: Final = re.compile(r": '.*'\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodeAssessment:
    """A node's new record, and what follows from it.

    `wake_at`: the time at which it may change without an event. `replace_pod`: the pod belongs to
    an earlier try and has to be deleted for the next one to start. Meanwhile the node counts as
    waiting. `awaits_retry`: the same follows as soon as the log of its last attempt was read.
    `delete_pod`: nothing of the pod is needed any more, and it is not to be kept.
    `repeats_task`: the node is completed, and the kubelet starts its task again and again.
    """

    record: NodeRecord
    wake_at: datetime | None = None
    replace_pod: bool = False
    delete_pod: bool = False
    awaits_retry: bool = False
    repeats_task: bool = False


def assess_node(context: RunContext, inputs: NodeInputs) -> NodeAssessment:
    """Return the state of the node now."""
    record = _previous_record(context, inputs)
    if inputs.evidence is not None and inputs.evidence.is_completed:
        return _assess_completed(context, _completed(record, inputs), inputs)
    if record.state == NodeState.FAILED and record.retry == context.retry:
        return _assess_failed(context, _with_last_line(record, inputs), inputs)
    if record.state == NodeState.FAILED and record.pod_uid == inputs.pod.uid:
        return NodeAssessment(record, replace_pod=True)
    if (failure := failure_in_earlier_pod(context, inputs)) is not None:
        return NodeAssessment(_with_last_line(failure, inputs))
    is_over = record.state == NodeState.FAILED or (
        # The record of a node that left before it was retried need not name a pod.
        record.state == NodeState.REMOVED and record.pod_uid != inputs.pod.uid
    )
    if record.retry != context.retry and (is_over or not is_of_pod(record, inputs.pod)):
        # The first pod since the retry: of the earlier tries only their number counts. One that had
        # not failed goes on, and has begun.
        record = NodeRecord(
            uid=record.uid,
            state=NodeState.WAITING,
            attempts=record.attempts,
            started_at=None if is_over else record.started_at,
            pod_uid=record.pod_uid,
            retry=context.retry,
        )
    return _assess_unfinished(context, record_from_pod(context, record, inputs), inputs)


def _assess_unfinished(
    context: RunContext, record: NodeRecord, inputs: NodeInputs
) -> NodeAssessment:
    """Return the state of a node that neither completed nor failed before."""
    if context.predates_retry(inputs) and _waits_to_be_tried_again(context, inputs.pod):
        # A new pod is tried at once, without the kubelet's back-off. Nothing runs in this one.
        moment = decidable_at(context, record, inputs)
        is_due = context.now >= moment
        return NodeAssessment(
            _record_before_retry(context, record, inputs),
            wake_at=None if is_due else moment,
            replace_pod=is_due,
            awaits_retry=not is_due,
        )
    failure, failed_at = task_failure(context, record, inputs)
    if (failure is not None or failed_at is not None) and context.predates_retry(inputs):
        record = _record_before_retry(context, record, inputs)
        if failure is not None:
            return NodeAssessment(record, replace_pod=True)
    if failure is not None:
        return NodeAssessment(_with_last_line(failure, inputs))
    undrained, undrained_at = drain_failure(context, record, inputs)
    lost, lost_at = find_unreachable(context, record, inputs)
    if (ended := undrained or lost) is not None:
        # One that is unreachable may fail for its task at that time.
        return NodeAssessment(ended, wake_at=failed_at)
    late, late_at = timeout_failure(context, record, inputs)
    if late is not None and context.predates_retry(inputs):
        return NodeAssessment(_record_before_retry(context, record, inputs), replace_pod=True)
    moments = [
        moment for moment in (failed_at, undrained_at, lost_at, late_at) if moment is not None
    ]
    return NodeAssessment(
        late or with_absence(context, _with_line_of_attempt(record, inputs), inputs.node),
        wake_at=min(moments, default=None),
    )


def _waits_to_be_tried_again(context: RunContext, pod: Pod) -> bool:
    """Return whether nothing of the task runs in the pod, and the kubelet is to start it again."""
    container = pod.container
    if container is not None and container.state == "terminated" and not pod.is_disrupted:
        return not context.is_success(container.exit_code)
    return waits_to_be_tried_again(pod)


def _record_before_retry(context: RunContext, record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
    """Return the record of a node that failed, or was failing, before the latest retry request.

    The next pod of the node is the retry.
    """
    known = inputs.own_record
    return replace(record, retry=known.retry if known else context.observed_retry or "")


def _assess_completed(
    context: RunContext, record: NodeRecord, inputs: NodeInputs
) -> NodeAssessment:
    """Return the assessment of a completed node, whose task may have exited after its token."""
    if message := exited_after_token(context, inputs):
        container = inputs.pod.container
        restarts = container.restart_count if container is not None else 0
        record = replace(
            record,
            reason=NodeReason.TASK_EXITED,
            message=single_line(message),
            # The kubelet may have started it again already.
            attempts=max(record.attempts, attempts_before(record, inputs.pod) + restarts + 1),
        )
        return NodeAssessment(record, repeats_task=True)
    if not context.spec.completion.release or not inputs.pod.is_scheduled:
        return NodeAssessment(record)
    due_at = _released_at(context, inputs)
    if due_at is None or context.now >= due_at:
        return NodeAssessment(record, delete_pod=True)
    return NodeAssessment(record, wake_at=due_at)


def _released_at(context: RunContext, inputs: NodeInputs) -> datetime | None:
    """Return until when a completed pod is kept for the results in its log, None if it is not.

    In mode Exit, the pod's status completes the node, and its log is read after that.
    """
    evidence, spec = inputs.evidence, context.spec
    if spec.completion.mode != CompletionMode.EXIT or not spec.results:
        return None
    if evidence is None or evidence.pod_uid != inputs.pod.uid or evidence.results_bytes:
        return None
    container = inputs.pod.container
    count = ended_count(container) if container is not None else 0
    return context.first_seen(task_ended(inputs.pod, count)) + LAST_LINES_GRACE


def _assess_failed(context: RunContext, record: NodeRecord, inputs: NodeInputs) -> NodeAssessment:
    """Return the assessment of a node whose failure is recorded, and of its pod.

    The kubelet restarts the task in a kept pod again and again. Unless `pods` is `Keep`, the pod is
    deleted as soon as its last lines are recorded. Its successor waits at the gate. One that was
    created before new pods had the gate is deleted, too: a task may be at work in it.
    """
    if context.spec.failure_policy.pods == PodPolicy.KEEP:
        return NodeAssessment(record)
    if record.pod_uid != inputs.pod.uid:
        return NodeAssessment(record, delete_pod=not inputs.pod.is_gated)
    evidence = inputs.evidence
    is_recorded = evidence is not None and evidence.pod_uid == inputs.pod.uid
    has_lines = has_started(inputs.pod) and context.spec.failure_log_lines > 0
    began = context.first_seen(node_failed(inputs.node))
    if context.ended_at is not None:
        # On record, so that a restart of the controller does not begin the time again. A node that
        # failed after the end has its own time. The grace is added last: the time of the failure
        # is the node's, and there may be none after it.
        failed_at = record.finished_at or context.ended_at
        began = min(began, max(context.ended_at, failed_at))
    due_at = began + LAST_LINES_GRACE
    if is_recorded or not has_lines or context.now >= due_at:
        return NodeAssessment(record, delete_pod=True)
    return NodeAssessment(record, wake_at=due_at)


def _previous_record(context: RunContext, inputs: NodeInputs) -> NodeRecord:
    return inputs.own_record or NodeRecord(
        uid=inputs.node.uid, state=NodeState.WAITING, retry=context.retry
    )


def _completed(record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
    evidence, container = inputs.evidence, inputs.pod.container
    assert evidence is not None
    if record.state == NodeState.COMPLETED:
        return record
    own_pod = evidence.pod_uid in {"", inputs.pod.uid}
    started = container.started_at if own_pod and container is not None else None
    attempts, code = 1, None
    if own_pod and container is not None:
        # The record may be of an earlier pod: this one may have started and completed since.
        attempts = attempts_before(record, inputs.pod) + container.restart_count + 1
        code = None if is_unseen(container) else container.exit_code
    finished_at = evidence.completion_time
    started_at = record.started_at or (whole_seconds(started) if started else None)
    if started_at is not None and finished_at is not None and started_at > finished_at:
        started_at = None  # a later start of the container; when the completed one began is unknown
    return NodeRecord(
        uid=record.uid,
        state=NodeState.COMPLETED,
        attempts=max(record.attempts, attempts),
        exit_code=code,
        started_at=started_at,
        finished_at=finished_at,
        pod_uid=evidence.pod_uid or inputs.pod.uid,
        retry=record.retry,
    )


def quotes_last_line(message: str) -> bool:
    """Return whether the message of a record has the last line of the task's log."""
    return bool(_QUOTED_LINE.search(message))


def _with_line_of_attempt(record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
    """Return the record of a task that restarts, with the last line of the attempt that ended."""
    evidence = inputs.evidence
    if record.reason != NodeReason.RESTARTING or evidence is None:
        return record
    is_read = evidence.attempt >= record.finished_in_pod
    return _with_last_line(record, inputs) if is_read else record


def _ended_otherwise(record: NodeRecord, inputs: NodeInputs) -> bool:
    """Return whether the lines in the ledger are of a later end, with another exit code."""
    evidence, container = inputs.evidence, inputs.pod.container
    if evidence is None or container is None or evidence.attempt <= record.finished_in_pod:
        return False
    return last_code(container) != record.exit_code


def _with_last_line(record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
    """Return the record with the last line of the task's log, which usually names the cause.

    It is added once. A kept pod is restarted and writes other lines, unrelated to this end. Nor are
    those of an earlier attempt the cause, or of a later one with another exit code. Lines without
    an attempt are of a task that was still running, or that printed the failure token.
    """
    evidence = inputs.evidence
    if evidence is None or not evidence.last_lines or evidence.pod_uid != record.pod_uid:
        return record
    if 0 < evidence.attempt < record.finished_in_pod or _ended_otherwise(record, inputs):
        return record
    if quotes_last_line(record.message):
        return record
    line = f": '{single_line(evidence.last_lines[-1], 120)}'"
    return replace(record, message=record.message + line)
