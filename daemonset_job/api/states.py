"""The states of runs and nodes, and the types of conditions, as the API spells them.

Each member is a string: it is equal to the raw text of an object, and JSON has that text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TextEnum(StrEnum):
    """An enum of texts of the API, whose members are shown as these texts in logs too."""

    def __repr__(self) -> str:
        """Return what the text in a raw object would show."""
        return repr(self.value)


class Phase(TextEnum):
    """The state of a run in one word: `status.phase` of a Job and of a JobReport."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    # Only of a JobReport: the Job was deleted before the run had ended.
    CANCELLED = "Cancelled"


_PHASES: Final = {phase.value: phase for phase in Phase}


def parse_phase(text: str | None) -> Phase | None:
    """Return the phase of that name, None for any other text."""
    return _PHASES.get(text or "")


# The phases of a Job whose run has ended.
FINAL_PHASES: Final = (Phase.SUCCEEDED, Phase.FAILED)


class ConditionType(TextEnum):
    """The type of a condition of a Job or of a JobReport (metav1.Condition)."""

    PROGRESSING = "Progressing"
    COMPLETE = "Complete"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    ALTERED = "DaemonSetAltered"
    ROLLED_BACK = "RolledBack"
    # Those that kstatus reads (sigs.k8s.io/cli-utils), and with it Flux and Argo CD.
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    # Only of a JobReport, as the phase of that name.
    CANCELLED = "Cancelled"


class NodeState(TextEnum):
    """What is known about one desired node: `state` in a JobReport's `status.nodeStates`."""

    WAITING = "Waiting"
    ACTIVE = "Active"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNREACHABLE = "Unreachable"
    # It left the cluster, or the selection, after its task began and before it ended.
    REMOVED = "Removed"


_NODE_STATES: Final = {state.value: state for state in NodeState}


def parse_node_state(text: str | None) -> NodeState:
    """Return the state of that name. Any other text counts as a node that has not begun."""
    return _NODE_STATES.get(text or "", NodeState.WAITING)
