"""Whatever pauses a run: its condition has the command that lets the run go on."""

from dataclasses import replace

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.rollout import Check, Rollout, Step
from tests.unit.core.rollouts import RolloutWorld, steps

CANARY = {"matchLabels": {"canary": "true"}}
READY = Check(node_ready=True, timeout_seconds=30)
PAUSE = FailurePolicy(FailureAction.PAUSE)


def approval(world):
    world.step(6)
    world.complete("a")
    world.step(5)


def fail_check(world):
    world.step(6)
    world.complete("a")
    world.set_ready("a", is_ready=False)
    world.step(45)


def fail_node(world):
    world.step(6)
    world.fail("a")
    world.step(40)


def lose_node(world):
    world.step(6)
    world.lose("a")
    world.step(10)


def suspend(world):
    world.step(6)
    spec = replace(world.cluster.job.spec, suspend=True)
    world.cluster.job = replace(world.cluster.job, spec=spec)
    world.step(3)


def stop(world):
    words = "stopped. It ends with kubectl dsjob resume-all"
    world.cluster.job = replace(world.cluster.job, stop_message=words)
    world.step(6)


@pytest.mark.parametrize(
    ("rollout", "happens", "reason", "answer"),
    [
        (steps(Step(nodes=1, needs_approval=True)), approval, "WaitingForApproval", "approve"),
        (steps(Step(selector=CANARY)), approval, "CheckInconclusive", "approve"),
        (steps(Step(nodes=1, check=READY)), fail_check, "CheckFailed", "retry"),
        (Rollout(max_parallel=1), fail_node, "MaxFailedNodesExceeded", "retry --failed"),
        (Rollout(max_parallel=1), suspend, "Suspended", "resume"),
    ],
)
def test_the_condition_has_the_command_that_answers(rollout, happens, reason, answer):
    world = RolloutWorld("a", "b", "c", rollout=rollout, failure_policy=PAUSE)
    if reason == "CheckInconclusive":
        world.step(6)
    else:
        happens(world)
    status, found, message = world.condition("Suspended")
    assert (status, found) == ("True", reason)
    assert f"`kubectl dsjob {answer} sample -n default`" in message


def test_a_run_that_waits_for_unreachable_nodes_says_what_lets_it_go_on():
    world = RolloutWorld("a", "b", "c", rollout=Rollout(max_parallel=1), failure_policy=PAUSE)
    lose_node(world)
    message = world.condition("Suspended")[2]
    assert "1 unreachable (a)" in message
    assert "goes on when these nodes are back" in message
    assert "maxFailedNodes" in message
    assert "retry" not in message


def with_failed_and_lost_node(policy):
    """Return a rollout in which a has failed, and b is unreachable."""
    world = RolloutWorld("a", "b", "c", rollout=Rollout(max_parallel=1), failure_policy=policy)
    fail_node(world)
    world.lose("b")
    world.step(10)
    return world


def test_a_run_that_waits_because_of_maxunreachablenodes_names_that_limit():
    policy = FailurePolicy(FailureAction.PAUSE, max_failed_nodes=1, max_unreachable_nodes=0)
    world = with_failed_and_lost_node(policy)
    message = world.condition("Suspended")[2]
    assert "goes on when the unreachable nodes are back" in message
    assert "retry" not in message
    higher = "a higher spec.failurePolicy.maxUnreachableNodes lets the others go on"
    assert higher in message
    spec = world.cluster.job.spec
    policy = replace(policy, max_unreachable_nodes=1)
    world.cluster.job = replace(world.cluster.job, spec=replace(spec, failure_policy=policy))
    world.step(5)
    assert world.phase == "Running"


def test_a_run_that_is_over_both_limits_names_both_answers():
    policy = FailurePolicy(FailureAction.PAUSE, max_unreachable_nodes=0)
    world = with_failed_and_lost_node(policy)
    message = world.condition("Suspended")[2]
    assert "retry --failed" in message
    assert "goes on when the unreachable nodes are back" in message
    assert "maxFailedNodes and maxUnreachableNodes let the others go on" in message


def test_a_stop_of_all_jobs_has_its_own_command():
    world = RolloutWorld("a", rollout=Rollout(max_parallel=1))
    stop(world)
    assert "kubectl dsjob resume-all" in world.condition("Suspended")[2]
