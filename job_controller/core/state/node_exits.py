"""Failures of a node by its task: an exit, or the failure token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.choices import CompletionMode, RuleAction
from daemonset_job.api.container import STATUS_UNKNOWN, Container, ended_count
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import whole_seconds
from job_controller.core.state.first_seen import (
    LEDGER_ROOM,
    Fact,
    are_limits_new,
    ended_by_rule,
    task_ended,
)
from job_controller.core.state.node_context import NodeInputs, RunContext, is_of_pod
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records
from job_controller.core.text.sanitize import single_line

# A task that printed the token and then exited has completed. So its exit is assessed only after
# the terminator has had time to read the log and to record the token. READ_LOG_GRACE applies if the
# ledger says that the log of this attempt was read to its end. Otherwise UNREAD_LOG_GRACE applies.
# It is longer than a restarted terminator needs to get its lease (15 s).
READ_LOG_GRACE: Final = timedelta(seconds=5)
UNREAD_LOG_GRACE: Final = timedelta(seconds=30)
# In mode Exit the exit code decides. The failure is recorded once the last lines of the log are in
# the ledger, or after this time. So the first event and message quote the last line.
EXIT_LINES_GRACE: Final = timedelta(seconds=5)
# A task whose sandbox has ended, too, was mostly killed with its pod. Then the status of the pod
# says why, as soon as all of its containers have ended. Otherwise the kubelet starts both again.
SANDBOX_GRACE: Final = timedelta(seconds=60)
# For how long after a node may fail it is read from the API server before it does. For an end that
# no kubelet saw it fails after UNREAD_LOG_GRACE, or later while there is no room in the ledger, or
# while the node cannot be read. By a lower `backoffLimit` or `nodeDeadlineSeconds` it fails later,
# too, and is read as long after that change.
READ_LIMIT: Final = timedelta(minutes=2)
# The longest reason of a container's end that is quoted.
REASON_LIMIT: Final = 64
# The longest message of a container's end that is quoted.
MESSAGE_LIMIT: Final = 160
# Ends of a container that neither the kubelet nor its runtime saw.
_LOST_REASONS: Final = frozenset({"Unknown", STATUS_UNKNOWN})
# Exit codes of a process that a signal ended, 128 and its number: it did not exit by itself. A
# process may choose such a code as well. It is no kill if it happens again and again.
_KILLED: Final = range(129, 193)
_KILLS_LIMIT: Final = 2
_EXITED_HINT: Final = (
    "the kubelet starts it again; have it wait after the token, as run-once does, or set "
    "spec.completion.mode to Exit"
)
_UNREAD_HINT: Final = "its log was not read, so whether it printed the token is not known"
_MODE_HINT: Final = "if that is enough, set spec.completion.mode to Exit"


def task_failure(
    context: RunContext, record: NodeRecord, inputs: NodeInputs
) -> tuple[NodeRecord | None, datetime | None]:
    """Return the record of a failure of the task, or None and when there may be one."""
    pod, evidence = inputs.pod, inputs.evidence
    if evidence is not None and evidence.failed_at and evidence.pod_uid == pod.uid:
        return _failed_by_token(record, evidence), None
    container = pod.container
    code = record.exit_code
    if container is None or record.state != NodeState.ACTIVE:
        return None, None
    may_be_success = context.is_success(code) or _may_have_succeeded(context, code, container)
    if may_be_success or not record.finished_in_pod or pod.is_ended_by_cluster:
        # A disruption is no failure of the task: the DaemonSet controller creates another pod.
        return None, None
    fatal = is_fatal(context.spec, code)
    if not fatal and record.finished_in_pod - record.ignored_failures <= context.spec.backoff_limit:
        return None, None
    finished = container.finished_at or container.last_finished_at
    moment = decidable_at(context, record, inputs)
    if pod.sandbox_ended:
        moment = max(moment, _first_seen_end(context, record, pod) + SANDBOX_GRACE)
    if context.now < moment:
        return None, moment
    reason = NodeReason.FAILURE_POLICY_RULE if fatal else NodeReason.BACKOFF_LIMIT_EXCEEDED
    message = _failure_message(context, record, inputs, container)
    return failed_record(record, reason, message, at=finished), None


def _failure_message(
    context: RunContext, record: NodeRecord, inputs: NodeInputs, container: Container
) -> str:
    # What is shown of a task that restarts is of its newest end, which the kubelet may have lost.
    if record.reason == NodeReason.RESTARTING and not _is_unread(context, record, inputs):
        return record.message
    return end_message(context, record, inputs, container)


def _is_unread(context: RunContext, record: NodeRecord, inputs: NodeInputs) -> bool:
    """Return whether the token decides about the end, and its log was not read."""
    if context.spec.completion.mode != CompletionMode.LOG or record.exit_code != 0:
        return False
    return not _was_read(inputs.evidence, task_ended(inputs.pod, record.finished_in_pod))


def failure_in_earlier_pod(context: RunContext, inputs: NodeInputs) -> NodeRecord | None:
    """Return the record of a failure that the pod before this one has shown, None without one.

    That pod was deleted before its node could fail. Its record has what it showed until then: how a
    task ends while its pod is being deleted says nothing. What the task prints counts all the same.
    """
    known, evidence = inputs.own_record, inputs.evidence
    if known is None or known.state != NodeState.ACTIVE or known.retry != context.retry:
        return None
    if is_of_pod(known, inputs.pod):
        return None
    if evidence is not None and evidence.failed_at and evidence.pod_uid == known.pod_uid:
        return _failed_by_token(known, evidence)
    if known.reason == NodeReason.RESTARTING and is_fatal(context.spec, known.exit_code):
        reason = NodeReason.FAILURE_POLICY_RULE
        return failed_record(known, reason, known.message, at=context.now)
    return None


def _failed_by_token(record: NodeRecord, evidence: Evidence) -> NodeRecord:
    failed = failed_record(record, NodeReason.FAILURE_TOKEN, "printed the failure token")
    return replace(failed, finished_at=evidence.failure_time)


def is_fatal(spec: JobSpec, code: int | None) -> bool:
    """Return whether a rule fails the node for an end with this exit code."""
    return code is not None and spec.failure_policy.rule_action(code) == RuleAction.FAIL


def find_ends_of_rules(snapshot: Snapshot, pods: Iterable[Pod]) -> frozenset[str]:
    """Return the UIDs of the pods with an end for which a rule fails the node.

    That is the newest end, or the one on record.
    """
    spec = snapshot.job.spec
    if not any(rule.action == RuleAction.FAIL for rule in spec.failure_policy.rules):
        return frozenset()
    recorded = {
        record.pod_uid
        for record in merge_records(snapshot).values()
        if is_fatal(spec, record.exit_code)
    }
    return frozenset(
        pod.uid
        for pod in pods
        if pod.uid in recorded or (pod.container and is_fatal(spec, last_code(pod.container)))
    )


def _may_have_succeeded(context: RunContext, code: int | None, container: Container) -> bool:
    """Return whether the end is one that the kubelet has forgotten, in mode Exit.

    An unseen one counts: a task that takes down its machine each time would never fail.
    """
    is_forgotten = code is None and not is_unseen(container)
    return is_forgotten and context.spec.completion.mode != CompletionMode.LOG


@dataclass(frozen=True, slots=True)
class LostEnd:
    """An end that the kubelet did not see; its node fails `grace` after its sighting."""

    fact: Fact
    grace: timedelta


def find_lost_ends(snapshot: Snapshot, nodes: Iterable[Node], now: datetime) -> dict[str, LostEnd]:
    """Return those of the nodes, by name, that may fail now for an end the kubelet did not see.

    The machine may be a new one with the name of the old, and the cache may not show that yet.
    """
    spec, found = snapshot.job.spec, {}
    limit = spec.backoff_limit
    # In mode Log a failure waits for room in the ledger, see `decidable_at`.
    room = snapshot.seen.get(LEDGER_ROOM) if spec.completion.mode == CompletionMode.LOG else None
    are_new = are_limits_new(snapshot.seen, spec, now - READ_LIMIT)
    records = merge_records(snapshot)
    ended = {name: r for name, r in records.items() if r.finished_in_pod > limit}
    pods = {
        pod.node_name: (pod, pod.container)
        for pod in snapshot.pods
        if pod.container is not None
        and (pod.node_name in ended or ended_count(pod.container) > limit)
    }
    ledger = merge_evidence(snapshot) if pods else {}
    for node in nodes if pods else ():
        if node.name not in pods:
            continue
        pod, container = pods[node.name]
        record = ended.get(node.name)
        recorded = record.finished_in_pod if record and record.pod_uid == pod.uid else 0
        end = task_ended(pod, max(ended_count(container), recorded))
        sighting = snapshot.seen.get(end)
        if sighting is None or not _is_lost(spec, container, recorded):
            continue
        grace = _lost_end_grace(spec, pod, _was_read(ledger.get(node.name), end))
        since = (sighting, room) if room is not None else (sighting,)
        may_fail_anew = are_new and grace <= now - sighting.first
        if may_fail_anew or any(grace <= now - each.first < READ_LIMIT for each in since):
            found[node.name] = LostEnd(end, grace)
    return found


def _lost_end_grace(spec: JobSpec, pod: Pod, was_read: bool) -> timedelta:
    """Return how long after its first sighting a node fails for a lost end at the earliest."""
    grace = timedelta()
    if spec.completion.mode == CompletionMode.LOG:
        grace = READ_LOG_GRACE if was_read else UNREAD_LOG_GRACE
    return max(grace, SANDBOX_GRACE) if pod.sandbox_ended else grace


def _was_read(evidence: Evidence | None, end: Fact) -> bool:
    """Return whether the ledger says that the log was read up to that end of the task."""
    is_of_pod = evidence is not None and evidence.pod_uid == end.uid
    return is_of_pod and evidence is not None and evidence.attempt >= end.start


def _is_lost(spec: JobSpec, container: Container, recorded: int) -> bool:
    """Return whether the kubelet did not see the newest end, or counts from 0 again.

    In mode Exit a node does not fail for an end that the kubelet has only forgotten.
    """
    if spec.completion.mode != CompletionMode.LOG:
        return is_unseen(container)
    return ended_count(container) < recorded or last_code(container) is None


def exited_after_token(context: RunContext, inputs: NodeInputs) -> str:
    """Return the message about a task that printed its token and exited, "" if it did not.

    The kubelet starts every container of a DaemonSet again, so such a task does its work again.
    Both times are the node's. The end of a container that was killed, or died with its machine, is
    no exit.
    """
    pod, evidence, container = inputs.pod, inputs.evidence, inputs.pod.container
    if context.spec.completion.mode != CompletionMode.LOG or evidence is None or container is None:
        return ""
    ended_at = container.finished_at or container.last_finished_at
    completed_at = evidence.completion_time
    if evidence.pod_uid != pod.uid or ended_at is None or completed_at is None:
        return ""
    if pod.is_ended_by_cluster or pod.sandbox_ended:
        return ""
    code, ends = last_code(container), ended_count(container) - evidence.attempt
    if whole_seconds(ended_at) < completed_at or ends <= 0:
        return ""
    if code is None or (code in _KILLED and ends <= _KILLS_LIMIT):
        return ""
    return f"printed the token and ended with exit {code}: {_EXITED_HINT}"


def decidable_at(context: RunContext, record: NodeRecord, inputs: NodeInputs) -> datetime:
    """Return when the newest end of the task may be assessed: after a token in its log."""
    if not record.finished_in_pod:
        return context.now
    end = task_ended(inputs.pod, record.finished_in_pod)
    was_read = _was_read(inputs.evidence, end)
    first = _first_seen_end(context, record, inputs.pod)
    if context.spec.completion.mode != CompletionMode.LOG:
        if was_read or not context.spec.failure_log_lines:
            return first
        return first + EXIT_LINES_GRACE
    if was_read:
        return first + READ_LOG_GRACE
    # What the terminator finds in a log can be recorded only where there is room for it.
    return max(first, context.first_seen(LEDGER_ROOM)) + UNREAD_LOG_GRACE


def _first_seen_end(context: RunContext, record: NodeRecord, pod: Pod) -> datetime:
    """Return since when the end on record is known; ends after that of a rule change nothing."""
    first = context.first_seen(task_ended(pod, record.finished_in_pod))
    if is_fatal(context.spec, record.exit_code):
        first = min(first, context.first_seen(ended_by_rule(pod.uid)))
    return first


def failed_record(
    record: NodeRecord, reason: str, message: str, at: datetime | None = None
) -> NodeRecord:
    """Return the record of a node that has failed, `at` this time if it is known."""
    return replace(
        record,
        state=NodeState.FAILED,
        reason=reason,
        message=single_line(message),
        finished_at=whole_seconds(at) if at is not None else record.finished_at,
    )


def end_message(
    context: RunContext, record: NodeRecord, inputs: NodeInputs, container: Container
) -> str:
    """Return how the newest start of the task ended: "exit 2 after 3 attempts: disk full".

    `record` is the one with that end. The kubelet's message, if there is one, has the error of the
    container runtime, or what the task wrote to its termination log.
    """
    code, when = last_code(container), _attempts(container, record.attempts_in_earlier_pods)
    if _is_unread(context, record, inputs):
        return f"exit 0 {when}; {_UNREAD_HINT}"
    if code == 0:
        return f"exit 0 without the token {when} ({_MODE_HINT})"
    reason, message = container.last_reason, container.last_message
    if container.state == "terminated":
        reason, message = container.reason, container.message
    how = f"exit {code}" if code is not None else "ended with an unknown exit code"
    cause = (
        f" ({single_line(reason, REASON_LIMIT)})"
        if reason not in {"", "Error", "Completed"}
        else ""
    )
    detail = f": {single_line(message, MESSAGE_LIMIT)}" if message else ""
    return f"{how}{cause} {when}{detail}"


def _attempts(container: Container, before: int) -> str:
    """Return with which attempt the task ended: "after 3 attempts"."""
    attempts = ended_count(container)
    when = f"after {attempts} attempts" if attempts > 1 else "at the first attempt"
    return when + (f" in its last pod, {before + attempts} in all" if before else "")


def last_code(container: Container) -> int | None:
    """Return the exit code of the newest attempt that has ended, None without one.

    An unseen end shows 137 from the kubelet, or 255 from containerd (kubernetes
    pkg/kubelet/kubelet_pods.go, containerd internal/cri/server/restart.go).
    """
    if is_unseen(container):
        return None
    return container.exit_code if container.exit_code is not None else container.last_exit_code


def is_unseen(container: Container) -> bool:
    """Return whether neither the kubelet nor its runtime saw the newest end."""
    return last_reason(container) in _LOST_REASONS


def last_reason(container: Container) -> str:
    """Return the kubelet's reason for the newest end, "" without one."""
    return container.reason if container.state == "terminated" else container.last_reason
