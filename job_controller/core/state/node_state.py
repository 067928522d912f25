"""Where one node stands: from its pod, the ledger and what was recorded of it before.

A node's story only goes forward. Completed is for ever; failed holds until somebody asks for
another try; what is not the task's fault (an eviction, a node that cannot be reached) is neither.
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
from job_controller.core.settings import Patience
from job_controller.core.state.causes import (
    HOPELESS_REASONS,
    ended_count,
    find_cause,
    find_disruption,
    has_started,
    is_awaited,
    is_backing_off,
)
from job_controller.core.state.sightings import (
    SILENT,
    Fact,
    Sightings,
    ended,
    failed,
    not_ready,
    not_starting,
    rejected,
)
from job_controller.core.text.sanitize import brief

WAITING: Final = "Waiting"
ACTIVE: Final = "Active"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
UNREACHABLE: Final = "Unreachable"
STATES: Final = (WAITING, ACTIVE, COMPLETED, FAILED, UNREACHABLE)

# A task that printed the token and then exited has completed. So its exit is judged only when the
# terminator has had the time to read the log and to enter the token: LEDGER_GRACE after the
# controller saw the exit if the ledger says that the log of this attempt was read to its end, else
# ABSENT_GRACE, which is longer than a terminator takes to restart and to get its lease (15 s).
LEDGER_GRACE: Final = timedelta(seconds=5)
ABSENT_GRACE: Final = timedelta(seconds=30)
# What is quoted of a reason that a container runtime gives for the end of a container.
REASON_LIMIT: Final = 64
# The time between a node's failure and its last lines being in the ledger: its pod, if it is not
# to be kept, goes after that.
LINES_GRACE: Final = timedelta(seconds=10)
# A pod on its node whose task has not started by then, without a known cause, is told about. An
# image that is being pulled shows in the same way, so such a node fails late: after SILENT_FACTOR
# times the start patience.
TOLD_AFTER: Final = timedelta(seconds=45)
SILENT_FACTOR: Final = 3


@dataclass(frozen=True, slots=True)
class Case:
    """What is known about one wanted node; `pod` is the one that stands for it.

    `held_by` is the taint by which a condition of the node keeps the pod from being scheduled.
    """

    node: Node
    pod: Pod
    evidence: Evidence | None = None
    record: NodeRecord | None = None
    held_by: Taint | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node's record as it should be, and what follows from it.

    `wake_at`: when time alone may change it. `retire`: the pod belongs to a try that is over and
    has to go for the next one to start; the node counts as waiting for that one meanwhile.
    `discard`: the pod of a failed node has nothing more to tell, and is not to be kept.
    """

    record: NodeRecord
    wake_at: datetime | None = None
    retire: bool = False
    discard: bool = False


