"""A check of a rollout that has failed holds the run until a person acts."""

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.rollout import Check, Step
from tests.unit.builders import gated_pod, make_node
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.runs import spec
from tests.unit.core.standing_jobs import select
from tests.unit.core.test_rollout_steps import BOTH_POLICIES, NODES, run_batch


@pytest.mark.parametrize("action", [FailureAction.PAUSE, FailureAction.CONTINUE])
@BOTH_POLICIES
def test_a_node_that_joins_does_not_let_a_rollout_go_on_whose_check_has_failed(action, changes):
    """It is a node of the step, too; but what the check has found is still so."""
    half = steps(Step(nodes="50%", check=Check(node_ready=True, timeout_seconds=30)))
    policy = FailurePolicy(action)
    world = RolloutWorld(*NODES, rollout=half, failure_policy=policy, **changes)
    assert run_batch(world) == ["a", "b"]
    world.set_ready("a", is_ready=False)
    world.step(45)
    assert world.condition("Suspended")[1] == "CheckFailed"
    for name in ("e", "f"):
        world.cluster.nodes[name] = make_node(name)
        world.put(gated_pod(name, serial=1))
    world.step(10)
    assert world.started == ["a", "b"]
    assert world.condition("Suspended")[:2] == ("True", "CheckFailed")
    world.set_ready("a", is_ready=True)
    world.retry()
    world.step(10)
    assert len(world.started) == 3


def leave(world: RolloutWorld) -> None:
    world.remove("b")


def exclude(world: RolloutWorld) -> None:
    select(world.cluster, "a")
    world.take_pod("b")
    world.cluster.desired = 1


@pytest.mark.parametrize("action", [FailureAction.PAUSE, FailureAction.CONTINUE])
@pytest.mark.parametrize("happens", [leave, exclude])
def test_a_run_does_not_succeed_because_all_other_nodes_leave(action, happens):
    """They may come back. After the end of the run they would start, although the check failed."""
    canary = steps(Step(nodes=1, check=Check(node_ready=True, timeout_seconds=30)))
    policy = FailurePolicy(action)
    world = RolloutWorld("a", "b", rollout=canary, failure_policy=policy)
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(45)
    world.set_ready("a", is_ready=True)
    happens(world)
    world.step(10)
    assert world.condition("Suspended")[:2] == ("True", "CheckFailed")
    assert world.started == ["a"]
    world.retry()
    world.step(10)
    assert world.condition("Complete")[:2] == ("True", "AllNodesCompleted")


def test_what_a_check_has_found_is_forgotten_with_its_step():
    """A step that is added later has its own check."""
    canary = steps(Step(nodes=1, check=Check(node_ready=True, timeout_seconds=30)))
    world = RolloutWorld(*NODES, rollout=canary, failure_policy=FailurePolicy(FailureAction.PAUSE))
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(45)
    assert world.condition("Suspended")[1] == "CheckFailed"
    spec(world.cluster, rollout=steps(max_parallel=1))
    world.step(2)
    progress = world.cluster.job.status.rollout
    assert progress is not None
    assert (progress.check_failure, progress.soak_started_at) == ("", None)
    world.set_ready("a", is_ready=True)
    spec(world.cluster, rollout=canary)
    world.finish()
    assert world.phase == "Succeeded"
