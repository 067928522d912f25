"""What a decision is: actions in order, events to tell afterwards, and when to look again.

Actions are carried out one after the other; the first that fails ends the pass, and the next
pass decides anew from what then stands. So every prefix of a plan must be a state from which
the same end is reached: that is what the order of actions within a plan is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from job_controller.api.objects import Pod


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
class ApplyDaemonSet:
    """Apply the DaemonSet; `uid` is that of the one to change, "" when it is to be made."""

    body: Mapping[str, Any]
    uid: str = ""


@dataclass(frozen=True, slots=True)
class OpenGates:
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
    | ApplyDaemonSet
    | OpenGates
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
    """The outcome of a decision. `requeue_after` in seconds, None when only a change matters."""

    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None


# What of `status.nodes` may change as a run gets on without anything having gone wrong.
_PROGRESS: Final = frozenset({"waiting", "active", "completed", "completedNames"})


def without_progress(plan: Plan, old: Mapping[str, Any], seconds: float) -> Plan:
    """Return the plan without its records if they only tell that the run gets on, for later.

    `old` is the Job's status as it stands, `seconds` how long the records may wait; what they say
    is found again by any later pass. A plan that does something, tells an event, or says more than
    how many nodes wait, work and have completed is returned as it is.
    """
    if plan.events or not plan.actions:
        return plan
    for action in plan.actions:
        match action:
            case WriteReportStatus():
                pass
            case WriteStatus() if _telling(action.status) == _telling(old):
                pass
            case _:
                return plan
    again = seconds if plan.requeue_after is None else min(seconds, plan.requeue_after)
    return replace(plan, actions=(), requeue_after=again)


def _telling(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Job's status without what changes with every node that gets on."""
    nodes = {k: v for k, v in (status.get("nodes") or {}).items() if k not in _PROGRESS}
    conditions = [
        {k: v for k, v in condition.items() if k != "message"}
        for condition in status.get("conditions") or ()
    ]
    return {**status, "nodes": nodes, "conditions": conditions}
