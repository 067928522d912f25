"""A plan: actions in order, events to send afterwards, and when to reconcile again.

Actions are executed one after the other. The first failure ends the reconcile, and the next one
decides again from the state it finds. So every prefix of a plan must lead to the same end: that is
why the order of actions matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, Literal, assert_never

from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.node_changes import NodeChange
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.pod import Pod
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import FINAL_PHASES, ConditionType
from job_controller.core.drain_actions import (
    CordonNodes,
    DrainAction,
    DryRunCordon,
    EvictPods,
    UncordonNodes,
)
from job_controller.core.job_actions import CreateJob, DeleteJob, OwnedJobAction
from job_controller.core.sources import SourceQuery


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the Job's status, if no client has changed the Job since (resourceVersion)."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class CreateReport:
    """Create a JobReport; one that exists already counts as created."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WriteReportStatus:
    """Write the status of a JobReport, the controller's half of it."""

    name: str
    uid: str
    status: ReportStatus


@dataclass(frozen=True, slots=True)
class DryRunDaemonSet:
    """Ask the API server whether it would accept the DaemonSet; nothing is created."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApplyDaemonSet:
    """Apply the DaemonSet; `uid` is that of the one to change, "" to create one.

    `takes_ownership`: fields that other clients added to its spec are removed. `why` is for the
    log, "" for what is repeated again and again.
    """

    body: Mapping[str, Any]
    uid: str = ""
    takes_ownership: bool = False
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CreatePodsAgain:
    """Have the DaemonSet controller create refused pods: it acts at once on any change.

    The change is an annotation of the DaemonSet with this `uid`: how often events were read.
    """

    uid: str
    reads: int


@dataclass(frozen=True, slots=True)
class RemoveSchedulingGates:
    """Let these pods be scheduled, except on nodes that have completed by now (node UID by name).

    The ledger is read again before: a cache that is out of date must not make a node do its work
    twice.
    """

    pods: tuple[Pod, ...]
    node_uids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete pods that must not stay: of an earlier try, of a failed node, or surplus.

    Only pods that are still the same ones (UID) are deleted. `why` is for the log, by UID.
    """

    pods: tuple[Pod, ...]
    why: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class DryRunNodeChange:
    """Ask the API server whether nodes may be changed so; nothing is changed."""

    change: NodeChange


@dataclass(frozen=True, slots=True)
class ChangeNodes:
    """Change completed nodes as `spec.onSuccess` says. A node that is changed already stays."""

    changes: tuple[NodeChange, ...]


@dataclass(frozen=True, slots=True)
class DeleteDaemonSet:
    """Delete the DaemonSet which has this `uid`, and with it its pods; `why` is for the log."""

    uid: str
    why: str = field(
        default="the run failed, and failurePolicy.pods ends all of its tasks", compare=False
    )


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """Delete a JobReport of a run whose start is taken back, by UID."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CheckJobUnchanged:
    """Fail if the Job has changed since it was read, by a new read of the API server."""


@dataclass(frozen=True, slots=True)
class CheckNoPodMayStart:
    """Fail unless each pod of the Job waits at its gate, by a new read of the API server.

    Nor may its DaemonSet create others, or a pod be without an owner: the next DaemonSet would
    adopt it. With `is_taken_back`, one that is being deleted may be there: no DaemonSet adopts it.
    The DaemonSet of the start that was taken back has to be gone then.
    """

    is_taken_back: bool = False


Action = (
    WriteStatus
    | CreateReport
    | WriteReportStatus
    | DryRunDaemonSet
    | ApplyDaemonSet
    | CreatePodsAgain
    | RemoveSchedulingGates
    | DeletePods
    | DeleteDaemonSet
    | DeleteReport
    | CheckJobUnchanged
    | CheckNoPodMayStart
    | DryRunNodeChange
    | ChangeNodes
    | DrainAction
    | OwnedJobAction
)


class RefusedWrite(Enum):
    """A kind of write that the API server may refuse, independently of the others."""

    DAEMON_SET = auto()
    REPORT = auto()
    GATE_REMOVAL = auto()
    DELETION = auto()  # of pods, or of a failed run's DaemonSet
    NODE_CHANGE = auto()
    CORDON = auto()  # and the end of one, and evictions
    OWNED_JOB = auto()
    OWNED_JOB_NAME = auto()  # another Job has the name


def refused_write(action: Action) -> RefusedWrite | None:  # noqa: PLR0911 - one for each kind
    """Return the kind of write that an action is, None if its refusal is never recorded."""
    match action:
        case DryRunDaemonSet() | ApplyDaemonSet() | CreatePodsAgain():
            return RefusedWrite.DAEMON_SET
        case CreateReport() | WriteReportStatus() | DeleteReport():
            return RefusedWrite.REPORT
        case RemoveSchedulingGates():
            return RefusedWrite.GATE_REMOVAL
        case DeletePods() | DeleteDaemonSet():
            return RefusedWrite.DELETION
        case DryRunNodeChange() | ChangeNodes():
            return RefusedWrite.NODE_CHANGE
        case DryRunCordon() | CordonNodes() | UncordonNodes() | EvictPods():
            return RefusedWrite.CORDON
        case CreateJob() | DeleteJob():
            return RefusedWrite.OWNED_JOB
        case WriteStatus() | CheckJobUnchanged() | CheckNoPodMayStart():
            return None  # only the status itself could show it
        case _ as unreachable:
            assert_never(unreachable)


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the Job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodQuery:
    """Which pods a check asks about: those of the Job's namespace that `selector` selects.

    `selector` is a label selector as the API takes it. `nodes` are the names of the nodes that
    matter; pods of other nodes are not counted.
    """

    selector: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of a decision. `requeue_after` in seconds, None when only a change matters.

    `is_urgent`: it records a fact that cannot be seen later, so it is written at once.
    `has_missing_pods`: pods of the DaemonSet do not exist without a known reason. Its events may
    have one. `unexplained_pod` is the UID of a pod that does not start without a known reason, ""
    without one. `pod_query` says which pods a check of the rollout asks about, and `source_queries`
    what it asks of sources. `has_preview`: it shows a preview, which is made again after a while.
    """

    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
    is_urgent: bool = False
    has_missing_pods: bool = False
    unexplained_pod: str = ""
    pod_query: PodQuery | None = None
    source_queries: tuple[SourceQuery, ...] = ()
    has_preview: bool = False


