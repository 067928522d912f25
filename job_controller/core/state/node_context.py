"""What the state of one node is found from: the node, its pod, and what holds for the whole run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from daemonset_job.api.choices import CompletionMode, RuleAction
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from daemonset_job.api.taints import Taint
from job_controller.core.settings import Timeouts
from job_controller.core.state.causes import has_started
from job_controller.core.state.evictions import NodeDrain
from job_controller.core.state.first_seen import Fact, Sightings


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """What is known about one desired node; `pod` is its current pod.

    `blocking_taint` is the taint of a node condition that keeps the pod from being scheduled.
    `drain` is what has yet to leave the node, None if that is not known.
    """

    node: Node
    pod: Pod
    evidence: Evidence | None = None
    record: NodeRecord | None = None
    blocking_taint: Taint | None = None
    drain: NodeDrain | None = None

    @property
    def own_record(self) -> NodeRecord | None:
        """The record if it is about this node, by its UID."""
        if self.record is None or self.record.uid != self.node.uid:
            return None
        return self.record


@dataclass(frozen=True, slots=True)
class RunContext:
    """What holds for all nodes of a Job: its spec, its retry request, the timeouts, the time.

    `seen` is when the controller first saw the start of each timer, see `first_seen`. `ended_at` is
    when the run ended by the controller's clock, None while it has not. `failed_mount`: see
    `Snapshot`. `observed_retry` is the request before `retry` until the status has that.
    `is_suspended`: no further node may start, see `Job`.
    """

    spec: JobSpec
    retry: str
    timeouts: Timeouts
    now: datetime
    seen: Sightings = field(default_factory=dict)
    ended_at: datetime | None = None
    failed_mount: tuple[str, str] = ("", "")
    observed_retry: str | None = None
    is_suspended: bool = False

    @property
    def unreachable_seconds(self) -> float:
        """For how long a node may be not Ready before it counts as unreachable."""
        own = self.spec.node_unreachable_seconds
        return self.timeouts.unreachable_seconds if own is None else own

    def first_seen(self, fact: Fact) -> datetime:
        """Return when the controller first saw this, `now` for the first time."""
        sighting = self.seen.get(fact)
        return sighting.first if sighting is not None else self.now

    def is_success(self, code: int | None) -> bool:
        """Return whether this exit code means success in the Job's completion mode."""
        return code == 0 and self.spec.completion.mode == CompletionMode.EXIT

    def ignores(self, code: int | None) -> bool:
        """Return whether an end with this exit code does not count as a failure.

        One whose code is unknown (None) does not count if any rule ignores failures.
        """
        if code is not None:
            return self.spec.failure_policy.rule_action(code) == RuleAction.IGNORE
        return any(rule.action == RuleAction.IGNORE for rule in self.spec.failure_policy.rules)

    def was_recorded_as(self, inputs: NodeInputs, what: str) -> bool:
        """Return whether the node's record has that state or reason."""
        known = inputs.own_record
        return (
            known is not None and known.retry == self.retry and what in {known.state, known.reason}
        )

    def was_unreachable(self, inputs: NodeInputs) -> bool:
        """Return whether the node was recorded as unreachable since the latest retry request.

        A pod from before that request keeps the earlier one in its record. The first pass that
        knows of the request gives the node its time, and the status has the request after that.
        """
        known = inputs.own_record
        if known is None or known.state != NodeState.UNREACHABLE:
            return False
        return self.retry in {known.retry, self.observed_retry}

    def predates_retry(self, inputs: NodeInputs) -> bool:
        """Return whether the pod's record was written before the latest retry request.

        A task that had started when the request came may have no record yet.
        """
        known = inputs.own_record
        if known is None:
            is_new = self.observed_retry is not None and self.observed_retry != self.retry
            return is_new and has_started(inputs.pod)
        return known.pod_uid == inputs.pod.uid and known.retry != self.retry


def is_of_pod(record: NodeRecord, pod: Pod) -> bool:
    """Return whether the record is about this pod, or about none."""
    return record.pod_uid in {"", pod.uid}


def attempts_before(record: NodeRecord, pod: Pod) -> int:
    """Return how often the task was started in pods before this one."""
    return record.attempts_in_earlier_pods if is_of_pod(record, pod) else record.attempts
