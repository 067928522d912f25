"""Nodes that leave the selection of a rollout while they are not Ready, and their tasks work on."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from job_controller.core.state import left_nodes
from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task

SPEC = {
    "image": "example/task:1",
    "nodes": {"selector": {"matchLabels": {"zone": "a"}}},
    "rollout": {"maxParallel": 1},
}
# The task on n0 does not end when its pod is deleted, but only when it is killed.
NODES = (NodePlan("n0", (Task("done", 60.0, on_term="deaf"),)), NodePlan("n1"))
AWAY = Disturbance(10.0, "not_ready", what="n0", seconds=30.0)
LEAVES = (
    Disturbance(12.0, "zone", what="n0"),
    Disturbance(12.0, "taint", what="n0", mode="NoExecute"),
    Disturbance(12.0, "edit", "default/sample", "-n0", "nodes"),
)


def run(*disturbances):
    return simulate(Schedule(0, NODES, (JobPlan(spec=SPEC),), disturbances, calm=True))


@pytest.mark.parametrize("leaves", LEAVES, ids=lambda leaves: leaves.kind)
def test_no_node_starts_beside_one_that_has_left_and_whose_task_works_on(leaves):
    assert not run(AWAY, leaves).violations


@pytest.mark.parametrize("leaves", LEAVES, ids=lambda leaves: leaves.kind)
def test_a_place_that_is_free_at_once_is_a_violation(leaves):
    with patch.object(left_nodes, "left_limit", lambda _snapshot: timedelta(0)):
        assert run(AWAY, leaves).kinds == {"turns"}


@pytest.mark.parametrize("leaves", LEAVES, ids=lambda leaves: leaves.kind)
@pytest.mark.parametrize("is_away", [False, True])
def test_no_node_starts_beside_one_whose_daemon_set_was_deleted(leaves, is_away):
    """Its task works on for as long as its pod is being deleted."""
    deleted = Disturbance(11.0, "delete_daemon_set", "default/sample")
    assert not run(*((AWAY,) if is_away else ()), deleted, leaves).violations


@pytest.mark.parametrize("at", [10.5, 12.0])
def test_no_node_starts_beside_a_deleted_one_whose_daemon_set_was_deleted(at):
    deleted = Disturbance(11.0, "delete_daemon_set", "default/sample")
    assert not run(deleted, Disturbance(at, "reregister", what="n0", seconds=30.0)).violations


@pytest.mark.parametrize("leaves", LEAVES, ids=lambda leaves: leaves.kind)
def test_a_node_that_is_down_and_whose_daemon_set_was_deleted_does_not_hold_the_others_up(leaves):
    deleted = Disturbance(11.0, "delete_daemon_set", "default/sample")
    assert not run(Disturbance(10.0, "down", what="n0"), deleted, leaves).violations


@pytest.mark.parametrize("leaves", LEAVES, ids=lambda leaves: leaves.kind)
def test_a_node_that_is_down_for_good_and_has_left_does_not_hold_the_others_up(leaves):
    assert not run(Disturbance(10.0, "down", what="n0"), leaves).violations


def test_a_place_that_is_never_free_is_a_violation():
    with patch.object(left_nodes, "left_limit", lambda _snapshot: timedelta(days=1)):
        assert run(Disturbance(10.0, "down", what="n0"), LEAVES[0]).kinds == {"stuck"}


NODES_OF_STEPS = tuple(NodePlan(f"n{i}", (Task("done", 5.0),)) for i in range(4))
APPROVED = {"maxParallel": 1, "steps": [{"nodes": 1, "approval": "Required"}]}
APPROVAL = Disturbance(30.0, "approve", "default/sample", "1")


def run_steps(rollout, *disturbances):
    spec = {"image": "example/task:1", "rollout": rollout}
    return simulate(Schedule(0, NODES_OF_STEPS, (JobPlan(spec=spec),), disturbances, calm=True))


def test_a_node_that_is_deleted_before_its_task_began_is_no_violation_of_its_step():
    """It has had its turn, so the other nodes follow together."""
    down, leave = Disturbance(0.3, "down", what="n1"), Disturbance(2.0, "leave", what="n1")
    assert not run_steps({"steps": [{"nodes": 2}]}, down, leave).violations


@pytest.mark.parametrize(
    "disturbances",
    [
        (
            Disturbance(0.3, "cordon", what="n0", seconds=3.0),
            Disturbance(0.3, "delete_pod", what="n0"),
            Disturbance(0.4, "edit", "default/sample", "+n1", "nodes", 8.0),
        ),
        (
            Disturbance(7.0, "edit", "default/sample", "-n9", "nodes"),
            Disturbance(8.0, "taint", what="n0", mode="NoExecute"),
        ),
    ],
    ids=["taken out", "leaves after an edit"],
)
def test_a_node_that_makes_room_in_its_step_is_no_violation(disturbances):
    assert not run_steps(APPROVED, *disturbances, APPROVAL).violations


def test_a_node_that_is_back_after_a_turn_that_it_did_not_take_may_start_in_a_later_step():
    """The node left with its pod past the gate, so its step counted it, and went on without it."""
    rollout = {
        "maxParallel": 1,
        "steps": [{"nodes": 1}, {"nodes": 2, "soakSeconds": 20, "approval": "Required"}],
    }
    late = Disturbance(5.0, "slow_scheduler", seconds=3.0)
    again = Disturbance(6.5, "reregister", what="n1", seconds=22.0)
    approval = Disturbance(15.0, "approve", "default/sample", "2")
    assert not run_steps(rollout, late, again, approval).violations


def test_a_deleted_node_whose_task_works_on_is_in_its_zone():
    """The other node is in no zone, and the pull of its image takes longer."""
    nodes = (
        NodePlan("n0", (Task("done", 20.0),), topology_zone="a"),
        NodePlan("n1", (Task("slow", 8.0),)),
    )
    spec = {"image": "example/task:1", "rollout": {"maxParallelPerZone": 1}}
    again = Disturbance(9.0, "reregister", what="n0", seconds=4.0)
    assert not simulate(Schedule(0, nodes, (JobPlan(spec=spec),), (again,), calm=True)).violations
