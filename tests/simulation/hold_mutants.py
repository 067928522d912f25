"""Deliberate defects of what holds nodes up, and of what ends a run early; see `mutants`."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.job import Job
from job_controller import snapshots
from job_controller.actions import exclusive_nodes
from job_controller.core import start
from job_controller.core.rollout import members, rollout_state, script_check, steps
from job_controller.core.rollout.kept_nodes import KeptNodes
from job_controller.core.rollout.members import StepMembers
from job_controller.core.rollout.steps import Advance
from job_controller.core.state import run_state, success_policy
from job_controller.core.state.exclusive import NO_OTHER_USE
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.stop_watch import StopWatch
from tests.simulation.record_mutants import Mutant


@contextmanager
def ignores_stops() -> Iterator[None]:
    """No stop of all Jobs is seen."""
    with patch.object(StopWatch, "message", lambda _: ""):
        yield


@contextmanager
def suspends_nothing() -> Iterator[None]:
    """A Job is never suspended."""
    with patch.object(Job, "is_suspended", property(lambda _: False)):
        yield


@contextmanager
def ignores_windows() -> Iterator[None]:
    """Every window is open."""
    with patch.object(rollout_state, "find_hold", lambda *_: None):
        yield


@contextmanager
def forgets_the_nodes_of_steps() -> Iterator[None]:
    """A node that waits for another turn is like one that has had none."""
    with patch.object(members, "find_kept", lambda *_: KeptNodes()):
        yield


@contextmanager
def selects_every_node() -> Iterator[None]:
    """A step that selects its nodes by labels is taken for one that selects all."""
    with patch.object(members, "parse_label_selector", lambda _: NodeAffinity({})):
        yield


@contextmanager
def ends_steps_before_all_are_chosen() -> Iterator[None]:
    """A step that selects by labels is over when the nodes that had their turn have finished."""
    real = members.find_members

    def find(*about: Any) -> StepMembers:
        found = real(*about)
        return replace(found, is_done=found.is_done or bool(found.had_turn))

    with patch.object(steps, "find_members", find):
        yield


@contextmanager
def approves_steps_itself() -> Iterator[None]:
    """No step waits for approval."""
    real = steps._decide

    def decide(job: Job, end: Any, *rest: Any) -> Advance:
        return real(job, replace(end, step=replace(end.step, needs_approval=False)), *rest)

    with patch.object(steps, "_decide", decide):
        yield


@contextmanager
def skips_soaks() -> Iterator[None]:
    """A step is over as soon as its nodes are done, however long it is to soak."""
    real = steps._finish_step

    def finish(snapshot: Any, counts: Any, end: Any, *rest: Any) -> Advance:
        return real(snapshot, counts, replace(end, step=replace(end.step, soak_seconds=0)), *rest)

    with patch.object(steps, "_finish_step", finish):
        yield


@contextmanager
def keeps_what_another_script_found() -> Iterator[None]:
    """A script of a step passes for the one that a user has put in its place."""
    with patch.object(steps, "without_other_script", lambda progress, _check: progress):
        yield


@contextmanager
def leaves_a_node_out_of_the_check() -> Iterator[None]:
    """The script of a check does not run on the first node of the step."""
    real = script_check.check_by_script

    def check(snapshot: Any, check: Any, progress: Any, nodes: Collection[str], now: Any) -> Any:
        return real(snapshot, check, progress, sorted(nodes)[1:], now)

    with patch.object(steps, "check_by_script", check):
        yield


@contextmanager
def passes_nodes_without_the_script() -> Iterator[None]:
    """A script passes once its Job has succeeded, on how many nodes it may have run."""
    with patch.object(script_check, "_describe_lacking", lambda _run, _due: ""):
        yield


@contextmanager
def starts_nodes_after_failure() -> Iterator[None]:
    """Nodes that wait may start although the run has failed."""
    is_open = property(lambda run: run.outcome != RunOutcome.PAUSED)
    with patch.object(RunState, "is_open", is_open):
        yield


@contextmanager
def continues_after_abort() -> Iterator[None]:
    """An abort is not acted on."""
    with patch.object(run_state, "_by_abort", lambda *_: None):
        yield


@contextmanager
def waits_for_no_job() -> Iterator[None]:
    """A run starts whatever has become of those that it is to follow."""
    with patch.object(start, "find_waiting", lambda *_: None):
        yield


@contextmanager
def ends_before_the_last_step() -> Iterator[None]:
    """Once all nodes are done the run has succeeded, whatever the last step waits for."""
    with patch.object(rollout_state, "_ends_too_early", lambda *_: False):
        yield


@contextmanager
def shares_exclusive_nodes() -> Iterator[None]:
    """No other Job with the same key uses a node."""
    with (
        patch.object(snapshots, "find_use", lambda *_: NO_OTHER_USE),
        patch.object(exclusive_nodes, "is_at_work", lambda *_: False),
    ):
        yield


@contextmanager
def needs_one_node() -> Iterator[None]:
    """One completed node is enough where `successPolicy.minCompleted` asks for more."""
    with patch.object(success_policy, "required_completions", lambda *_: 1):
        yield


HOLD_MUTANTS: tuple[Mutant, ...] = (
    ignores_stops,
    suspends_nothing,
    ignores_windows,
    approves_steps_itself,
    skips_soaks,
    keeps_what_another_script_found,
    leaves_a_node_out_of_the_check,
    passes_nodes_without_the_script,
    starts_nodes_after_failure,
    forgets_the_nodes_of_steps,
    selects_every_node,
    ends_steps_before_all_are_chosen,
    continues_after_abort,
    waits_for_no_job,
    shares_exclusive_nodes,
    needs_one_node,
    ends_before_the_last_step,
)
