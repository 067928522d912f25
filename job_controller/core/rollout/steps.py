"""How far a rollout is: which step it is in, and what it waits for before the next one.

The progress is written to the Job's status before anything follows from it. Each pass finds it
again from the cluster, so that a crash between two writes changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.label_selector import selector_text
from daemonset_job.api.reasons import FailedReason, SuspendedReason
from daemonset_job.api.rollout import Step
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import ConditionType, NodeState
from daemonset_job.api.times import add_seconds, format_time, whole_seconds
from job_controller.core.desired.part import Part
from job_controller.core.plan import PodQuery, RefusedWrite
from job_controller.core.rollout.checks import (
    PASSED,
    CheckResult,
    CheckState,
    begin_check,
    check_hash,
    combine,
    has_passed,
    judge,
)
from job_controller.core.rollout.image_pull import advance_pull
from job_controller.core.rollout.members import (
    StepMembers,
    find_members,
    find_uncounted,
    present_step,
)
from job_controller.core.rollout.places import Places
from job_controller.core.rollout.script_check import (
    check_by_script,
    without_other_script,
    without_script_check,
)
from job_controller.core.rollout.source_answers import find_queries, judge_answers
from job_controller.core.rollout.written_progress import written_progress
from job_controller.core.state.desired_count import find_completed
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunState
from job_controller.core.state.snapshot import (
    Snapshot,
    find_unrecorded,
    merge_evidence,
    merge_records,
)
from job_controller.core.state.success_policy import may_lack_nodes
from job_controller.core.text.commands import plugin_command
from job_controller.core.text.sanitize import single_line

# How often nodes and pods are looked at again while a check has not passed.
POLL_SECONDS: Final = 5.0

_NAMES_LIMIT: Final = 160


@dataclass(frozen=True, slots=True)
class Advance:
    """The progress of a rollout as it is to be written, and what it waits for.

    `progress` is None without a rollout. `asks`: a person has to decide, and why; `message` has the
    command. `fails`: the run fails, and why. `message` without one of them says what the step waits
    for. `query` are the pods to be read. `parts` are the Jobs that it needs now. `keeps_parts`: it
    may need others that there are. `holds_end`: nodes of the step have completed, and the run does
    not end before its soak, its check and its approval, also if no node follows.
    """

    progress: RolloutProgress | None = None
    asks: SuspendedReason | None = None
    message: str = ""
    wake_at: datetime | None = None
    query: PodQuery | None = None
    fails: FailedReason | None = None
    parts: tuple[Part, ...] = ()
    keeps_parts: bool = False
    holds_end: bool = False


def advance(
    snapshot: Snapshot, counts: NodeCounts, places: Places, run: RunState, now: datetime
) -> Advance:
    """Return how far the rollout of a Job is now; nothing for a Job without one.

    `run` is what nodes and people say of the run, whatever the rollout does.
    """
    job = snapshot.job
    rollout = job.spec.rollout
    if rollout is None:
        return Advance()
    known = written_progress(job)
    progress = replace(
        known or RolloutProgress(revision=job.revision),
        steps=len(rollout.steps),
        is_promoted=job.requests.is_promoted or (known is not None and known.is_promoted),
    )
    if job.requests.approved_step == progress.step and not progress.is_in_rest:
        progress = replace(progress, approved_step=progress.step)
    if _has_ended(job):
        return Advance(replace(progress, waits_for=""))
    progress, pull = advance_pull(snapshot, _as_asked_again(snapshot, progress))
    parts = () if pull is None else (pull,)
    if progress.image_pull_failure:
        words = f"the images cannot be pulled: {progress.image_pull_failure}"
        failed = replace(progress, waits_for="")
        return Advance(failed, message=words, fails=FailedReason.IMAGE_PULL_FAILED, parts=parts)
    if known is None:
        return Advance(replace(progress, waits_for=""), parts=parts)
    if run.is_open:
        found = _advance_step(snapshot, counts, places, progress, now)
    else:
        # Too many nodes have failed, for instance. Those that are tried again are of this step.
        found = _stay(progress)
    return replace(found, parts=(*parts, *found.parts))


def _stay(progress: RolloutProgress) -> Advance:
    """Return that the step stays as it is. Its script runs once in each try, also meanwhile."""
    keeps_parts = progress.soak_started_at is not None
    return Advance(replace(progress, waits_for=""), keeps_parts=keeps_parts)


def _advance_step(
    snapshot: Snapshot,
    counts: NodeCounts,
    places: Places,
    progress: RolloutProgress,
    now: datetime,
) -> Advance:
    """Return how far the present step is; the rest of the nodes, after the last one, has none."""
    rollout = snapshot.job.spec.rollout
    step = present_step(rollout, progress.step) if rollout is not None else None
    if step is None:
        # A person may have taken the present step out of the rollout.
        return Advance(replace(_with_unfinished_step(progress), waits_for=""))
    if step.check.is_empty:
        # A person may have taken a check out of the step that had failed, or was inconclusive.
        progress = replace(progress, check_failure="", script_check_inconclusive="")
    progress = without_other_script(progress, step.check)
    if progress.check_failure:
        # Neither a node that joins nor one that leaves changes what was found, and a count that is
        # not known does not either.
        return _fail_check(progress)
    if not (counts.desired_is_known and counts.nodes_spec_is_applied):
        return _stay(progress)
    members = find_members(snapshot, counts, places, progress.step)
    holds_end = _holds_end(snapshot, counts, step, members)
    # The cache of nodes has the others in a moment. Until then a soak goes on, or what follows it.
    goes_on = members.may_be_done and progress.soak_started_at is not None
    if not members.is_done and not goes_on:
        # Although all nodes may be done: a task still runs on one that has left, or runs again.
        still = fold(places.taken, limit=_NAMES_LIMIT) if holds_end and counts.is_over else ""
        words = f"{_name(progress)} waits until no task runs on {still}" if still else ""
        unfinished = replace(_with_unfinished_step(progress), waits_for="")
        return Advance(unfinished, message=words, holds_end=holds_end)
    found = _finish_step(snapshot, counts, _Finish(step, progress, members), now)
    is_over = found.progress is None or found.progress.step != progress.step
    # The share of a step may be of a number of nodes that is about to change.
    is_end = is_over or progress.soak_started_at is None
    uncounted = find_uncounted(snapshot, counts, step, members) if is_end else frozenset()
    is_early = is_end and not counts.desired_is_current
    if is_early or uncounted or (is_over and not members.is_done):
        words = _awaited_count(progress, uncounted)
        stays = _with_passed_check(step, progress) if is_over else progress
        return replace(_stay(stays), message=words, holds_end=holds_end)
    return replace(found, holds_end=holds_end and not is_over)


def _with_passed_check(step: Step, progress: RolloutProgress) -> RolloutProgress:
    """Return the progress of a step that ends as soon as its nodes are known.

    Its check has passed, and is not asked again meanwhile: its time may be over by then.
    """
    if step.check.is_empty or progress.soak_started_at is None:
        return progress
    return replace(progress, check_passed=check_hash(step.check))


def _awaited_count(progress: RolloutProgress, uncounted: frozenset[str]) -> str:
    """Return which nodes the step waits for that may be of it, "" for none.

    If the DaemonSet controller is away, nothing else says why the step goes on.
    """
    if not uncounted:
        return ""
    names = fold(uncounted, limit=_NAMES_LIMIT)
    return f"{_name(progress)} waits until the DaemonSet controller has counted {names}"


def _holds_end(snapshot: Snapshot, counts: NodeCounts, step: Step, members: StepMembers) -> bool:
    """Return whether the run does not end before the step does, also if no node follows.

    Of a step in which no node has completed there is nothing to be checked at the end of the run. A
    node that was deleted after it had completed counts: the task may be why. If fewer nodes are
    enough, the run ends at once, also if all have completed.
    """
    if _is_plain(step) or may_lack_nodes(snapshot.job, counts.desired):
        return False
    ledger, records = merge_evidence(snapshot), merge_records(snapshot)
    return any(
        name in ledger and ledger[name].completes(records[name].uid)
        for name in members.had_turn & records.keys()
    )


def _is_plain(step: Step) -> bool:
    """Return whether nothing follows once the nodes of the step have completed."""
    return not step.soak_seconds and step.check.is_empty and not step.needs_approval


def _as_asked_again(snapshot: Snapshot, progress: RolloutProgress) -> RolloutProgress:
    """Return the progress as a retry, or a request to run nodes again, changes it.

    A retry gives the step its time once more, and so does that request if the check has failed.
    They may be observed while no node is counted. A request may be older than the failure, and wait
    for the report: the failure is on record before it is forgotten.
    """
    is_retried = snapshot.job.status.observed_retry != snapshot.job.retry_request
    if is_retried or (_is_failure_recorded(snapshot, progress) and _runs_again(snapshot)):
        progress = _with_unfinished_step(progress)
    return replace(progress, image_pull_failure="") if is_retried else progress


def _is_failure_recorded(snapshot: Snapshot, progress: RolloutProgress) -> bool:
    """Return whether the check has failed, and the report says so.

    Once it has the request, too, it had the failure before, and need not have it any more.
    """
    found, first = progress.check_failure, snapshot.first_report
    if not found or first is None:
        return False
    recorded = first.status.rollout
    is_there = recorded is not None and recorded.check_failure == found
    return is_there or not find_unrecorded(snapshot)


def _runs_again(snapshot: Snapshot) -> bool:
    """Return whether a person has just asked that nodes run the task again that have begun.

    The request is open until the Job's status has it, and with it what follows for the step. It
    waits for the report while the API server refuses that. Else the check would fail in one pass
    and be forgotten in the next one, again and again. Once the report has it, it does not wait.
    """
    job = snapshot.job
    if RefusedWrite.REPORT in snapshot.refusals and find_unrecorded(snapshot):
        return False
    return job.has_open_request and any(
        record.earlier_pods and record.rerun == job.rerun.id
        for record in merge_records(snapshot).values()
    )


def _with_unfinished_step(progress: RolloutProgress) -> RolloutProgress:
    """Return the progress without what is known of the end of the present step."""
    return replace(
        without_script_check(progress),
        soak_started_at=None,
        check_failure="",
        check_hash="",
        check_started_at=None,
        check_passed="",
    )


def _has_ended(job: Job) -> bool:
    """Return whether the end of the run is on record, so that it stays in its present step."""
    if job.is_aborted:
        return True
    has_failed = job.is_true(ConditionType.FAILED)
    is_failed = has_failed and job.status.observed_retry == job.retry_request
    return not job.spec.is_continuous and (is_failed or job.is_true(ConditionType.COMPLETE))


@dataclass(frozen=True, slots=True)
class _Finish:
    """A step whose nodes have finished."""

    step: Step
    progress: RolloutProgress
    members: StepMembers


def _finish_step(snapshot: Snapshot, counts: NodeCounts, end: _Finish, now: datetime) -> Advance:
    """Return what a step whose nodes have finished waits for, or the next step."""
    step, progress = end.step, end.progress
    if not end.members.had_turn and not end.members.is_empty:
        # Earlier steps have had as many nodes.
        return _pass_over(snapshot, end)
    completed = _completed(snapshot, counts, end.members)
    if _is_plain(step) and completed:
        return _next_step(progress)
    if progress.soak_started_at is None:
        # The write of it causes the next pass.
        return Advance(replace(progress, soak_started_at=whole_seconds(now), waits_for=""))
    soaked_at = add_seconds(progress.soak_started_at, step.soak_seconds)
    if now < soaked_at and not progress.is_promoted:
        words = f"{_name(progress)} soaks until {format_time(soaked_at)}"
        # If a person has made the soak longer, the check has all of its time after it.
        progress = replace(progress, check_started_at=None)
        return Advance(replace(progress, waits_for=""), message=words, wake_at=soaked_at)
    verdict = _judge_step(snapshot, end, completed, now)
    found = _decide(snapshot.job, replace(end, progress=verdict.progress), verdict, now)
    moments = [moment for moment in (found.wake_at, verdict.wake_at) if moment is not None]
    parts = () if verdict.part is None else (verdict.part,)
    return replace(found, parts=parts, wake_at=min(moments, default=None))


def _completed(snapshot: Snapshot, counts: NodeCounts, members: StepMembers) -> set[str]:
    """Return the nodes of a step that have completed.

    One that leaves by a taint is not counted while its next pod is deleted. What it has done stays.
    """
    left = find_completed(snapshot, merge_evidence(snapshot)) & members.left
    return (set(counts.names(NodeState.COMPLETED)) | left) & members.had_turn


def _pass_over(snapshot: Snapshot, end: _Finish) -> Advance:
    """Return what follows a step without nodes of its own: the next one, or what a person says.

    A person who has approved after the turns of these nodes is not asked again. If the step could
    have no nodes yet, it goes on. Else those that come back would start together in a later one.
    """
    records, revision = merge_records(snapshot).values(), snapshot.job.revision
    newest = max((each.step for each in records if each.revision == revision), default=0)
    is_approved = newest <= end.progress.approved_step
    found = _next_step(end.progress) if is_approved else _ask_approval(snapshot.job, end)
    if end.members.is_short and found.asks is None:
        return Advance(replace(end.progress, waits_for=""))
    return found


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What the checks say, with the progress to be written.

    `query` are the pods that have to be read for them, `part` is the Job that they need, and
    `wake_at` is when its time is over.
    """

    result: CheckResult
    progress: RolloutProgress
    query: PodQuery | None = None
    part: Part | None = None
    wake_at: datetime | None = None


