"""The state of one node, from its pod, the ledger and its earlier record.

State only moves forward. Completed is final. Failed is final until a retry is requested. Evictions
and unreachable nodes are not failures of the task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.job import JobSpec
from daemonset_job.api.objects import Container, Node, Pod
from daemonset_job.api.report import Evidence, NodeRecord
from daemonset_job.api.taints import Taint
from daemonset_job.api.times import format_time, parse_time
from job_controller.core.settings import Timeouts
from job_controller.core.state.causes import (
    PERMANENT_REASONS,
    ended_count,
    find_cause,
    find_disruption,
    has_started,
    is_backing_off,
    is_start_pending,
)
from job_controller.core.state.first_seen import (
    UNEXPLAINED,
    Fact,
    Sightings,
    node_failed,
    node_not_ready,
    not_starting,
    pods_rejected,
    task_ended,
)
from job_controller.core.text.sanitize import single_line

WAITING: Final = "Waiting"
ACTIVE: Final = "Active"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
UNREACHABLE: Final = "Unreachable"
STATES: Final = (WAITING, ACTIVE, COMPLETED, FAILED, UNREACHABLE)

# A task that printed the token and then exited has completed. So its exit is assessed only after
# the terminator has had time to read the log and to record the token. READ_LOG_GRACE applies if the
# ledger says that the log of this attempt was read to its end. Otherwise UNREAD_LOG_GRACE applies.
# It is longer than a restarted terminator needs to get its lease (15 s).
READ_LOG_GRACE: Final = timedelta(seconds=5)
UNREAD_LOG_GRACE: Final = timedelta(seconds=30)
# The longest reason of a container's end that is quoted.
REASON_LIMIT: Final = 64
# The time for the terminator to record the last lines of a failed task. A pod that is not kept is
# deleted after that.
LAST_LINES_GRACE: Final = timedelta(seconds=10)
# The time after which a pod on its node without a started task and without a known cause is
# reported. A node that pulls an image looks the same, so such a node fails late: after
# UNEXPLAINED_FACTOR times the start timeout.
UNEXPLAINED_REPORT_AFTER: Final = timedelta(seconds=45)
UNEXPLAINED_FACTOR: Final = 3


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """What is known about one desired node; `pod` is its current pod.

    `blocking_taint` is the taint of a node condition that keeps the pod from being scheduled.
    """

    node: Node
    pod: Pod
    evidence: Evidence | None = None
    record: NodeRecord | None = None
    blocking_taint: Taint | None = None


@dataclass(frozen=True, slots=True)
class NodeAssessment:
    """A node's new record, and what follows from it.

    `wake_at`: the time at which it may change without an event. `replace_pod`: the pod belongs to
    an earlier try and has to be deleted for the next one to start. Meanwhile the node counts as
    waiting. `delete_pod`: all lines of the failed pod are recorded, and it is not to be kept.
    """

    record: NodeRecord
    wake_at: datetime | None = None
    replace_pod: bool = False
    delete_pod: bool = False


@dataclass(frozen=True, slots=True)
class RunContext:
    """What holds for all nodes of a Job: its spec, its retry request, the timeouts, the time.

    `seen` is when the controller first saw the start of each timer, see `first_seen`. `ended_at` is
    when the run ended by the controller's clock, None while it has not.
    """

    spec: JobSpec
    retry: str
    timeouts: Timeouts
    now: datetime
    seen: Sightings = field(default_factory=dict)
    ended_at: datetime | None = None

    def assess_node(self, inputs: NodeInputs) -> NodeAssessment:
        """Return the state of the node now."""
        record = self._previous_record(inputs)
        if inputs.evidence is not None and inputs.evidence.is_completed:
            return NodeAssessment(_completed(record, inputs))
        if record.state == FAILED and record.retry == self.retry:
            return self._assess_failed(_with_last_line(record, inputs), inputs)
        if record.state == FAILED and record.pod_uid == inputs.pod.uid:
            return NodeAssessment(record, replace_pod=True)
        if record.retry != self.retry and (
            record.state == FAILED or not _is_of_pod(record, inputs.pod)
        ):
            # The first pod since the retry: of the earlier tries only their number counts.
            record = NodeRecord(
                uid=record.uid,
                state=WAITING,
                attempts=record.attempts,
                pod_uid=record.pod_uid,
                retry=self.retry,
            )
        return self._assess_unfinished(self._record_from_pod(record, inputs), inputs)

    def _assess_unfinished(self, record: NodeRecord, inputs: NodeInputs) -> NodeAssessment:
        """Return the state of a node that neither completed nor failed before."""
        failure, decidable_at = self._task_failure(record, inputs)
        if (failure is not None or decidable_at is not None) and self._predates_retry(inputs):
            record = self._record_before_retry(record, inputs)
            if failure is not None:
                return NodeAssessment(record, replace_pod=True)
        if failure is not None:
            return NodeAssessment(_with_last_line(failure, inputs))
        lost, lost_at = self._unreachable(record, inputs)
        if lost is not None:
            return NodeAssessment(lost)
        late, late_at = self._timeout_failure(record, inputs)
        if late is not None and self._predates_retry(inputs):
            return NodeAssessment(self._record_before_retry(record, inputs), replace_pod=True)
        moments = [moment for moment in (decidable_at, lost_at, late_at) if moment is not None]
        return NodeAssessment(late or record, wake_at=min(moments, default=None))

    @staticmethod
    def _record_before_retry(record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
        """Return the record of a node that failed before the latest retry request.

        Its failure was not recorded yet. The next pod of the node is the retry.
        """
        assert inputs.record is not None
        return replace(record, retry=inputs.record.retry)

    def _assess_failed(self, record: NodeRecord, inputs: NodeInputs) -> NodeAssessment:
        """Return the assessment of a node whose failure is recorded, and of its pod.

        The kubelet restarts the task in a kept pod again and again. With `pods: Delete` the pod is
        deleted as soon as its last lines are recorded. Its successor waits at the gate.
        """
        unwanted = self.spec.failure_policy.pods == "Delete" and record.pod_uid == inputs.pod.uid
        if not unwanted:
            return NodeAssessment(record)
        evidence = inputs.evidence
        told = evidence is not None and evidence.pod_uid == inputs.pod.uid
        decidable_at = self._first_seen(node_failed(inputs.node)) + LAST_LINES_GRACE
        if self.ended_at is not None:
            # On record, so that a restart of the controller does not begin the time again. A node
            # that failed after the end has its own time.
            failed_at = parse_time(record.finished_at) or self.ended_at
            decidable_at = min(decidable_at, max(self.ended_at, failed_at) + LAST_LINES_GRACE)
        if told or self.now >= decidable_at:
            return NodeAssessment(record, delete_pod=True)
        return NodeAssessment(record, wake_at=decidable_at)

    def _first_seen(self, fact: Fact) -> datetime:
        """Return when the controller first saw this, `now` for the first time."""
        sighting = self.seen.get(fact)
        return sighting.first if sighting is not None else self.now

    def _previous_record(self, inputs: NodeInputs) -> NodeRecord:
        record = inputs.record
        if record is None or record.uid != inputs.node.uid:
            return NodeRecord(uid=inputs.node.uid, state=WAITING, retry=self.retry)
        return record

    def _record_from_pod(self, record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
        """Return the record with what the pod shows: started or not, attempts, exit code."""
        pod, container = inputs.pod, inputs.pod.container
        same_pod = _is_of_pod(record, pod)
        base = NodeRecord(
            uid=record.uid,
            state=WAITING,
            attempts=record.attempts,
            attempts_in_earlier_pods=_attempts_before(record, pod),
            finished_in_pod=record.finished_in_pod if same_pod else 0,
            ignored_failures=record.ignored_failures if same_pod else 0,
            started_at=record.started_at,
            active_since=self._active_since(record, pod),
            pod_uid=pod.uid,
            retry=self.retry,
        )
        if container is None or not has_started(pod):
            reason, message = self._waiting_reason(inputs)
            if record.reason == "PodRejected" and self._follows_rejected_pod(reason, inputs):
                # The next pod of a node whose kubelet rejects all of them.
                reason, message = record.reason, record.message
            return replace(base, reason=reason, message=message)
        code, count = _last_code(container), ended_count(container)
        newly = count - base.finished_in_pod
        # The kubelet keeps only the last exit. Ends that the controller has not seen count like it.
        # They are few: the kubelet waits ten seconds or more between restarts.
        ignored = (
            newly if newly > 0 and code is not None and self._rule_action(code) == "Ignore" else 0
        )
        failing = count > 0 and not self._is_success(code)
        started = container.started_at or pod.started_at
        reason, message = self._not_restarting_reason(record, inputs, count)
        if not reason and failing:
            reason, message = "Restarting", _end_message(container)
        return replace(
            base,
            state=ACTIVE,
            attempts=base.attempts_in_earlier_pods + container.restart_count + 1,
            finished_in_pod=max(count, base.finished_in_pod),
            ignored_failures=base.ignored_failures + ignored,
            exit_code=code,
            started_at=record.started_at or (format_time(started) if started else ""),
            reason=reason,
            message=message,
        )

    def _follows_rejected_pod(self, reason: str, inputs: NodeInputs) -> bool:
        """Return whether the pod follows a rejected one and shows no state yet."""
        was_rejected = pods_rejected(inputs.node, self.retry) in self.seen
        return not reason or (was_rejected and reason == "SchedulingGated")

    def _waiting_reason(self, inputs: NodeInputs) -> tuple[str, str]:
        """Return why the task does not start, as reason and message; "" for no reason."""
        cause = find_cause(inputs.pod)
        return (
            (cause.reason, cause.message) if cause is not None else self._unexplained_reason(inputs)
        )

    def _not_restarting_reason(
        self, record: NodeRecord, inputs: NodeInputs, count: int
    ) -> tuple[str, str]:
        """Return why a task that has ended does not start again, as reason and message."""
        pod = inputs.pod
        if disruption := find_disruption(pod):
            return disruption.reason, disruption.message
        if is_start_pending(pod):
            return self._waiting_reason(inputs)
        is_same = record.pod_uid == pod.uid and record.finished_in_pod == count
        if is_backing_off(pod) and is_same and record.reason in _CREATE_FAILURES:
            # The kubelet backs off between two attempts to create the container.
            return record.reason, record.message
        return "", ""

    def _was_recorded_as(self, inputs: NodeInputs, what: str) -> bool:
        """Return whether the node's record has that state or reason."""
        known = inputs.record
        return (
            known is not None
            and known.uid == inputs.node.uid
            and known.retry == self.retry
            and what in {known.state, known.reason}
        )

    def _predates_retry(self, inputs: NodeInputs) -> bool:
        """Return whether the pod's record was written before the latest retry request."""
        known = inputs.record
        return (
            known is not None
            and known.uid == inputs.node.uid
            and known.pod_uid == inputs.pod.uid
            and known.retry != self.retry
        )

    def _active_since(self, record: NodeRecord, pod: Pod) -> str:
        """Return the start of the node's deadline, by the controller's clock; "" before it.

        It is recorded only for Jobs with such a deadline, so that it survives a restart.
        """
        if self.spec.node_deadline_seconds is None or pod.started_at is None:
            return record.active_since
        # The time of a pod that was deleted before its task started does not count.
        has_begun = record.active_since and (record.attempts > 0 or _is_of_pod(record, pod))
        return record.active_since if has_begun else format_time(self.now)

    def _unexplained_reason(self, inputs: NodeInputs) -> tuple[str, str]:
        """Return reason and message for a task that does not start without a known cause."""
        pod, fact = inputs.pod, self._not_starting(inputs)
        if fact is None or fact.kind != UNEXPLAINED:
            return "", ""
        if self.now < self._report_at(fact) and not self._was_recorded_as(inputs, "TaskNotStarted"):
            return "", ""
        state = pod.container.reason if pod.container is not None else ""
        again = " again" if has_started(pod) else ""
        words = (
            f"the pod is on its node and its task has not started{again} ({state or 'no status'}): "
            "a large image, or a volume that cannot be mounted; see `kubectl describe pod`"
        )
        return "TaskNotStarted", words

    def _not_starting(self, inputs: NodeInputs) -> Fact | None:
        """Return the fact that keeps the task from starting, if the start timeout applies to it."""
        if inputs.blocking_taint is not None:
            return None
        return not_starting(inputs.node, inputs.pod, self.retry, self.seen)

    def _report_at(self, silent: Fact) -> datetime:
        """Return when to report that a task has not started without a known cause."""
        return self._first_seen(silent) + min(
            UNEXPLAINED_REPORT_AFTER, timedelta(seconds=self.timeouts.start_seconds)
        )

    def _is_success(self, code: int | None) -> bool:
        """Return whether this exit code means success in the Job's completion mode."""
        return code == 0 and self.spec.completion.mode == "Exit"

    def _task_failure(
        self, record: NodeRecord, inputs: NodeInputs
    ) -> tuple[NodeRecord | None, datetime | None]:
        """Return the record of a failure of the task, or None and when there may be one."""
        pod, evidence = inputs.pod, inputs.evidence
        if evidence is not None and evidence.failed_at and evidence.pod_uid == pod.uid:
            failed = _failed(record, "FailureToken", "printed the failure token")
            return replace(failed, finished_at=f"{evidence.failed_at[:19]}Z"), None
        container = pod.container
        code = record.exit_code
        if container is None or code is None or record.state != ACTIVE:
            return None, None
        if self._is_success(code) or not record.finished_in_pod or pod.is_disrupted:
            # A disruption is no failure of the task: the DaemonSet controller creates another pod.
            return None, None
        fatal = self._rule_action(code) == "Fail"
        if (
            not fatal
            and record.finished_in_pod - record.ignored_failures <= self.spec.backoff_limit
        ):
            return None, None
        finished = container.finished_at or container.last_finished_at
        decidable_at = self._decidable_at(record, inputs)
        if self.now < decidable_at:
            return None, decidable_at
        reason = "FailurePolicyRule" if fatal else "BackoffLimitExceeded"
        return _failed(record, reason, _end_message(container), at=finished), None

    def _decidable_at(self, record: NodeRecord, inputs: NodeInputs) -> datetime:
        """Return when the newest end of the task may be assessed: after a token in its log."""
        if self.spec.completion.mode != "Log" or not record.finished_in_pod:
            return self.now
        pod, evidence = inputs.pod, inputs.evidence
        was_read = (
            evidence is not None
            and evidence.pod_uid == pod.uid
            and evidence.attempt >= record.finished_in_pod
        )
        sighting = self.seen.get(task_ended(pod, record.finished_in_pod))
        if sighting is not None:
            seen_at = sighting.first
        else:
            # An earlier process recorded this end, and the pod no longer shows it.
            ours = (known.first for fact, known in self.seen.items() if fact.uid == pod.uid)
            seen_at = min(ours, default=self.now)
        return seen_at + (READ_LOG_GRACE if was_read else UNREAD_LOG_GRACE)

    def _unreachable(
        self, record: NodeRecord, inputs: NodeInputs
    ) -> tuple[NodeRecord | None, datetime | None]:
        """Return the record of an unreachable node, or None and when it becomes unreachable.

        A node that is recorded as unreachable stays so until it is Ready, also after a restart of
        the controller. A Ready node counts as not Ready while its condition keeps the pod off.
        """
        node = inputs.node
        if inputs.blocking_taint is None and (node.ready or node.ready_changed_at is None):
            return None, None
        limit = self._first_seen(node_not_ready(node, self.retry)) + timedelta(
            seconds=self.timeouts.unreachable_seconds
        )
        if self.now < limit and not self._was_recorded_as(inputs, UNREACHABLE):
            return None, limit
        reason, message = unreachable_reason(node, inputs.blocking_taint)
        return replace(record, state=UNREACHABLE, reason=reason, message=message), None

    def _timeout_failure(
        self, record: NodeRecord, inputs: NodeInputs
    ) -> tuple[NodeRecord | None, datetime | None]:
        """Return a failure by time: the node's deadline or a start timeout."""
        limits: list[tuple[datetime, str, str]] = []
        seconds, pod = self.spec.node_deadline_seconds, inputs.pod
        began = parse_time(record.active_since)
        if seconds is not None and began is not None and not pod.is_gated:
            limits.append(
                (
                    began + timedelta(seconds=seconds),
                    "DeadlineExceeded",
                    f"not completed within nodeDeadlineSeconds ({seconds} s)",
                )
            )
        if (fact := self._not_starting(inputs)) is not None:
            limits.append(self._start_deadline(record, inputs, fact))
        elif pod.is_gated and (before := self.seen.get(pods_rejected(inputs.node, self.retry))):
            limits.append((before.forgotten_at or self.now, "", ""))
        for moment, reason, message in sorted(limits):
            if reason and moment <= self.now:
                return _failed(record, reason, message, at=self.now), None
        return None, min((moment for moment, _, _ in limits if moment > self.now), default=None)

    def _start_deadline(
        self, record: NodeRecord, inputs: NodeInputs, fact: Fact
    ) -> tuple[datetime, str, str]:
        """Return when a task that does not start fails its node, with reason and message.

        The reason is "" if only the time of the next report is known.
        """
        if record.reason not in _START_FAILURES or (
            fact.kind == UNEXPLAINED and record.reason != "TaskNotStarted"
        ):
            return self._report_at(fact), "", ""
        waiting = inputs.pod.container.reason if inputs.pod.container is not None else ""
        factor = (
            UNEXPLAINED_FACTOR if fact.kind == UNEXPLAINED else waiting not in PERMANENT_REASONS
        )
        limit = self._first_seen(fact) + timedelta(seconds=self.timeouts.start_seconds * factor)
        # A task that printed the token before its newest end has completed.
        limit = max(limit, self._decidable_at(record, inputs))
        return limit, _START_FAILURES[record.reason], record.message

    def _rule_action(self, code: int) -> str:
        """Return the action of the first rule with this exit code, `Retry` without a rule."""
        for rule in self.spec.failure_policy.rules:
            if code in rule.exit_codes:
                return rule.action
        return "Retry"