_DEFERRABLE_WITH: Final = (
    WriteStatus,
    CreateReport,
    WriteReportStatus,
    ApplyDaemonSet,
    CreatePodsAgain,
    ChangeNodes,
)


def defer_progress_writes(plan: Plan, old: JobStatus, seconds: float) -> Plan:
    """Return the plan without status and report writes that show nothing but progress.

    `old` is the Job's current status. The dropped writes are due again in `seconds`. A plan that is
    urgent, touches pods, or records the end of the run, a failure or an unreachable node is
    returned unchanged. Of any other plan the report writes are dropped. The status write is dropped
    too if only its counts of waiting, active and completed nodes change.
    """
    if plan.is_urgent or not all(isinstance(action, _DEFERRABLE_WITH) for action in plan.actions):
        return plan
    new = next((a.status for a in plan.actions if isinstance(a, WriteStatus)), old)
    tells = _visible_status(new) != _visible_status(old)
    if _terminal_fields(new) != _terminal_fields(old) or (plan.events and not tells):
        return plan
    waiting = (WriteReportStatus,) if tells else (WriteReportStatus, WriteStatus)
    actions = tuple(action for action in plan.actions if not isinstance(action, waiting))
    if len(actions) == len(plan.actions):
        return plan
    again = seconds if plan.requeue_after is None else min(seconds, plan.requeue_after)
    return replace(plan, actions=actions, requeue_after=again)


def _visible_status(status: JobStatus) -> JobStatus:
    """Return a Job's status without the fields that change with every node's progress."""
    conditions = tuple(replace(condition, message="") for condition in status.conditions)
    nodes = _without_progress(status.nodes)
    return replace(status, nodes=nodes, conditions=conditions, progress="", lowest_progress="")


def _terminal_fields(status: JobStatus) -> tuple[object, ...]:
    """Return the end of the run in a Job's status, and its failed and unreachable nodes."""
    ends = {
        condition.type: condition.status
        for condition in status.conditions
        if condition.type in {ConditionType.COMPLETE, ConditionType.FAILED}
    }
    lost = replace(_without_progress(status.nodes), desired=0)
    return status.phase in FINAL_PHASES, status.completion_time, ends, lost


def _without_progress(nodes: NodeTotals | None) -> NodeTotals:
    """Return the totals without those that change in a run without failures.

    Skipped nodes are among them: a client that may taint nodes can change them at any rate.
    """
    if nodes is None:
        return NodeTotals()
    progress = replace(nodes, waiting=0, active=0, completed=0, completed_names="")
    return replace(progress, skipped=0, skipped_names="")