def _judge_step(snapshot: Snapshot, end: _Finish, completed: set[str], now: datetime) -> _Verdict:
    """Return what the checks of a step say."""
    step, progress = end.step, end.progress
    if end.members.is_empty:
        words = "its selector selects no node"
        return _Verdict(CheckResult(CheckState.INCONCLUSIVE, words), progress)
    if not completed:
        words = "none of its nodes has completed"
        if end.members.left:
            words = f"its nodes have left: {fold(end.members.left, limit=_NAMES_LIMIT)}"
        return _Verdict(CheckResult(CheckState.INCONCLUSIVE, words), progress)
    if has_passed(step.check, progress):
        return _Verdict(PASSED, progress)
    progress = begin_check(step.check, progress, now)
    assert progress.soak_started_at is not None
    assert progress.check_started_at is not None
    is_late = now >= add_seconds(progress.check_started_at, step.check.timeout_seconds)
    query = _query(step.check.pods, completed)
    observed = snapshot.observed_pods
    fresh = observed if observed is not None and observed.query == query else None
    nodes = [snapshot.nodes[name] for name in sorted(completed) if name in snapshot.nodes]
    asked = find_queries(step.check, progress.soak_started_at)
    sources = judge_answers(asked, snapshot.source_answers, now)
    others = judge(step.check, nodes, fresh, sources=sources, is_late=is_late)
    script = check_by_script(snapshot, step.check, progress, completed, now)
    # A script that has failed is not asked again, as sources are.
    found = combine([others, script.result])
    return _Verdict(found, script.progress, query, script.part, script.wake_at)


