"""What the pod of a node shows: started or not, attempts, exit code, and why it waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from daemonset_job.api.container import ended_count
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import whole_seconds
from job_controller.core.state.causes import (
    find_cause,
    find_disruption,
    has_started,
    is_backing_off,
    is_start_pending,
)
from job_controller.core.state.first_seen import pods_rejected
from job_controller.core.state.node_context import (
    NodeInputs,
    RunContext,
    attempts_before,
    is_of_pod,
)
from job_controller.core.state.node_exits import end_message, is_fatal, is_unseen, last_code
from job_controller.core.state.node_timeouts import SILENT_REASONS, find_start_fact, report_at
from job_controller.core.text.sanitize import DETAIL_LIMIT, single_line

# The causes of a task that does not start that only events can name.
UNEXPLAINED_WORDS: Final = (
    "a large image, or a volume that cannot be mounted; see `kubectl describe pod`"
)
_NOT_SCHEDULED_WORDS: Final = (
    "no scheduler has looked at the pod: check that kube-scheduler is running, and schedulerName "
    "in spec.template"
)
# Reasons for which a container is not created.
_CREATE_FAILURES: Final = frozenset(
    {NodeReason.IMAGE_PULL_FAILED, NodeReason.CONTAINER_START_FAILED}
)


def record_from_pod(context: RunContext, record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
    """Return the record with what the pod shows: started or not, attempts, exit code."""
    pod, container = inputs.pod, inputs.pod.container
    same_pod = is_of_pod(record, pod)
    base = NodeRecord(
        uid=record.uid,
        state=NodeState.WAITING,
        attempts=record.attempts,
        attempts_in_earlier_pods=attempts_before(record, pod),
        finished_in_pod=record.finished_in_pod if same_pod else 0,
        ignored_failures=record.ignored_failures if same_pod else 0,
        started_at=record.started_at,
        active_since=_active_since(context, record, pod),
        pod_uid=pod.uid,
        retry=context.retry,
    )
    if container is None or not has_started(pod):
        reason, message = _waiting_reason(context, inputs)
        if record.reason == NodeReason.POD_REJECTED and _follows_rejected_pod(
            context, reason, inputs
        ):
            # The next pod of a node whose kubelet rejects all of them.
            reason, message = record.reason, record.message
        return replace(base, reason=reason, message=message)
    code, count = last_code(container), ended_count(container)
    if code is None and count and count == base.finished_in_pod:
        # The kubelet has removed the container of an end that is on record.
        code = record.exit_code
    newly = count - base.finished_in_pod
    # The kubelet keeps only the last exit. Ends that the controller has not seen count like it.
    # They are few: the kubelet waits ten seconds or more between restarts.
    is_ignored = newly > 0 and not is_unseen(container) and context.ignores(code)
    failing = count > 0 and not context.is_success(code)
    # A rule fails the node for an end on record, whatever became of the attempts after it.
    is_kept = same_pod and failing and is_fatal(context.spec, record.exit_code)
    ignored = newly if is_ignored and not is_kept else 0
    # A pod that ended before its task started counts as an attempt, and as no start.
    started = container.started_at or pod.started_at
    started = None if container.was_never_created else started
    reason, message = _not_restarting_reason(context, record, inputs, count)
    active = replace(
        base,
        state=NodeState.ACTIVE,
        attempts=base.attempts_in_earlier_pods + container.restart_count + 1,
        finished_in_pod=base.finished_in_pod if is_kept else max(count, base.finished_in_pod),
        ignored_failures=base.ignored_failures + ignored,
        exit_code=record.exit_code if is_kept else code,
        started_at=record.started_at or (whole_seconds(started) if started else None),
        reason=reason,
        message=message,
    )
    if reason or not failing:
        return active
    # The kubelet may not know the end on record any more.
    is_on_record = is_kept or (count == base.finished_in_pod and last_code(container) is None)
    if is_on_record and record.reason == NodeReason.RESTARTING:
        return replace(active, reason=record.reason, message=record.message)
    message = end_message(context, active, inputs, container)
    return replace(active, reason=NodeReason.RESTARTING, message=message)


def _follows_rejected_pod(context: RunContext, reason: str, inputs: NodeInputs) -> bool:
    """Return whether the pod follows a rejected one and shows no state yet."""
    was_rejected = pods_rejected(inputs.node, context.retry, inputs.pod.revision) in context.seen
    return not reason or (was_rejected and reason == NodeReason.SCHEDULING_GATED)


def _waiting_reason(context: RunContext, inputs: NodeInputs) -> tuple[str, str]:
    """Return why the task does not start, as reason and message; "" for no reason."""
    cause = find_cause(inputs.pod)
    return (
        (cause.reason, cause.message) if cause is not None else _unexplained_reason(context, inputs)
    )


def _unexplained_reason(context: RunContext, inputs: NodeInputs) -> tuple[str, str]:
    """Return reason and message for a task that does not start without a known cause."""
    pod, fact = inputs.pod, find_start_fact(context, inputs)
    reason = SILENT_REASONS.get(fact.kind) if fact is not None else None
    if fact is None or reason is None:
        return "", ""
    if context.now < report_at(context, fact) and not context.was_recorded_as(inputs, reason):
        return "", ""
    if reason == NodeReason.NOT_SCHEDULED:
        return reason, _NOT_SCHEDULED_WORDS
    pod_uid, mount_message = context.failed_mount
    if mount_message and pod_uid == pod.uid:
        return NodeReason.TASK_NOT_STARTED, single_line(mount_message)
    state = pod.container.reason if pod.container is not None else ""
    again = " again" if has_started(pod) else ""
    words = (
        f"the pod is on its node and its task has not started{again} ({state or 'no status'}): "
        f"{UNEXPLAINED_WORDS}"
    )
    if mount_message:
        words = f"{words}; on another node: {mount_message}"
    return NodeReason.TASK_NOT_STARTED, single_line(words, 2 * DETAIL_LIMIT)


def _not_restarting_reason(
    context: RunContext, record: NodeRecord, inputs: NodeInputs, count: int
) -> tuple[str, str]:
    """Return why a task that has ended does not start again, as reason and message."""
    pod = inputs.pod
    if disruption := find_disruption(pod):
        return disruption.reason, disruption.message
    if is_start_pending(pod):
        return _waiting_reason(context, inputs)
    is_same = record.pod_uid == pod.uid and record.finished_in_pod == count
    if is_backing_off(pod) and is_same and record.reason in _CREATE_FAILURES:
        # The kubelet backs off between two attempts to create the container.
        return record.reason, record.message
    return "", ""


def _active_since(context: RunContext, record: NodeRecord, pod: Pod) -> datetime | None:
    """Return the start of the node's deadline, by the controller's clock; None before it.

    It is recorded only for Jobs with such a deadline, so that it survives a restart. While the run
    is suspended, a pod at the gate may not start. After that its node has the whole time again.
    """
    if pod.is_gated and context.is_suspended:
        return None
    # The time of a pod that went before the node's task started does not count. It may be on record
    # as an attempt.
    has_begun = record.started_at is not None or is_of_pod(record, pod)
    since = record.active_since if has_begun else None
    if context.spec.node_deadline_seconds is None or pod.started_at is None:
        return since
    return since or whole_seconds(context.now)