# Reasons of waiting nodes that become failures with time, and the reason of the failure.
_START_FAILURES: Final = {
    "ImagePullFailed": "ImagePullFailed",
    "ContainerStartFailed": "ContainerStartFailed",
    "PodRejected": "PodRejected",
    "TaskNotStarted": "ContainerStartFailed",
    "Unschedulable": "Unschedulable",
}

# Reasons for which a container is not created.
_CREATE_FAILURES: Final = frozenset({"ImagePullFailed", "ContainerStartFailed"})


def unreachable_reason(node: Node, blocking_taint: Taint | None) -> tuple[str, str]:
    """Return reason and message for a node that is not Ready or keeps its pod off."""
    if blocking_taint is not None and (node.ready or node.ready_changed_at is None):
        return (
            "NodeTainted",
            f"the node has the taint {blocking_taint.key}, which keeps its pod off",
        )
    assert node.ready_changed_at is not None
    return "NodeNotReady", f"the node has not been Ready since {format_time(node.ready_changed_at)}"


def _is_of_pod(record: NodeRecord, pod: Pod) -> bool:
    return record.pod_uid in {"", pod.uid}


def _attempts_before(record: NodeRecord, pod: Pod) -> int:
    """Return how often the task was started in pods before this one."""
    return record.attempts_in_earlier_pods if _is_of_pod(record, pod) else record.attempts