def _query(selector: Mapping[str, Any] | None, nodes: set[str]) -> PodQuery | None:
    return None if selector is None else PodQuery(selector_text(selector), frozenset(nodes))


def _decide(job: Job, end: _Finish, verdict: _Verdict, now: datetime) -> Advance:
    """Return what follows from the checks of a step, and from what a person has approved."""
    progress, found, query = end.progress, verdict.result, verdict.query
    is_approved = progress.approved_step >= progress.step
    match found.state:
        case CheckState.NOT_YET:
            words = f"{_name(progress)} waits for its check: {found.message}"
            later = now + timedelta(seconds=POLL_SECONDS)
            return Advance(
                replace(progress, waits_for=""), message=words, wake_at=later, query=query
            )
        case CheckState.FAIL:
            return _fail_check(replace(progress, check_failure=found.message))
        case CheckState.INCONCLUSIVE if not is_approved:
            names = fold(end.members.had_turn, limit=_NAMES_LIMIT)
            look = f"look at {names}, then " if names else ""
            words = (
                f"{_name(progress)} is not known to have gone well: {found.message}; "
                f"{look}{_approve_command(job, progress)}"
            )
            asked = replace(progress, waits_for=words)
            later = now + timedelta(seconds=POLL_SECONDS)
            return Advance(asked, SuspendedReason.CHECK_INCONCLUSIVE, words, later, query)
    # While a person is asked, it is not checked again: what happens then is not of the check.
    check = end.step.check
    passed = replace(progress, check_passed="" if check.is_empty else check_hash(check))
    return _ask_approval(job, replace(end, progress=passed))


