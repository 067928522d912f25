"""The values of fields of a Job's spec that have a fixed set of them, as the CRD spells them."""

from __future__ import annotations

from typing import Final, TypeVar

from daemonset_job.api.states import TextEnum

_Choice = TypeVar("_Choice", bound=TextEnum)


class CompletionMode(TextEnum):
    """What completes a node: `spec.completion.mode`."""

    LOG = "Log"
    EXIT = "Exit"


class CompletionPolicy(TextEnum):
    """Whether the run ends: `spec.completion.policy`."""

    ONCE = "Once"
    CONTINUOUS = "Continuous"


class FailureAction(TextEnum):
    """What happens to the run when too many nodes fail: `spec.failurePolicy.action`."""

    FAIL_FAST = "FailFast"
    CONTINUE = "Continue"
    PAUSE = "Pause"
    ROLLBACK = "Rollback"


# With these a run has failed as soon as more nodes have failed than may.
FAST_ACTIONS: Final = frozenset({FailureAction.FAIL_FAST, FailureAction.ROLLBACK})


class RuleAction(TextEnum):
    """What an exit code of the task means: `action` of a rule in `spec.failurePolicy.rules`."""

    FAIL = "Fail"
    RETRY = "Retry"
    IGNORE = "Ignore"


class PodPolicy(TextEnum):
    """Which pods are deleted after failures: `spec.failurePolicy.pods`."""

    DELETE_FAILED = "DeleteFailed"
    DELETE = "Delete"
    KEEP = "Keep"


def parse_choice(text: str | None, default: _Choice, unknown: _Choice) -> _Choice:
    """Return the choice of that name, `default` without one, and `unknown` for any other text.

    The CRD refuses other texts. A CRD that is newer than this program may know more of them.
    """
    if not text:
        return default
    kind = type(default)
    return next((choice for choice in kind if choice == text), unknown)
