"""The checks of a step: whether its nodes are well, after they have done their work.

A check passes, fails or is inconclusive. Each source of facts (the nodes, pods, others later) has a
function that returns a `CheckResult`, and `judge` makes one of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import Enum, auto

from daemonset_job.api.fold_names import fold
from daemonset_job.api.json_text import json_hash
from daemonset_job.api.node import Node
from daemonset_job.api.rollout import Check
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.times import whole_seconds
from job_controller.core.state.observed_pods import PodObservation, PodsOnNode
from job_controller.core.text.sanitize import single_line

_NAMES_LIMIT = 160


class CheckState(Enum):
    """What a check found. `NOT_YET` may still become a pass, until its time is over."""

    PASS = auto()
    NOT_YET = auto()
    FAIL = auto()
    INCONCLUSIVE = auto()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The state of a check, and why it is not a pass: what was found, on which nodes."""

    state: CheckState
    message: str = ""


PASSED = CheckResult(CheckState.PASS)


def check_hash(check: Check) -> str:
    """Return a hash of what a check asks for; another time to pass makes no other check of it."""
    return json_hash(asdict(replace(check, timeout_seconds=0)))


def has_passed(check: Check, progress: RolloutProgress) -> bool:
    """Return whether it is on record that this check has passed, and not another one before it."""
    return not check.is_empty and progress.check_passed == check_hash(check)


def begin_check(check: Check, progress: RolloutProgress, now: datetime) -> RolloutProgress:
    """Return the progress with the start of this check, which is now if it was not made before."""
    known = check_hash(check)
    if progress.check_hash == known and progress.check_started_at is not None:
        return progress
    began = whole_seconds(now)
    return replace(progress, check_hash=known, check_started_at=began, check_passed="")


def judge(
    check: Check,
    nodes: Sequence[Node],
    pods: PodObservation | None,
    *,
    sources: Sequence[CheckResult] = (),
    is_late: bool,
) -> CheckResult:
    """Return what the checks say of the step's nodes; `sources` are the results of sources.

    Once `is_late`, what has not passed yet has failed; a source that could not be reached is
    inconclusive then. Until then it is asked again.
    """
    results = list(sources)
    if check.node_ready:
        results.append(_check_nodes(nodes))
    if check.pods is not None:
        results.append(_check_pods(nodes, pods))
    result = combine(results)
    if result.state == CheckState.PASS:
        return result
    if not is_late:
        return CheckResult(CheckState.NOT_YET, result.message)
    return (
        CheckResult(CheckState.FAIL, result.message)
        if result.state == CheckState.NOT_YET
        else result
    )


def combine(results: Iterable[CheckResult]) -> CheckResult:
    """Return the result that counts: a failure before what is open, and that before a pass."""
    order = (CheckState.FAIL, CheckState.NOT_YET, CheckState.INCONCLUSIVE)
    found = list(results)
    for state in order:
        of_verdict = [result for result in found if result.state == state]
        if of_verdict:
            words = "; ".join(result.message for result in of_verdict)
            return CheckResult(state, single_line(words, 400))
    return PASSED


def _check_nodes(nodes: Iterable[Node]) -> CheckResult:
    away = [node.name for node in nodes if not node.ready]
    if not away:
        return PASSED
    return CheckResult(CheckState.NOT_YET, f"not Ready: {fold(away, limit=_NAMES_LIMIT)}")


def _check_pods(nodes: Sequence[Node], observed: PodObservation | None) -> CheckResult:
    if observed is None:
        return CheckResult(CheckState.INCONCLUSIVE, "the pods of check.pods have not been read yet")
    if observed.error:
        words = f"the pods of check.pods cannot be read: {observed.error}"
        return CheckResult(CheckState.INCONCLUSIVE, single_line(words, 300))
    none = PodsOnNode()
    found = {node.name: observed.pods.get(node.name, none) for node in nodes}
    waiting = [name for name, pods in found.items() if pods.ready < pods.found]
    lacking = [name for name, pods in found.items() if not pods.found]
    if waiting:
        words = f"pods of check.pods are not Ready on {fold(waiting, limit=_NAMES_LIMIT)}"
        return CheckResult(CheckState.NOT_YET, words)
    if lacking:
        words = f"check.pods selects no pod on {fold(lacking, limit=_NAMES_LIMIT)}"
        return CheckResult(CheckState.INCONCLUSIVE, words)
    return PASSED