def _fail_check(progress: RolloutProgress) -> Advance:
    words = f"the check of {_name(progress)} failed: {progress.check_failure}"
    return Advance(replace(progress, waits_for=""), SuspendedReason.CHECK_FAILED, words)


def _ask_approval(job: Job, end: _Finish) -> Advance:
    """Return that the step waits for a person, or the next one if there is no need."""
    progress = end.progress
    is_approved = progress.approved_step >= progress.step
    if not end.step.needs_approval or is_approved or progress.is_promoted:
        return _next_step(progress)
    words = f"{_name(progress)} is done and waits for approval: {_approve_command(job, progress)}"
    asked = replace(progress, waits_for=words)
    return Advance(asked, SuspendedReason.WAITING_FOR_APPROVAL, words)


def _next_step(progress: RolloutProgress) -> Advance:
    following = _with_unfinished_step(replace(progress, step=progress.step + 1, waits_for=""))
    return Advance(following)


def _name(progress: RolloutProgress) -> str:
    return f"step {progress.step} of {progress.steps}"


def _approve_command(job: Job, progress: RolloutProgress) -> str:
    words = (
        f"{plugin_command('approve', job)} lets it go on (it sets the "
        f"annotation daemonset.darkowlzz.space/approve={progress.step})"
    )
    value = job.requests.other_approval
    if job.requests.approved_step > progress.steps:
        value = str(job.requests.approved_step)
    return f"{words}; it has the value '{single_line(value)}', which is no step" if value else words