@dataclass(frozen=True, slots=True)
class Court:
    """What holds for all nodes of a Job: its spec, its retry token, the patience, the time.

    `seen` is when the controller first saw what timers count from, see `sightings`. `ended_at` is
    when the run ended by the controller's clock, None while it has not.
    """

    spec: JobSpec
    retry: str
    patience: Patience
    now: datetime
    seen: Sightings = field(default_factory=dict)
    ended_at: datetime | None = None

    def judge(self, case: Case) -> Verdict:
        """Return where the node stands now."""
        record = self._known(case)
        if case.evidence is not None and case.evidence.is_completed:
            return Verdict(_completed(record, case))
        if record.state == FAILED and record.retry == self.retry:
            return self._lasting(_with_last_line(record, case), case)
        if record.state == FAILED and record.pod_uid == case.pod.uid:
            return Verdict(record, retire=True)
        if record.retry != self.retry and (
            record.state == FAILED or not _is_about(record, case.pod)
        ):
            # The first pod since the retry: nothing counts from before, but how often it was tried.
            record = NodeRecord(
                uid=record.uid,
                state=WAITING,
                attempts=record.attempts,
                pod_uid=record.pod_uid,
                retry=self.retry,
            )
        return self._current(self._observed(record, case), case)

    def _current(self, record: NodeRecord, case: Case) -> Verdict:
        """Return where a node stands that neither completed nor failed before."""
        failure, ripe_at = self._failure(record, case)
        if (failure is not None or ripe_at is not None) and self._is_from_before(case):
            record = self._from_before(record, case)
            if failure is not None:
                return Verdict(record, retire=True)
        if failure is not None:
            return Verdict(_with_last_line(failure, case))
        lost, lost_at = self._unreachable(record, case)
        if lost is not None:
            return Verdict(lost)
        late, late_at = self._late_failure(record, case)
        if late is not None and self._is_from_before(case):
            return Verdict(self._from_before(record, case), retire=True)
        moments = [moment for moment in (ripe_at, lost_at, late_at) if moment is not None]
        return Verdict(late or record, wake_at=min(moments, default=None))

    @staticmethod
    def _from_before(record: NodeRecord, case: Case) -> NodeRecord:
        """Return the record of a node that failed before the retry that was asked for last.

        It was not on record as failed yet: the next pod of the node is the one to be tried.
        """
        assert case.record is not None
        return replace(record, retry=case.record.retry)

    def _lasting(self, record: NodeRecord, case: Case) -> Verdict:
        """Return the verdict on a node whose failure is on record, and on its pod.

        The kubelet starts the task in a kept pod again and again. Where the pods of failures are
        not wanted, it goes as soon as its last lines are known: its successor waits at the gate.
        """
        unwanted = self.spec.failure_policy.pods == "Delete" and record.pod_uid == case.pod.uid
        if not unwanted:
            return Verdict(record)
        evidence = case.evidence
        told = evidence is not None and evidence.pod_uid == case.pod.uid
        ripe = self._first_seen(failed(case.node)) + LINES_GRACE
        if self.ended_at is not None:
            # On record, so that a restart of the controller does not begin the time again.
            ripe = min(ripe, self.ended_at + LINES_GRACE)
        if told or self.now >= ripe:
            return Verdict(record, discard=True)
        return Verdict(record, wake_at=ripe)

    def _first_seen(self, fact: Fact) -> datetime:
        """Return when the controller first saw this, which is now if it did not before."""
        sighting = self.seen.get(fact)
        return sighting.first if sighting is not None else self.now

    def _known(self, case: Case) -> NodeRecord:
        record = case.record
        if record is None or record.uid != case.node.uid:
            return NodeRecord(uid=case.node.uid, state=WAITING, retry=self.retry)
        return record

    def _observed(self, record: NodeRecord, case: Case) -> NodeRecord:
        """Return the record with what the pod shows: started or not, attempts, exit code."""
        pod, container = case.pod, case.pod.container
        same_pod = _is_about(record, pod)
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
            reason, message = self._why_waiting(case)
            if record.reason == "PodRejected" and self._is_next(reason, case):
                # The next pod of a node whose kubelet rejects them all.
                reason, message = record.reason, record.message
            return replace(base, reason=reason, message=message)
        code, count = _last_code(container), ended_count(container)
        newly = count - base.finished_in_pod
        # The kubelet keeps the last exit only: starts that nobody saw end count as it did. With
        # its back-off of ten seconds and more they are few.
        ignored = newly if newly > 0 and code is not None and self._action(code) == "Ignore" else 0
        failing = count > 0 and not self._is_success(code)
        started = container.started_at or pod.started_at
        reason, message = self._why_not_again(record, case, count)
        if not reason and failing:
            reason, message = "Restarting", _end_words(container)
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

    def _is_next(self, reason: str, case: Case) -> bool:
        """Return whether a pod follows one that was rejected, and has yet to show anything."""
        was_rejected = rejected(case.node, self.retry) in self.seen
        return not reason or (was_rejected and reason == "SchedulingGated")

    def _why_waiting(self, case: Case) -> tuple[str, str]:
        """Return reason and message for what keeps the task from starting, "" for nothing."""
        cause = find_cause(case.pod)
        return (cause.reason, cause.message) if cause is not None else self._why_silent(case)

    def _why_not_again(self, record: NodeRecord, case: Case, count: int) -> tuple[str, str]:
        """Return reason and message for what keeps a task that has ended from starting again."""
        pod = case.pod
        if disruption := find_disruption(pod):
            return disruption.reason, disruption.message
        if is_awaited(pod):
            return self._why_waiting(case)
        is_same = record.pod_uid == pod.uid and record.finished_in_pod == count
        if is_backing_off(pod) and is_same and record.reason in _NOT_CREATED:
            # The kubelet backs off between two attempts to create the container.
            return record.reason, record.message
        return "", ""

    def _was(self, case: Case, what: str) -> bool:
        """Return whether the node is on record in that state, or for that reason."""
        known = case.record
        return (
            known is not None
            and known.uid == case.node.uid
            and known.retry == self.retry
            and what in {known.state, known.reason}
        )

    def _is_from_before(self, case: Case) -> bool:
        """Return whether the pod's record was written before the retry that was asked for last."""
        known = case.record
        return (
            known is not None
            and known.uid == case.node.uid
            and known.pod_uid == case.pod.uid
            and known.retry != self.retry
        )

    def _active_since(self, record: NodeRecord, pod: Pod) -> str:
        """Return from when the node's deadline counts, by the controller's clock; "" for not yet.

        On record only for Jobs that have such a deadline: it has to survive the controller.
        """
        if self.spec.node_deadline_seconds is None or pod.started_at is None:
            return record.active_since
        # Of pods that went before they had started anything, nothing counts.
        has_begun = record.active_since and (record.attempts > 0 or _is_about(record, pod))
        return record.active_since if has_begun else format_time(self.now)

    def _why_silent(self, case: Case) -> tuple[str, str]:
        """Return reason and message for a task that does not start, and nobody says why."""
        pod, fact = case.pod, self._not_starting(case)
        if fact is None or fact.what != SILENT:
            return "", ""
        if self.now < self._told_at(fact) and not self._was(case, "TaskNotStarted"):
            return "", ""
        state = pod.container.reason if pod.container is not None else ""
        again = " again" if has_started(pod) else ""
        words = (
            f"the pod is on its node and its task has not started{again} ({state or 'no status'}): "
            "a large image, or a volume that cannot be mounted; see `kubectl describe pod`"
        )
        return "TaskNotStarted", words

    def _not_starting(self, case: Case) -> Fact | None:
        """Return which fact keeps the task from starting, if the start patience counts from one."""
        if case.held_by is not None:
            return None
        return not_starting(case.node, case.pod, self.retry, self.seen)

    def _told_at(self, silent: Fact) -> datetime:
        """Return when it is time to say that a task has not started, for a reason nobody gives."""
        return self._first_seen(silent) + min(TOLD_AFTER, timedelta(seconds=self.patience.start))

    def _is_success(self, code: int | None) -> bool:
        """Return whether a task that ended so has done its work, by the Job's own measure."""
        return code == 0 and self.spec.completion.mode == "Exit"

    def _failure(self, record: NodeRecord, case: Case) -> tuple[NodeRecord | None, datetime | None]:
        """Return the record of a failure of the task, or None and when there may be one."""
        pod, evidence = case.pod, case.evidence
        if evidence is not None and evidence.failed_at and evidence.pod_uid == pod.uid:
            failed = _failed(record, "FailureToken", "printed the failure token")
            return replace(failed, finished_at=f"{evidence.failed_at[:19]}Z"), None
        container = pod.container
        code = record.exit_code
        if container is None or code is None or record.state != ACTIVE:
            return None, None
        if self._is_success(code) or not record.finished_in_pod or pod.is_disrupted:
            # A disruption is not the task's fault: the DaemonSet controller makes another pod.
            return None, None
        fatal = self._action(code) == "Fail"
        if (
            not fatal
            and record.finished_in_pod - record.ignored_failures <= self.spec.backoff_limit
        ):
            return None, None
        finished = container.finished_at or container.last_finished_at
        ripe = self._ripe_at(record, case)
        if self.now < ripe:
            return None, ripe
        reason = "FailurePolicyRule" if fatal else "BackoffLimitExceeded"
        return _failed(record, reason, _end_words(container), at=finished), None

    def _ripe_at(self, record: NodeRecord, case: Case) -> datetime:
        """Return when the newest end of the task may be judged: a token in its log comes first."""
        if self.spec.completion.mode != "Log" or not record.finished_in_pod:
            return self.now
        pod, evidence = case.pod, case.evidence
        was_read = (
            evidence is not None
            and evidence.pod_uid == pod.uid
            and evidence.attempt >= record.finished_in_pod
        )
        sighting = self.seen.get(ended(pod, record.finished_in_pod))
        if sighting is not None:
            seen_at = sighting.first
        else:
            # It is on record from before this process, and the pod no longer shows it.
            ours = (known.first for fact, known in self.seen.items() if fact.uid == pod.uid)
            seen_at = min(ours, default=self.now)
        return seen_at + (LEDGER_GRACE if was_read else ABSENT_GRACE)

    def _unreachable(
        self, record: NodeRecord, case: Case
    ) -> tuple[NodeRecord | None, datetime | None]:
        """Return the record of a node that is not Ready for too long, or None and from when on.

        A node that is on record as unreachable stays so until it is Ready, whatever this process
        has seen of it. A Ready node whose condition keeps the pod off is as good as not Ready.
        """
        node = case.node
        if case.held_by is None and (node.ready or node.ready_since is None):
            return None, None
        limit = self._first_seen(not_ready(node, self.retry)) + timedelta(
            seconds=self.patience.unreachable
        )
        if self.now < limit and not self._was(case, UNREACHABLE):
            return None, limit
        reason, message = why_unreachable(node, case.held_by)
        return replace(record, state=UNREACHABLE, reason=reason, message=message), None

    def _late_failure(
        self, record: NodeRecord, case: Case
    ) -> tuple[NodeRecord | None, datetime | None]:
        """Return a failure by time: the node's deadline, or what keeps a task from starting."""
        limits: list[tuple[datetime, str, str]] = []
        seconds, pod = self.spec.node_deadline_seconds, case.pod
        began = parse_time(record.active_since)
        if seconds is not None and began is not None and not pod.is_gated:
            limits.append(
                (
                    began + timedelta(seconds=seconds),
                    "DeadlineExceeded",
                    f"not completed within nodeDeadlineSeconds ({seconds} s)",
                )
            )
        if (fact := self._not_starting(case)) is not None:
            limits.append(self._start_limit(record, case, fact))
        elif pod.is_gated and (before := self.seen.get(rejected(case.node, self.retry))):
            limits.append((before.forgotten_at or self.now, "", ""))
        for moment, reason, message in sorted(limits):
            if reason and moment <= self.now:
                return _failed(record, reason, message, at=self.now), None
        return None, min((moment for moment, _, _ in limits if moment > self.now), default=None)

    def _start_limit(self, record: NodeRecord, case: Case, fact: Fact) -> tuple[datetime, str, str]:
        """Return when a task that does not start fails its node, with reason and message.

        Without a reason: when to look again, since it is time to tell.
        """
        if record.reason not in _START_FAILURES or (
            fact.what == SILENT and record.reason != "TaskNotStarted"
        ):
            return self._told_at(fact), "", ""
        waiting = case.pod.container.reason if case.pod.container is not None else ""
        factor = SILENT_FACTOR if fact.what == SILENT else waiting not in HOPELESS_REASONS
        limit = self._first_seen(fact) + timedelta(seconds=self.patience.start * factor)
        # A task that printed the token before its newest end has completed.
        limit = max(limit, self._ripe_at(record, case))
        return limit, _START_FAILURES[record.reason], record.message

    def _action(self, code: int) -> str:
        """Return what the first rule with this exit code says, `Retry` when none has it."""
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
_NOT_CREATED: Final = frozenset({"ImagePullFailed", "ContainerStartFailed"})