def _last_code(container: Container) -> int | None:
    return container.exit_code if container.exit_code is not None else container.last_exit_code


def _completed(record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
    evidence, container = inputs.evidence, inputs.pod.container
    assert evidence is not None
    if record.state == COMPLETED:
        return record
    own_pod = evidence.pod_uid in {"", inputs.pod.uid}
    started = container.started_at if own_pod and container is not None else None
    attempts = 1
    if own_pod and container is not None:
        # The record may be of an earlier pod: this one may have started and completed since.
        attempts = _attempts_before(record, inputs.pod) + container.restart_count + 1
    code = container.exit_code if own_pod and container is not None else None
    finished_at = f"{evidence.completed_at[:19]}Z"
    started_at = record.started_at or (format_time(started) if started else "")
    if started_at > finished_at:
        started_at = ""  # a later start of the container; when the completed one began is unknown
    return NodeRecord(
        uid=record.uid,
        state=COMPLETED,
        attempts=max(record.attempts, attempts),
        exit_code=code,
        started_at=started_at,
        finished_at=finished_at,
        pod_uid=evidence.pod_uid or inputs.pod.uid,
        retry=record.retry,
    )


def _failed(
    record: NodeRecord, reason: str, message: str, at: datetime | None = None
) -> NodeRecord:
    return replace(
        record,
        state=FAILED,
        reason=reason,
        message=single_line(message),
        finished_at=format_time(at) if at is not None else record.finished_at,
    )


# A message that ends with a line of the task's log.
_QUOTED_LINE: Final = re.compile(r": '.*'\Z", re.DOTALL)


def _with_last_line(record: NodeRecord, inputs: NodeInputs) -> NodeRecord:
    """Return the record with the last line of the task's log, which usually names the cause.

    It is added once. A kept pod is restarted and writes other lines, unrelated to this end.
    """
    evidence = inputs.evidence
    if evidence is None or not evidence.last_lines or evidence.pod_uid != record.pod_uid:
        return record
    if _QUOTED_LINE.search(record.message):
        return record
    line = f": '{single_line(evidence.last_lines[-1], 120)}'"
    return replace(record, message=record.message + line)


def _end_message(container: Container) -> str:
    code = _last_code(container)
    reason = container.reason if container.state == "terminated" else container.last_reason
    attempts = ended_count(container)
    tries = f"after {attempts} attempts" if attempts > 1 else "at the first attempt"
    cause = (
        f" ({single_line(reason, REASON_LIMIT)})"
        if reason not in {"", "Error", "Completed"}
        else ""
    )
    if code == 0:
        return f"exit 0 without the token {tries}"
    return f"exit {code}{cause} {tries}"
