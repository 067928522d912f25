"""What a decision is: actions in order, events to tell afterwards, and when to look again.

Actions are carried out one after the other; the first that fails ends the pass, and the next
pass decides anew from what then stands. So every prefix of a plan must be a state from which
the same end is reached: that is what the order of actions within a plan is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from daemonset_job.api import names
from daemonset_job.api.objects import Pod


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the Job's status, provided nobody has changed the Job since (resourceVersion)."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreateReport:
    """Create a JobReport; one that is there already counts as created."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WriteReportStatus:
    """Write the status of a JobReport, the controller's half of it."""

    name: str
    uid: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DryRunDaemonSet:
    """Ask the API server whether it would take the DaemonSet; nothing is made."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApplyDaemonSet:
    """Apply the DaemonSet; `uid` is that of the one to change, "" when it is to be made.

    `takes_ownership`: what other clients have put into its spec is removed with it.
    """

    body: Mapping[str, Any]
    uid: str = ""
    takes_ownership: bool = False


@dataclass(frozen=True, slots=True)
class RemoveSchedulingGates:
    """Let these pods be scheduled, but for nodes that the ledger holds by now (node UID by name).

    Whoever carries this out reads the ledger again first: a cache that lags behind must not
    make a node do its work twice.
    """

    pods: tuple[Pod, ...]
    node_uids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete these pods, provided they are still the same ones (UID): their try is over."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class DeleteDaemonSet:
    """Delete the DaemonSet of a failed run and with it its pods; `uid` says which one."""

    uid: str


Action = (
    WriteStatus
    | CreateReport
    | WriteReportStatus
    | DryRunDaemonSet
    | ApplyDaemonSet
    | RemoveSchedulingGates
    | DeletePods
    | DeleteDaemonSet
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the Job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of a decision. `requeue_after` in seconds, None when only a change matters.

    `is_urgent`: what it records cannot be seen later, so it is written at once. `has_missing_pods`: pods
    of the DaemonSet do not exist, and nothing that is known says why; events about it may.
    """

    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
    is_urgent: bool = False
    has_missing_pods: bool = False


# What of `status.nodes` may change as a run gets on without anything having gone wrong.
_PROGRESS_FIELDS: Final = frozenset({"waiting", "active", "completed", "completedNames"})
_DEFERRABLE_WITH: Final = (WriteStatus, CreateReport, WriteReportStatus, ApplyDaemonSet)


def defer_progress_writes(plan: Plan, old: Mapping[str, Any], seconds: float) -> Plan:
    """Return the plan without the records that only tell that the run gets on, for later.

    `old` is the Job's status as it stands, `seconds` how long such records may wait; what they say
    is found again by any later pass. A plan that is urgent or touches pods, or that tells the end
    of the run or a node that failed or is lost, is returned as it is: the report must say so first.
    Of any other plan the reports wait, and the status too if it says nothing more than how many
    nodes wait, work and have completed.
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


def _visible_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Job's status without what changes with every node that gets on."""
    conditions = [
        {k: v for k, v in condition.items() if k != "message"}
        for condition in status.get("conditions") or ()
    ]
    return {**status, "nodes": _problem_counts(status), "conditions": conditions}


def _terminal_fields(status: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a Job's status says of its end, and of nodes that failed or are lost."""
    ends = {
        condition["type"]: condition["status"]
        for condition in status.get("conditions") or ()
        if condition["type"] in {names.CONDITION_COMPLETE, names.CONDITION_FAILED}
    }
    lost = {key: value for key, value in _problem_counts(status).items() if key != "desired"}
    return status.get("phase") in names.FINAL_PHASES, status.get("completionTime"), ends, lost


def _problem_counts(status: Mapping[str, Any]) -> dict[str, Any]:
    nodes = status.get("nodes") or {}
    return {k: v for k, v in nodes.items() if k not in _PROGRESS_FIELDS and v}
