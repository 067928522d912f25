"""A change of what a Job that stays runs is rolled out from its first step on."""

import pytest

from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rollout import Step
from tests.unit.builders import gated_pod, make_node, make_pod
from tests.unit.core.rollouts import steps
from tests.unit.core.standing_jobs import change
from tests.unit.core.standing_rollouts import StandingWorld

NODES = ("a", "b", "c", "d")
CANARY = Step(nodes=1, needs_approval=True)


def test_pods_of_the_revision_before_give_their_nodes_no_turn():
    world = StandingWorld(*NODES, rollout=steps(CANARY))
    world.finish()
    world.change_and_lag()
    assert world.ran_newest() == ["a"]
    world.complete("a")
    world.step(10)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    assert world.ran_newest() == ["a"]
    world.finish()
    assert world.ran_newest() == list(NODES)


def test_nodes_at_work_in_the_revision_before_wait_for_their_step():
    world = StandingWorld(*NODES, rollout=steps(Step(nodes=1), max_parallel=2))
    while len(world.at_work) < 2:
        world.complete(*world.at_work)
        world.step()
    world.step(20)
    world.change_and_lag()
    assert world.ran_newest() == ["a"]


def test_a_turn_that_was_not_taken_ends_with_its_revision():
    world = StandingWorld(*NODES, rollout=steps(Step(nodes=1), max_parallel=2))
    while "c" not in world.turns():
        world.complete(*world.at_work)
        world.step()
    assert [name for name, _ in world.ran] == ["a"]
    change(world.cluster, suspend=True)
    world.step(3)
    change(world.cluster, args=("x",))
    world.step(3)
    change(world.cluster, suspend=False)
    world.step(10)
    assert world.ran_newest() == ["a"]


def test_nodes_that_left_with_an_earlier_revision_are_not_counted_in_a_step():
    pool = NodeSelection(selector={"matchLabels": {"pool": "x"}})
    for first in (CANARY, Step(selector={"matchLabels": {"kind": "canary"}})):
        world = StandingWorld(*NODES, rollout=steps(first), nodes=pool)
        for name in NODES:
            world.label(name, pool="x")
        world.label("d", pool="x", kind="canary")
        world.finish()
        world.label("d", pool="y", kind="canary")
        world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "d"]
        world.cluster.desired = 3
        world.step(3)
        change(world.cluster, args=("x",))
        world.step(10)
        expected = ["a"] if first == CANARY else []
        assert world.ran_newest() == expected
        assert world.phase == ("Running" if expected else "Paused")


@pytest.mark.parametrize("is_ending", [True, False])
def test_no_step_is_over_while_it_is_not_known_whether_the_daemon_set_counts_one_that_left(
    is_ending: bool,
) -> None:
    """Its pod is gone for the DaemonSet controller and not for the cache, or the reverse."""
    pool = NodeSelection(selector={"matchLabels": {"pool": "x"}})
    world = StandingWorld(*NODES, rollout=steps(CANARY), nodes=pool)
    for name in NODES:
        world.label(name, pool="x")
    world.finish()
    world.label("d", pool="y")
    world.take_pod("d")
    world.cluster.desired, world.cluster.scheduled = 3, 3
    world.step(3)
    if is_ending:
        world.put(make_pod("d", is_terminating=True))
    else:
        world.cluster.misscheduled = 1
    change(world.cluster, args=("x",))
    world.step(10)
    assert world.cluster.job.status.nodes.desired == 4
    assert world.cluster.job.status.rollout.step == 1
    assert world.ran_newest() == ["a"]


def test_no_step_is_over_while_all_nodes_have_left_with_an_earlier_revision():
    """Else the nodes that join next would start together, without the canary."""
    pool = NodeSelection(selector={"matchLabels": {"pool": "x"}})
    world = StandingWorld("a", "b", rollout=steps(CANARY), nodes=pool)
    for name in ("a", "b"):
        world.label(name, pool="x")
    world.finish()
    for name in ("a", "b"):
        world.label(name, pool="y")
    world.cluster.pods, world.cluster.desired = [], 0
    world.step(3)
    change(world.cluster, args=("x",))
    world.step(10)
    assert world.cluster.job.status.rollout.step == 1
    for name in ("c", "d"):
        world.label(name, pool="x")
        world.put(gated_pod(name, serial=1))
    world.cluster.desired = 2
    world.step(10)
    assert world.ran_newest() == ["c"]


def test_no_step_is_over_while_all_nodes_of_a_job_that_stays_are_set_aside():
    policy = FailurePolicy(max_failed_nodes="100%")
    world = StandingWorld(*NODES, rollout=steps(CANARY), failure_policy=policy)
    for name in NODES:
        world.lose(name)
    world.step(20)
    assert all(each["setAsideAt"] for each in world.cluster.report_status["nodeStates"].values())
    for name in NODES:
        world.cluster.nodes[name] = make_node(name)
    world.step(10)
    assert world.started == ["a"]


def test_nobody_approves_the_nodes_of_the_revision_before():
    """The second step has no nodes of its own, and the turn of c was in an earlier revision."""
    first = Step(nodes=1, needs_approval=True)
    world = StandingWorld("a", "b", "c", rollout=steps(first, first))
    world.step(6)
    world.complete("a")
    world.step(6)
    world.request(approved_step=1)
    world.step(8)
    assert world.turns() == {"a": 1, "b": 3, "c": 3}
    world.complete("b")
    world.step(2)
    world.remove("c")
    world.step(3)
    assert world.cluster.report_status["nodeStates"]["c"]["step"] == 3
    world.request()
    world.change_and_lag()
    world.complete("a")
    world.step(6)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    world.request(approved_step=1)
    world.step(10)
    assert world.ran_newest() == ["a", "b"]