def why_unreachable(node: Node, held_by: Taint | None) -> tuple[str, str]:
    """Return reason and message of a node that is not Ready, or that a taint keeps the pod off."""
    if held_by is not None and (node.ready or node.ready_since is None):
        return "NodeTainted", f"the node has the taint {held_by.key}, which keeps its pod off"
    assert node.ready_since is not None
    return "NodeNotReady", f"the node has not been Ready since {format_time(node.ready_since)}"


def _is_about(record: NodeRecord, pod: Pod) -> bool:
    return record.pod_uid in {"", pod.uid}


def _attempts_before(record: NodeRecord, pod: Pod) -> int:
    """Return how often the task was started in pods before this one."""
    return record.attempts_in_earlier_pods if _is_about(record, pod) else record.attempts


def _last_code(container: Container) -> int | None:
    return container.exit_code if container.exit_code is not None else container.last_exit_code


def _completed(record: NodeRecord, case: Case) -> NodeRecord:
    evidence, container = case.evidence, case.pod.container
    assert evidence is not None
    if record.state == COMPLETED:
        return record
    own_pod = evidence.pod_uid in {"", case.pod.uid}
    started = container.started_at if own_pod and container is not None else None
    attempts = 1
    if own_pod and container is not None:
        # The pod may have started and completed since the record was made, of a pod before it.
        attempts = _attempts_before(record, case.pod) + container.restart_count + 1
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
        pod_uid=evidence.pod_uid or case.pod.uid,
        retry=record.retry,
    )


