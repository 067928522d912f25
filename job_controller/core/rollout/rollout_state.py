"""The state of a rollout: the turns that nodes get now, and the pods that may start.

A turn is written to the API server before it is taken. One pass gives turns, in the record that it
writes. A later pass starts the pods of nodes whose turn is in the record that it has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.choices import FAST_ACTIONS
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import (
    CompleteReason,
    FailedReason,
    ProgressingReason,
    SuspendedReason,
)
from daemonset_job.api.rollback import starts_no_node
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import ConditionType, NodeState
from daemonset_job.api.times import add_seconds
from job_controller.core.desired.part import Part
from job_controller.core.plan import PodQuery
from job_controller.core.rollout.holds import Hold, find_hold, window_closes_at
from job_controller.core.rollout.members import find_ended_without_turn, find_members
from job_controller.core.rollout.places import Places, find_limits, find_places
from job_controller.core.rollout.set_aside import Idleness, find_due
from job_controller.core.rollout.steps import Advance, advance
from job_controller.core.rollout.turns import Place, choose
from job_controller.core.rollout.written_progress import written_progress
from job_controller.core.state.node_counts import DesiredNode, NodeCounts
from job_controller.core.state.run_state import RunOutcome, RunState, is_recorded
from job_controller.core.state.snapshot import Snapshot, merge_records
from job_controller.core.text.commands import plugin_command

# After this time from its start, a run no longer waits for the first pods of further nodes before
# it gives turns: some may be refused for long. Until then the order could not be kept.
FIRST_PODS_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class RolloutState:
    """What a pass found out about the rollout of a Job, and about nodes to be set aside.

    `turns` are the steps in which nodes get their turn now, by name; `set_aside` are the nodes to
    be set aside now. Both take effect once they are written. `open_pods` are those whose gate may
    be removed. `hold`, `reason` and `message` say what the run waits for. `parts` are the Jobs that
    it needs now; they are created if `may_create_parts`. Others are deleted, unless `keeps_parts`.
    """

    progress: RolloutProgress | None = None
    turns: Mapping[str, int] = field(default_factory=dict)
    set_aside: frozenset[str] = frozenset()
    open_pods: tuple[Pod, ...] = ()
    dead_pods: tuple[Pod, ...] = ()
    hold: Hold | None = None
    reason: ProgressingReason | None = None
    message: str = ""
    query: PodQuery | None = None
    wake_at: datetime | None = None
    parts: tuple[Part, ...] = ()
    may_create_parts: bool = False
    keeps_parts: bool = False


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """What a rollout is decided from, found once in each pass."""

    places: Places
    advance: Advance


def find_facts(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, now: datetime
) -> RolloutFacts:
    """Return the places that are taken, and how far the rollout is."""
    places = find_places(snapshot, counts, now)
    return RolloutFacts(places, advance(snapshot, counts, places, run, now))


def with_rollout(run: RunState, snapshot: Snapshot, facts: RolloutFacts) -> RunState:
    """Return the state of the run, which a step of its rollout may pause or fail."""
    found = facts.advance
    if _ends_too_early(run, snapshot, found):
        run = RunState(RunOutcome.IN_PROGRESS)
    if run.outcome != RunOutcome.IN_PROGRESS or run.is_enough or run.is_done:
        return run
    if found.fails is not None:
        return replace(run, outcome=RunOutcome.FAILED, reason=found.fails, message=found.message)
    if found.asks is None:
        return run
    action = snapshot.job.spec.failure_policy.action
    if found.asks == SuspendedReason.CHECK_FAILED and action in FAST_ACTIONS:
        return replace(
            run, outcome=RunOutcome.FAILED, reason=FailedReason.CHECK_FAILED, message=found.message
        )
    words = found.message
    if found.asks == SuspendedReason.CHECK_FAILED:
        words += f"; {plugin_command('retry', snapshot.job)} has it checked again"
    return replace(run, outcome=RunOutcome.PAUSED, reason=found.asks, message=words)


def _ends_too_early(run: RunState, snapshot: Snapshot, found: Advance) -> bool:
    """Return whether all nodes are done, although the step with the last ones is not over.

    It has a soak, a check or an approval. Or a person is asked whose answer the run needs.

    A check that has failed does not pass because other nodes leave, also if a percentage of them
    is completed then. They may come back, and so may a node that is set aside and has had no turn.
    After the end of the run it would start unasked.
    """
    is_over = run.outcome == RunOutcome.SUCCEEDED or run.is_done
    if not is_over or is_recorded(snapshot):
        return False
    if found.asks == SuspendedReason.CHECK_FAILED:
        return True
    if run.is_enough:
        return False
    if found.holds_end:
        return True
    if run.reason != CompleteReason.COMPLETED_WITHIN_FAILURE_LIMIT or found.asks is None:
        return False
    records = merge_records(snapshot).values()
    return any(each.set_aside_at is not None and not each.step for each in records)


def evaluate_rollout(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, facts: RolloutFacts, now: datetime
) -> RolloutState:
    """Return what the rollout does now; for a Job without one, only which nodes are set aside."""
    places, found = facts.places, facts.advance
    hold = find_hold(snapshot, now)
    may_start = not starts_no_node(snapshot.job) and not run.is_enough and run.is_open
    first_pods_at = _first_pods_at(snapshot, counts, now)
    turns: Mapping[str, int] = {}
    if found.progress is not None and may_start and hold is None and first_pods_at is None:
        turns = _give_turns(snapshot, counts, places, found.progress)
    is_idle = may_start and first_pods_at is None and not turns and counts.desired_is_current
    is_in_step, is_held = not found.message, hold is not None
    if is_held and snapshot.job.spec.is_continuous:
        # It has no end, and a node that is set aside would lose its turn until the next window.
        is_idle = False
    idleness = Idleness(is_idle=is_idle and is_in_step, is_held=is_held)
    due = find_due(snapshot, counts, places, idleness, now)
    if run.has_ended:
        due = replace(due, names=frozenset(), wake_at=None)
    moments = (
        found.wake_at,
        first_pods_at,
        due.wake_at,
        places.wake_at if may_start else None,
        hold.wake_at if hold is not None else window_closes_at(snapshot.job, now),
    )
    return RolloutState(
        progress=found.progress,
        turns=turns,
        set_aside=due.names,
        open_pods=_find_open_pods(snapshot, counts, places, hold) if may_start else (),
        dead_pods=_find_dead_pods(snapshot, counts),
        hold=hold,
        reason=_reason(found, hold),
        message=hold.message if hold is not None else found.message,
        query=found.query,
        wake_at=min((moment for moment in moments if moment is not None), default=None),
        parts=found.parts if _needs_parts(snapshot.job, run) else (),
        may_create_parts=may_start,
        keeps_parts=found.keeps_parts and _needs_parts(snapshot.job, run),
    )


def _needs_parts(job: Job, run: RunState) -> bool:
    """Return whether the run needs its parts: one that fails does until that is written.

    Its failure may be what a part has found. If that were deleted first, and the write refused, the
    part would run again. One that is done needs none, although its success cannot be written yet.
    """
    if run.is_enough or run.is_done or run.outcome == RunOutcome.SUCCEEDED:
        return False
    return run.outcome != RunOutcome.FAILED or not job.is_true(ConditionType.FAILED)


def keeps_turn(known: NodeRecord | None, record: NodeRecord) -> bool:
    """Return whether the node still has the turn of its written record `known`.

    It gives it back when it is removed, when it is set aside, and when it is tried again after a
    failure: it freed its place then. A new revision has a rollout of its own.
    """
    if known is None or known.turn_at is None or known.uid != record.uid:
        return False
    if known.revision != record.revision:
        return False
    if record.state == NodeState.REMOVED:
        return False
    is_again = known.state == NodeState.FAILED and record.state not in {
        NodeState.FAILED,
        NodeState.COMPLETED,
    }
    return not is_again


def _reason(found: Advance, hold: Hold | None) -> ProgressingReason | None:
    if hold is not None:
        return hold.reason
    return ProgressingReason.ROLLOUT_SOAKING if found.message and found.asks is None else None


def _first_pods_at(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> datetime | None:
    """Return until when turns wait for the first pods of all nodes, None if they do not."""
    began = snapshot.job.status.start_time
    if began is None or not counts.desired_is_known:
        return now + timedelta(seconds=FIRST_PODS_SECONDS)
    if counts.is_exact:
        return None
    limit = add_seconds(began, FIRST_PODS_SECONDS)
    return limit if now < limit else None


def _give_turns(
    snapshot: Snapshot, counts: NodeCounts, places: Places, progress: RolloutProgress
) -> dict[str, int]:
    """Return the nodes that get their turn now, with the step. It has to be the written one.

    A node that joins a run after its completion belongs to no step.
    """
    job = snapshot.job
    written = written_progress(job)
    if written is None or written.step != progress.step:
        return {}
    is_late = job.is_true(ConditionType.COMPLETE) and not job.spec.is_continuous
    number = progress.steps + 1 if is_late else progress.step
    members = find_members(snapshot, counts, places, number)
    limits = find_limits(snapshot, counts)
    # Shares are of the number of desired nodes, which is about to change.
    waiting = members.waiting if counts.desired_is_current else ()
    given = choose(waiting, places.taken.values(), limits)
    unrecorded = _started_without_turn(counts, places) | find_ended_without_turn(snapshot, counts)
    return dict.fromkeys(sorted(unrecorded | {place.name for place in given}), progress.step)


def _started_without_turn(counts: NodeCounts, places: Places) -> set[str]:
    """Return the nodes that have started in the present try, and whose turn is not on record.

    A pod of an earlier try is about to be replaced. The next one waits for the node's turn.
    """
    return {
        name
        for name in counts.nodes.keys() & places.started - places.turned.keys()
        if not (counts.nodes[name].replace_pod or counts.nodes[name].awaits_retry)
    }


def _find_open_pods(
    snapshot: Snapshot, counts: NodeCounts, places: Places, hold: Hold | None
) -> tuple[Pod, ...]:
    """Return the pods of the nodes whose turn is written, as far as the limits allow.

    The limits hold here once more: they may have been lowered since, and two controllers, of which
    one no longer leads, give the same nodes their places.
    """
    found = [
        (record.turn_at, name, counts.nodes[name])
        for name, record in places.turned.items()
        if name in counts.nodes and name in places.taken
    ]
    due = [
        Place(name, places.taken[name].zone)
        for _, name, node in sorted(found, key=lambda each: (str(each[0]), each[1]))
        if _may_open(node, places.turned[name], hold)
    ]
    chosen = choose(due, places.at_work, find_limits(snapshot, counts))
    return tuple(counts.nodes[place.name].pod for place in chosen)


def _may_open(node: DesiredNode, written: NodeRecord, hold: Hold | None) -> bool:
    if not node.pod.is_gated or node.replace_pod or node.awaits_retry or node.awaits_record:
        return False
    if node.state in {NodeState.COMPLETED, NodeState.FAILED}:
        return False
    if not keeps_turn(written, node.record):
        return False
    # The next pod of a node that has begun goes on with its work. Of one whose pod was taken back,
    # and is gone, nothing shows that it has: it only counts as begun.
    return hold is None or (written.attempts > 0 and written.started_at is not None)


def _find_dead_pods(snapshot: Snapshot, counts: NodeCounts) -> tuple[Pod, ...]:
    """Return the pods of nodes that are set aside: another node has taken their place."""
    if snapshot.job.spec.rollout is None:
        return ()
    return tuple(
        counts.nodes[name].pod
        for name in sorted(counts.set_aside)
        if name in counts.nodes and not counts.nodes[name].pod.is_gated
    )
