"""The check of a step by a script, which runs in a Job of its own on the nodes of the step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.json_text import json_hash
from daemonset_job.api.owned_task import OwnedTask
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.rollout import Check
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import ConditionType
from daemonset_job.api.times import add_seconds, format_time
from job_controller.core.desired.check_job import check_spec
from job_controller.core.desired.owned_job import BATCH_NODES, owned_name
from job_controller.core.desired.part import Part, PartKind, check_suffix, make_part, purpose_of
from job_controller.core.owned_jobs.failure_lines import lines_awaited_until
from job_controller.core.owned_jobs.outcome import OwnedOutcome, find_owned, owned_outcome
from job_controller.core.owned_jobs.part import describe_refusal, find_part
from job_controller.core.rollout.checks import PASSED, CheckResult, CheckState
from job_controller.core.state.snapshot import Snapshot, merge_records
from job_controller.core.text.sanitize import single_line

_WORDS_LIMIT: Final = 600
_NAMES_LIMIT: Final = 160
# What may change while the script is at work: nodes leave, and people set the others at any time.
_VARIES: Final = frozenset({"nodes", "failureLogLines", "nodeUnreachableSeconds"})


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """What the script says of the step's nodes, the progress to be written, and the needed Job.

    `wake_at` is when its time, or that of the lines of its failure, is over; None if neither counts
    now.
    """

    result: CheckResult
    progress: RolloutProgress
    part: Part | None = None
    wake_at: datetime | None = None


class _Nodes(NamedTuple):
    """The names of the nodes that the present Job asks, those due among them, and of all there."""

    asked: Sequence[str]
    due: Sequence[str]
    there: Sequence[str]


def check_by_script(
    snapshot: Snapshot,
    check: Check,
    progress: RolloutProgress,
    nodes: Collection[str],
    now: datetime,
) -> ScriptCheck:
    """Return what the script says of the nodes: it runs on 1000 of them, then on the next ones.

    `progress` is the written one, about this script. The Job of these nodes is needed until its
    result is written.
    """
    if check.script is None:
        return ScriptCheck(PASSED, progress)
    if words := progress.script_check_inconclusive:
        return ScriptCheck(CheckResult(CheckState.INCONCLUSIVE, words), progress)
    there = sorted(name for name in nodes if name in snapshot.nodes)
    progress = _without_unchecked(progress, there)
    progress = replace(progress, script_check_hash=_script_hash(check.script))
    left = [name for name in there if name > progress.script_checked_up_to]
    if not left:
        return ScriptCheck(PASSED, progress)
    due = left[:BATCH_NODES]
    of_step = _Nodes(due, due, there)
    part = _part(snapshot, check, progress, due)
    if begun := _nodes_of_begun(snapshot, part, progress, left):
        part = _part(snapshot, check, progress, begun)
        due = [name for name in left if name in begun]
        of_step = _Nodes([name for name in begun if name in snapshot.nodes], due, there)
    return _judge(snapshot, check, ScriptCheck(PASSED, progress, part), of_step, now)


def without_other_script(progress: RolloutProgress, check: Check) -> RolloutProgress:
    """Return the progress without what is known of a script that the check had before."""
    known = progress.script_check_hash
    if check.script is None or not known or known == _script_hash(check.script):
        return progress
    return without_script_check(progress)


def without_script_check(progress: RolloutProgress) -> RolloutProgress:
    """Return the progress without all that is known of the script."""
    return replace(
        progress,
        script_checked_up_to="",
        script_checked_nodes=0,
        script_check_inconclusive="",
        script_check_hash="",
    )


def _without_unchecked(progress: RolloutProgress, there: Sequence[str]) -> RolloutProgress:
    """Return the progress without what was checked if a node is back that was not there then.

    Its name may come before those that are checked, so there are more of these than were checked.
    """
    before = sum(name <= progress.script_checked_up_to for name in there)
    if not progress.script_checked_nodes or before <= progress.script_checked_nodes:
        return progress
    return without_script_check(progress)


def _script_hash(script: OwnedTask) -> str:
    return json_hash(asdict(script))


def _nodes_of_begun(
    snapshot: Snapshot, part: Part, progress: RolloutProgress, left: Sequence[str]
) -> tuple[str, ...]:
    """Return the nodes of a Job that runs the script in this try already, () for none.

    Some of them may have left since: the others are not asked again. If it has failed on a node,
    that is the answer, whatever nodes there are now. Else it has all nodes in the order of their
    names. `left` are those that have not been checked.
    """
    known = find_owned(snapshot.owned_jobs, owned_name(snapshot.job.name, part.suffix))
    if known is None or purpose_of(known) != part.purpose:
        return ()
    nodes = known.spec.nodes.include
    of_step = {name for name, at in merge_records(snapshot).items() if at.step == progress.step}
    if not nodes or not of_step.issuperset(nodes):
        return ()
    asked = [name for name in left if name <= max(nodes)]
    is_whole = bool(asked) and set(nodes).issuperset(asked)
    has_failed = owned_outcome(known) == OwnedOutcome.FAILED
    return nodes if is_whole or has_failed else ()


def _part(
    snapshot: Snapshot, check: Check, progress: RolloutProgress, nodes: Sequence[str]
) -> Part:
    job = snapshot.job
    assert check.script is not None
    began = format_time(progress.soak_started_at) if progress.soak_started_at else ""
    return make_part(
        PartKind.CHECK,
        check_suffix(progress.step),
        check_spec(job, check.script, nodes, snapshot.settings),
        *(job.revision, job.retry_request, str(progress.step), began),
        progress.script_checked_up_to,
        varies=_VARIES,
    )


def _judge(
    snapshot: Snapshot,
    check: Check,
    found: ScriptCheck,
    nodes: _Nodes,
    now: datetime,
) -> ScriptCheck:
    due = nodes.due
    part, progress = found.part, found.progress
    assert part is not None
    run = find_part(snapshot, part)
    match owned_outcome(run):
        case OwnedOutcome.SUCCEEDED:
            assert run is not None
            if words := _describe_lacking(run, nodes.asked):
                return _inconclusive(found, words)
            left = [name for name in nodes.there if name > due[-1]]
            checked = len(nodes.there) - len(left)
            progress = replace(progress, script_checked_up_to=due[-1], script_checked_nodes=checked)
            words = f"its script has passed on {checked} nodes, others follow"
            open_ = CheckResult(CheckState.NOT_YET, words)
            return replace(found, progress=progress, result=open_ if left else PASSED)
        case OwnedOutcome.FAILED:
            assert run is not None
            return _judge_failure(snapshot, found, run, now)
    late_at = add_seconds(_counts_from(snapshot.job, progress, run, now), check.timeout_seconds)
    if snapshot.job.is_suspended and run is None:
        words = "its script does not run while the Job is suspended"
        return replace(found, result=CheckResult(CheckState.NOT_YET, words))
    refusal = describe_refusal(snapshot)
    is_late = now >= late_at and not snapshot.job.is_suspended
    if is_late and (run is not None or refusal):
        return _inconclusive(found, _describe_open(run, check.timeout_seconds, refusal))
    where = fold(due, limit=_NAMES_LIMIT)
    words = f"its script runs on {where}: {_progress(run)}"
    if run is None and refusal:
        words = f"its script does not run on {where}: {refusal}"
    open_ = CheckResult(CheckState.NOT_YET, single_line(words, _WORDS_LIMIT))
    counts_now = run is not None and not snapshot.job.is_suspended
    return replace(found, result=open_, wake_at=late_at if counts_now else None)


def _inconclusive(found: ScriptCheck, words: str) -> ScriptCheck:
    """Return that the result is not known; it stays so until a person decides, or retries."""
    text = single_line(words, _WORDS_LIMIT)
    progress = replace(found.progress, script_check_inconclusive=text)
    return replace(found, result=CheckResult(CheckState.INCONCLUSIVE, text), progress=progress)


def _judge_failure(snapshot: Snapshot, found: ScriptCheck, run: Job, now: datetime) -> ScriptCheck:
    if until := lines_awaited_until(snapshot, run, now):
        words = "its script has failed, and the last lines of its log are read"
        return replace(found, result=CheckResult(CheckState.NOT_YET, words), wake_at=until)
    condition = run.condition(ConditionType.FAILED)
    words = condition.message if condition is not None else ""
    if condition is None or condition.reason != FailedReason.MAX_FAILED_NODES_EXCEEDED:
        # A person has aborted it, for instance. That says nothing about the nodes.
        return _inconclusive(found, f"the Job {run.name} of its script was ended: {words}")
    text = single_line(f"its script: {words}", _WORDS_LIMIT)
    return replace(found, result=CheckResult(CheckState.FAIL, text))


def _describe_lacking(run: Job, due: Sequence[str]) -> str:
    """Return on which nodes the script has not run, "" if it has on all of them."""
    nodes = run.status.nodes
    if nodes is None:
        return "its script has no result"
    if nodes.unreachable:
        return f"its script has no result of unreachable nodes: {nodes.unreachable_names}"
    if nodes.completed < len(due):
        names = fold(due, limit=_NAMES_LIMIT)
        return f"its script has run on {nodes.completed} of {len(due)} nodes ({names})"
    return ""


def _describe_open(run: Job | None, seconds: int, refusal: str) -> str:
    if run is None:
        return f"its script does not run: {refusal}"
    return f"its script had not ended after {seconds} s: {_progress(run)}"


def _progress(run: Job | None) -> str:
    condition = run.condition(ConditionType.PROGRESSING) if run is not None else None
    return condition.message if condition is not None else "it is about to start"


def _counts_from(job: Job, progress: RolloutProgress, run: Job | None, now: datetime) -> datetime:
    """Return since when the time of the script counts.

    It begins again after a suspension of the run. A stop of all Jobs stops that of the script, too.
    A Job of the script that cannot start counts since its first condition. Before it has one, the
    API server, whose clock may differ, says when it was created. That counts only if it lies
    between the start of the check and now.
    """
    began = progress.check_started_at
    if run is not None:
        created, first = run.created_at, began or run.created_at
        is_sound = created is not None and first is not None and first <= created <= now
        blocked = run.condition(ConditionType.PROGRESSING)
        seen = blocked.last_transition_time if blocked is not None else None
        began = run.status.start_time or seen or (created if is_sound else began)
    suspended = job.condition(ConditionType.SUSPENDED)
    if suspended is not None:
        moved = now if suspended.status else suspended.last_transition_time
        began = max(began or now, moved or now)
    return began or now
