"""What the log says about a status that was written: how a run changed, and which nodes failed.

One line for each condition whose status or reason changed, and one for the nodes that failed for
one reason. A write that changes neither has no line at INFO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from loguru import logger

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import ProgressingReason, SuspendedReason
from daemonset_job.api.states import ConditionType

# What is logged when a condition becomes True or False.
_MESSAGES: Final[Mapping[tuple[str, bool], str]] = {
    (ConditionType.COMPLETE, True): "the run succeeded",
    (ConditionType.COMPLETE, False): "the run goes on with further nodes",
    (ConditionType.FAILED, True): "the run failed",
    (ConditionType.FAILED, False): "the failed run is retried",
    (ConditionType.SUSPENDED, True): "the run is paused",
    (ConditionType.SUSPENDED, False): "the run is resumed",
    (ConditionType.ALTERED, True): "another client changed the DaemonSet",
    (ConditionType.PROGRESSING, True): "the run progresses",
    (ConditionType.PROGRESSING, False): "the run is blocked",
}
# `Progressing` has these reasons while another condition says the same and more.
_ALSO_IN: Final[Mapping[str, ConditionType]] = {
    ProgressingReason.COMPLETED: ConditionType.COMPLETE,
    ProgressingReason.FAILED: ConditionType.FAILED,
    ProgressingReason.PAUSED: ConditionType.SUSPENDED,
}
_PROGRESSING_MESSAGES: Final[Mapping[str, str]] = {
    ProgressingReason.STARTING: "the run starts",
    ProgressingReason.COMPLETED: "the run has ended",
    ProgressingReason.FAILED: "the run has ended",
    ProgressingReason.PAUSED: "the run is paused",
}
# They repeat for other tools what the conditions above say.
_FOR_OTHER_TOOLS: Final = frozenset({ConditionType.RECONCILING, ConditionType.STALLED})
_NODES_LIMIT = 400


def log_conditions(before: JobStatus, after: JobStatus) -> None:
    """Log each condition of a written status that has another status or reason than before."""
    known = {each.type: (each.status, each.reason) for each in before.conditions}
    changed = [
        each
        for each in after.conditions
        if each.type not in _FOR_OTHER_TOOLS and known.get(each.type) != (each.status, each.reason)
    ]
    true_types = {each.type for each in changed if each.status}
    for condition in sorted(changed, key=lambda each: each.type == ConditionType.PROGRESSING):
        is_progressing = condition.type == ConditionType.PROGRESSING
        if is_progressing and _ALSO_IN.get(condition.reason) in true_types:
            continue
        logger.log(
            "WARNING" if is_trouble(condition) else "INFO",
            _message(condition),
            condition=str(condition.type),
            status=str(condition.status),
            reason=str(condition.reason),
            detail=condition.message,
        )


def is_trouble(condition: Condition) -> bool:
    """Return whether a user may have to act on a condition."""
    match condition.type:
        case ConditionType.PROGRESSING:
            return condition.status is False and condition.reason not in _ALSO_IN
        case ConditionType.SUSPENDED:
            return condition.status is True and condition.reason != SuspendedReason.SUSPENDED
        case ConditionType.FAILED | ConditionType.ALTERED:
            return condition.status is True
        case _:
            return False


def log_failed_nodes(failed: Iterable[tuple[str, NodeRecord]]) -> None:
    """Log nodes that have just failed, by name: one warning for each reason."""
    by_reason: dict[str, dict[str, NodeRecord]] = {}
    for name, record in failed:
        by_reason.setdefault(str(record.reason), {})[name] = record
    for reason, records in sorted(by_reason.items()):
        logger.warning(
            "nodes failed",
            reason=reason,
            count=len(records),
            nodes=fold(records, limit=_NODES_LIMIT),
            detail=next(iter(records.values())).message,
        )


def _message(condition: Condition) -> str:
    if condition.type == ConditionType.PROGRESSING and condition.reason in _PROGRESSING_MESSAGES:
        return _PROGRESSING_MESSAGES[condition.reason]
    return _MESSAGES.get((condition.type, condition.status is True), "a condition changed")