def _failed(
    record: NodeRecord, reason: str, message: str, at: datetime | None = None
) -> NodeRecord:
    return replace(
        record,
        state=FAILED,
        reason=reason,
        message=brief(message),
        finished_at=format_time(at) if at is not None else record.finished_at,
    )


# A message that ends with a line of the task's log.
_QUOTED: Final = re.compile(r": '.*'\Z", re.DOTALL)


def _with_last_line(record: NodeRecord, case: Case) -> NodeRecord:
    """Return the record with the last line that the task wrote, which usually says why.

    Once only: a kept pod is started again and writes other lines, which say nothing of this end.
    """
    evidence = case.evidence
    if evidence is None or not evidence.last_lines or evidence.pod_uid != record.pod_uid:
        return record
    if _QUOTED.search(record.message):
        return record
    line = f": '{brief(evidence.last_lines[-1], 120)}'"
    return replace(record, message=record.message + line)


def _end_words(container: Container) -> str:
    code = _last_code(container)
    reason = container.reason if container.state == "terminated" else container.last_reason
    attempts = ended_count(container)
    tries = f"after {attempts} attempts" if attempts > 1 else "at the first attempt"
    cause = f" ({brief(reason, REASON_LIMIT)})" if reason not in {"", "Error", "Completed"} else ""
    if code == 0:
        return f"exit 0 without the token {tries}"
    return f"exit {code}{cause} {tries}"
