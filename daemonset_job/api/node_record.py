"""The record of one node: an entry of `status.nodeStates` of a JobReport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.node_failure import FAILURE_SHAPE, NodeFailure, parse_failure
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.shape import NUMBER, STRING, TIME, fields, list_of
from daemonset_job.api.states import NodeState, parse_node_state
from daemonset_job.api.times import format_time, parse_whole_seconds

# The CRD's maximum of counts: they are int32.
COUNT_LIMIT: Final = 2**31 - 1
_COUNTS: Final = (
    "attempts",
    "attempts_in_earlier_pods",
    "finished_in_pod",
    "ignored_failures",
    "omitted_failures",
)
RECORD_SHAPE: Final = fields(
    uid=STRING,
    state=STRING,
    reason=STRING,
    message=STRING,
    attempts=NUMBER,
    attemptsInEarlierPods=NUMBER,
    finishedInPod=NUMBER,
    ignoredFailures=NUMBER,
    exitCode=NUMBER,
    startedAt=TIME,
    finishedAt=TIME,
    activeSince=TIME,
    podUID=STRING,
    observedRetry=STRING,
    failures=list_of(FAILURE_SHAPE),
    omittedFailures=NUMBER,
    revision=STRING,
    selection=STRING,
    observedRerun=STRING,
    earlierPods=list_of(STRING),
    nodeChangedAt=TIME,
    drainStartedAt=TIME,
    turnAt=TIME,
    step=NUMBER,
    setAsideAt=TIME,
)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What the controller recorded about one node: its state, and how it came to it.

    `attempts` counts starts of the task, `attempts_in_earlier_pods` those in pods before `pod_uid`.
    Of the starts in that pod `finished_in_pod` have finished, and of these `ignored_failures` had
    an exit code that a rule ignores. `active_since` is from when nodeDeadlineSeconds counts, by the
    controller's clock; the other times are the node's. `retry` is the Job's retry request at the
    time: a failure recorded under another one no longer holds. `failures` are the node's earlier
    ones, the newest last, and `omitted_failures` counts those before them. `node_changed_at` is
    when `spec.onSuccess` was done to the completed node, by the controller's clock.
    `drain_started_at` is when the drain of the node began by that clock, while it is being drained.
    Times have whole seconds. Counts are at most COUNT_LIMIT.

    `turn_at` is when the node got its turn in a rollout, None before it: it is written before the
    node may start. `step` is the step of the rollout in which it did. `set_aside_at` is since when
    the run does not wait for the node, which is unreachable.

    The others are for policy Continuous. `revision` is the one that the node runs or has run, and
    `selection` a hash of the selection that last chose it. `rerun` is the newest rerun request that
    it has followed. Evidence about `earlier_pods` no longer counts: the node is due again since.
    """

    uid: str
    state: NodeState
    reason: str = ""
    message: str = ""
    attempts: int = 0
    attempts_in_earlier_pods: int = 0
    finished_in_pod: int = 0
    ignored_failures: int = 0
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    active_since: datetime | None = None
    pod_uid: str = ""
    retry: str = ""
    failures: tuple[NodeFailure, ...] = ()
    omitted_failures: int = 0
    revision: str = ""
    selection: str = ""
    rerun: str = ""
    earlier_pods: tuple[str, ...] = ()
    node_changed_at: datetime | None = None
    drain_started_at: datetime | None = None
    turn_at: datetime | None = None
    step: int = 0
    set_aside_at: datetime | None = None

    def __post_init__(self) -> None:
        """Limit the counts to what the CRD takes."""
        if (
            self.attempts <= COUNT_LIMIT
            and self.attempts_in_earlier_pods <= COUNT_LIMIT
            and self.finished_in_pod <= COUNT_LIMIT
            and self.ignored_failures <= COUNT_LIMIT
            and self.omitted_failures <= COUNT_LIMIT
        ):
            return
        for name in _COUNTS:
            object.__setattr__(self, name, min(getattr(self, name), COUNT_LIMIT))

    @property
    def is_drained(self) -> bool:
        """Whether the drain of the node was over, and its gate not removed yet."""
        is_going_on = self.reason in {NodeReason.DRAINING, NodeReason.DRAIN_BLOCKED}
        return self.drain_started_at is not None and not is_going_on

    def has_failed(self, retry_request: str) -> bool:
        """Return whether the node has failed, and no other try was asked for since.

        A failure that was recorded under another retry request no longer holds.
        """
        return self.state == NodeState.FAILED and self.retry == retry_request

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out, but for what the CRD requires."""
        raw = {
            "reason": self.reason,
            "message": self.message,
            "attempts": self.attempts,
            "attemptsInEarlierPods": self.attempts_in_earlier_pods,
            "finishedInPod": self.finished_in_pod,
            "ignoredFailures": self.ignored_failures,
            "startedAt": self.started_at and format_time(self.started_at),
            "finishedAt": self.finished_at and format_time(self.finished_at),
            "activeSince": self.active_since and format_time(self.active_since),
            "durationSeconds": self.duration_seconds,
            "podUID": self.pod_uid,
            "observedRetry": self.retry,
            "failures": [failure.to_raw() for failure in self.failures],
            "omittedFailures": self.omitted_failures,
            "revision": self.revision,
            "selection": self.selection,
            "observedRerun": self.rerun,
            "earlierPods": list(self.earlier_pods),
            "nodeChangedAt": self.node_changed_at and format_time(self.node_changed_at),
            "drainStartedAt": self.drain_started_at and format_time(self.drain_started_at),
            "turnAt": self.turn_at and format_time(self.turn_at),
            "step": self.step,
            "setAsideAt": self.set_aside_at and format_time(self.set_aside_at),
        }
        kept: dict[str, Any] = {"uid": self.uid, "state": self.state}
        kept.update({key: value for key, value in raw.items() if value})
        if self.exit_code is not None:
            kept["exitCode"] = self.exit_code
        return kept

    @property
    def duration_seconds(self) -> int:
        """Whole seconds from start to finish, 0 when either is unknown."""
        if self.started_at is None or self.finished_at is None:
            return 0
        return max(int((self.finished_at - self.started_at).total_seconds()), 0)


def parse_record(raw: Mapping[str, Any]) -> NodeRecord:
    """Return one node's record. Never raises for RECORD_SHAPE."""
    return NodeRecord(
        uid=raw.get("uid") or "",
        state=parse_node_state(raw.get("state")),
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        attempts=raw.get("attempts") or 0,
        attempts_in_earlier_pods=raw.get("attemptsInEarlierPods") or 0,
        finished_in_pod=raw.get("finishedInPod") or 0,
        ignored_failures=raw.get("ignoredFailures") or 0,
        exit_code=raw.get("exitCode"),
        started_at=parse_whole_seconds(raw.get("startedAt")),
        finished_at=parse_whole_seconds(raw.get("finishedAt")),
        active_since=parse_whole_seconds(raw.get("activeSince")),
        pod_uid=raw.get("podUID") or "",
        retry=raw.get("observedRetry") or "",
        failures=tuple(parse_failure(each) for each in raw.get("failures") or ()),
        omitted_failures=raw.get("omittedFailures") or 0,
        revision=raw.get("revision") or "",
        selection=raw.get("selection") or "",
        rerun=raw.get("observedRerun") or "",
        earlier_pods=tuple(raw.get("earlierPods") or ()),
        node_changed_at=parse_whole_seconds(raw.get("nodeChangedAt")),
        drain_started_at=parse_whole_seconds(raw.get("drainStartedAt")),
        turn_at=parse_whole_seconds(raw.get("turnAt")),
        step=raw.get("step") or 0,
        set_aside_at=parse_whole_seconds(raw.get("setAsideAt")),
    )
