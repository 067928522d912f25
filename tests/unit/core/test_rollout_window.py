"""The window of a rollout: looked at before every turn."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from daemonset_job.api.rollout import Rollout, WindowSpec
from job_controller.core.plan import RefusedWrite
from tests.unit.builders import gated_pod, make_pod
from tests.unit.core.rollouts import WITHIN_ONE, RolloutWorld
from tests.unit.core.runs import FAILED, spec
from tests.unit.core.standing_rollouts import StandingWorld

NIGHT = Rollout(max_parallel=1, window=WindowSpec("0 22 * * *", "2h"))
OPEN, CLOSED = datetime(2026, 1, 2, 22, 30, tzinfo=UTC), datetime(2026, 1, 3, 0, 30, tzinfo=UTC)


def start_in_window(world, *names):
    """Open the window, and step until the tasks of these nodes have started."""
    world.now = OPEN
    while world.started != [*names]:
        world.step()


def test_no_node_starts_outside_the_window():
    world = RolloutWorld("a", "b", rollout=NIGHT)
    world.now = CLOSED
    world.step(5)
    assert world.turns() == {}
    assert world.condition("Progressing")[1] == "OutsideWindow"
    assert "2026-01-03T22:00:00Z" in world.condition("Progressing")[2]


def test_a_window_that_closes_stops_further_turns_and_the_next_one_goes_on():
    world = RolloutWorld("a", "b", rollout=NIGHT)
    world.now = OPEN
    world.step(5)
    assert world.started == ["a"]
    world.now = CLOSED
    world.complete("a")
    world.step(5)
    assert world.started == ["a"]
    world.now = OPEN.replace(day=3)
    world.finish()
    assert world.started == ["a", "b"]


def test_a_turn_on_record_is_not_taken_after_the_window_has_closed():
    world = RolloutWorld("a", "b", rollout=NIGHT)
    world.now = OPEN
    while not world.turns():
        world.step()
    world.now = CLOSED
    world.step(5)
    assert world.started == []


def test_a_window_that_cannot_be_read_starts_nothing_and_names_the_field():
    rollout = Rollout(window=WindowSpec("0 22 * *", "2h"))
    world = RolloutWorld("a", rollout=rollout)
    world.step(4)
    assert world.started == []
    assert world.condition("Progressing")[:2] == ("False", "InvalidWindow")
    assert "spec.rollout.window.start" in world.condition("Progressing")[2]


def test_a_node_whose_pod_was_taken_back_waits_for_the_window():
    """Its last status was not seen, so that the run counts as begun; nothing shows that it has."""
    world = RolloutWorld("a", rollout=NIGHT)
    world.now = OPEN
    while not world.started:
        world.step()
    world.put(make_pod("a", state="waiting", phase="Pending", uid="pod-a-1"))
    spec(world.cluster, suspend=True)
    world.step(5)
    assert (world.cluster.report_status or {})["nodeStates"]["a"]["attempts"] == 1
    world.now = CLOSED
    spec(world.cluster, suspend=False)
    world.step(5)
    assert world.started == ["a"]
    world.now = OPEN.replace(day=3)
    world.step(5)
    assert world.started == ["a", "a"]


def test_the_next_pod_of_a_node_that_has_begun_starts_outside_the_window():
    world = RolloutWorld("a", rollout=NIGHT)
    world.now = OPEN
    while not world.started:
        world.step()
    world.put(make_pod("a", uid="pod-a-1", started_at=OPEN))
    world.step(2)
    world.put(gated_pod("a", serial=2))
    world.now = CLOSED
    world.step(5)
    assert world.started == ["a", "a"]


@pytest.mark.parametrize("is_retried", [False, True])
def test_so_it_does_when_its_gate_cannot_be_removed_at_once(is_retried):
    """A retry gives a task at work another pod: its node has not failed, and keeps its turn."""
    world = RolloutWorld("a", rollout=NIGHT, backoff_limit=20)
    world.now = OPEN
    while not world.started:
        world.step()
    world.put(replace(make_pod("a", uid="pod-a-1", started_at=OPEN), container=FAILED))
    world.step(2)
    world.now = CLOSED
    if is_retried:
        world.retry()
        world.step()
    world.put(gated_pod("a", serial=2))
    world.extra["refusals"] = {RefusedWrite.GATE_REMOVAL: "no more writes"}
    world.step(3)
    world.extra["refusals"] = {}
    world.step(3)
    assert world.started == ["a", "a"]


@pytest.mark.parametrize("others", [(), ("c",)])
def test_a_run_with_nothing_else_to_do_does_not_wait_for_a_dead_node_until_its_window(others):
    """While other nodes wait for the window, the dead one keeps its turn: it may be back then."""
    rollout = replace(NIGHT, max_parallel=2)
    world = RolloutWorld("a", "b", *others, rollout=rollout, failure_policy=WITHIN_ONE)
    start_in_window(world, "a", "b")
    world.complete("a")
    world.lose("b")
    world.now = CLOSED
    world.step(5)
    assert world.phase == ("Running" if others else "Succeeded")
    assert ("setAsideAt" in world.cluster.report_status["nodeStates"]["b"]) == (not others)


def test_a_run_waits_for_its_window_with_a_node_that_is_away_and_has_had_no_turn():
    """A reboot by day ended the run without it. The window is when it would have started."""
    world = RolloutWorld("a", "b", rollout=NIGHT, failure_policy=WITHIN_ONE)
    start_in_window(world, "a")
    world.complete("a")
    world.now = CLOSED
    world.step(3)
    world.lose("b")
    world.step(5)
    assert world.phase == "Running"
    world.set_ready("b", is_ready=True)
    world.now = OPEN + timedelta(days=1)
    world.step(5)
    assert world.started == ["a", "b"]


def test_a_run_with_only_such_a_node_left_ends_once_its_window_opens():
    world = RolloutWorld("a", rollout=NIGHT, failure_policy=WITHIN_ONE)
    world.now = CLOSED
    world.step(3)
    world.lose("a")
    world.step(5)
    assert world.phase != "Succeeded"
    world.now = OPEN + timedelta(days=1)
    world.step(5)
    assert world.phase == "Succeeded"


def test_a_job_without_an_end_takes_no_turn_back_outside_its_window():
    rollout = replace(NIGHT, max_parallel=2)
    world = StandingWorld("a", "b", rollout=rollout, failure_policy=WITHIN_ONE)
    start_in_window(world, "a", "b")
    world.complete("a")
    world.lose("b")
    world.now = CLOSED
    world.step(5)
    assert world.turns() == {"a": 1, "b": 1}
