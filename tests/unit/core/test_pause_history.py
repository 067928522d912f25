"""A pause that begins while another one lasts: it is in the history, and so it is notified."""

from dataclasses import replace

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.rollout import Check, Rollout, Step
from tests.unit.core.rollouts import RolloutWorld, steps

APPROVAL = steps(Step(nodes=1, needs_approval=True), max_parallel=1)
PAUSE = FailurePolicy(FailureAction.PAUSE)


def make_world(rollout=APPROVAL):
    world = RolloutWorld("a", "b", "c", rollout=rollout, failure_policy=PAUSE)
    world.step(6)
    return world


def suspend(world, value):
    job = world.cluster.job
    spec = replace(job.spec, suspend=value)
    world.cluster.job = replace(job, spec=spec, generation=job.generation + 1)
    world.step(3)


def stop(world, words):
    world.cluster.job = replace(world.cluster.job, stop_message=words)
    world.step(3)


def pauses(world):
    entries = world.cluster.report_status["history"]
    reasons = [entry["reason"] for entry in entries]
    return [each for each in reasons if each in {"Paused", "WaitingForApproval", "Resumed"}]


def test_a_failure_while_the_run_is_suspended_pauses_it_once_more():
    world = make_world()
    suspend(world, True)
    world.fail("a")
    world.step(40)
    suspend(world, False)
    assert world.condition("Suspended")[1] == "MaxFailedNodesExceeded"
    assert pauses(world) == ["Paused", "Paused"]
    world.step(10)
    assert len(pauses(world)) == 2
    assert "1 of 3 nodes failed" in world.cluster.report_status["history"][-1]["message"]


@pytest.mark.parametrize("hold", [suspend, stop])
def test_a_step_that_ends_while_the_run_is_held_asks_when_that_is_over(hold):
    world = make_world()
    hold(world, "stopped" if hold is stop else True)
    world.complete("a")
    world.step(5)
    hold(world, "" if hold is stop else False)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    assert pauses(world) == ["Paused", "WaitingForApproval"]


@pytest.mark.parametrize("hold", [suspend, stop])
def test_a_run_that_waits_is_not_said_to_wait_again(hold):
    world = make_world()
    world.complete("a")
    world.step(5)
    hold(world, "stopped" if hold is stop else True)
    hold(world, "" if hold is stop else False)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    assert pauses(world) == ["WaitingForApproval"]


def test_a_crash_between_report_and_job_repeats_no_pause():
    world = make_world(Rollout(max_parallel=1))
    suspend(world, True)
    world.fail("a")
    world.step(40)
    before = world.cluster.job
    suspend(world, False)
    # The write of the Job's status is lost, and that of the report is not.
    world.cluster.job = replace(world.cluster.job, status=before.status)
    world.step(5)
    assert pauses(world) == ["Paused", "Paused"]


def test_further_failures_of_a_paused_run_are_no_further_pause():
    world = make_world(Rollout(max_parallel=2))
    world.fail("a")
    world.step(40)
    world.fail("b")
    world.step(40)
    assert "2 of 3 nodes failed" in world.condition("Suspended")[2]
    assert pauses(world) == ["Paused"]


def test_a_step_that_asks_after_another_one_was_approved_in_a_held_run_is_a_pause_of_its_own():
    no_node = {"matchLabels": {"canary": "true"}}
    world = make_world(steps(Step(nodes=1, needs_approval=True), Step(selector=no_node)))
    world.complete("a")
    world.step(5)
    suspend(world, True)
    world.request(approved_step=1)
    world.step(5)
    suspend(world, False)
    assert world.condition("Suspended")[1] == "CheckInconclusive"
    assert pauses(world) == ["WaitingForApproval", "WaitingForApproval"]
    world.step(20)
    assert len(pauses(world)) == 2
    assert "step 2 of 2" in world.cluster.report_status["history"][-1]["message"]


def test_a_check_that_fails_once_more_after_a_retry_of_a_held_run_is_a_pause_of_its_own():
    ready = Check(node_ready=True, timeout_seconds=30)
    world = make_world(steps(Step(nodes=1, check=ready)))
    world.complete("a")
    world.set_ready("a", is_ready=False)
    world.step(45)
    suspend(world, True)
    world.retry()
    world.step(45)
    suspend(world, False)
    assert world.condition("Suspended")[1] == "CheckFailed"
    assert pauses(world) == ["Paused", "Paused"]
    world.step(20)
    assert len(pauses(world)) == 2


def test_a_failure_that_is_known_is_not_said_again_when_a_step_is_approved():
    world = make_world(steps(Step(nodes=1, needs_approval=True), max_parallel=2))
    world.complete("a")
    world.lose("b")
    world.step(10)
    suspend(world, True)
    world.request(approved_step=1)
    world.step(5)
    suspend(world, False)
    assert world.condition("Suspended")[1] == "MaxFailedNodesExceeded"
    assert pauses(world)[-1:] == ["Paused"]
    assert pauses(world).count("Paused") == 1
