"""Rollouts: turns that are written before they are taken, within `maxParallel`."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from daemonset_job.api.choices import CompletionMode, FailureAction
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import Completion, FailurePolicy
from daemonset_job.api.rollout import Order, Rollout
from job_controller.core.plan import ApplyDaemonSet, DeletePods, RemoveSchedulingGates
from tests.unit.builders import NOW, gated_pod, make_node, make_pod
from tests.unit.core.rollouts import WITHIN_ONE, RolloutWorld
from tests.unit.core.runs import acts

ONE = Rollout(max_parallel=1)
NODES = ("a", "b", "c", "d")


def test_no_gate_is_removed_before_the_turn_is_on_record():
    world = RolloutWorld(*NODES, rollout=ONE)
    while not world.turns():
        assert not acts(world.step(), RemoveSchedulingGates)
    assert world.turns() == {"a": 1}
    assert world.started == []
    world.step()
    assert world.started == ["a"]


def test_one_node_after_the_other():
    world = RolloutWorld(*NODES, rollout=ONE)
    for name in NODES:
        world.step(5)
        assert world.at_work == [name]
        world.complete(name)
    world.step(3)
    assert world.phase == "Succeeded"
    assert world.started == list(NODES)


def test_a_node_whose_pod_is_not_created_within_15_seconds_of_the_start_is_passed_over():
    world = RolloutWorld(*NODES, rollout=ONE)
    status = replace(world.cluster.job.status, start_time=world.now)
    world.cluster.job = replace(world.cluster.job, status=status)
    world.take_pod("a")
    world.step(14)
    assert world.turns() == {}
    world.step(5)
    assert world.turns() == {"b": 1}
    world.put(gated_pod("a", serial=1))
    world.finish()
    assert world.started == ["b", "a", "c", "d"]


@pytest.mark.parametrize(("limit", "count"), [("50%", 2), ("74%", 2), ("10%", 1), (3, 3), (9, 4)])
def test_a_percentage_is_rounded_down_and_at_least_one(limit, count):
    world = RolloutWorld(*NODES, rollout=Rollout(max_parallel=limit))
    world.step(5)
    assert len(world.at_work) == count


def test_without_a_limit_all_nodes_have_their_turn_at_once():
    world = RolloutWorld(*NODES, rollout=Rollout())
    world.step(5)
    assert world.at_work == list(NODES)


def test_the_template_has_the_gate_from_the_beginning():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.cluster.has_daemon_set = False
    (apply,) = acts(world.step(), ApplyDaemonSet)
    assert apply.body["spec"]["template"]["spec"]["schedulingGates"]


def test_suspension_gives_no_turn_and_takes_none_back():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(4)
    world.cluster.job = replace(
        world.cluster.job, spec=replace(world.cluster.job.spec, suspend=True)
    )
    world.step(2)
    world.complete("a")
    world.step(3)
    assert world.started == ["a"]
    assert world.phase == "Paused"
    assert not acts(world.plan, DeletePods)


def test_a_node_whose_pod_was_deleted_keeps_its_place_and_starts_again():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    world.put(gated_pod("a", serial=9))
    world.step(4)
    assert world.started == ["a", "a"]
    assert set(world.turns()) == {"a"}


def test_a_failed_node_makes_room_when_nothing_of_its_task_runs():
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=WITHIN_ONE)
    world.step(5)
    world.fail("a")
    for _ in range(40):
        world.step()
        if world.started != ["a"]:
            break
        assert "b" not in world.turns() or all(
            pod.is_gated for pod in world.cluster.pods if pod.node_name == "a"
        )
    assert world.started == ["a", "b"]


def test_a_completed_node_whose_task_runs_once_more_takes_no_place():
    """As after a reboot in mode Exit: the kubelet starts the task again, in the same pod."""
    exit_mode = Completion(mode=CompletionMode.EXIT)
    world = RolloutWorld(*NODES, rollout=ONE, completion=exit_mode)
    world.step(5)
    world.complete("a")
    again = Container(state="running", restart_count=1, last_exit_code=0)
    world.put(make_pod("a", serial=1, container=again))
    world.step(5)
    assert world.at_work == ["b"]


def test_a_lowered_limit_holds_turns_that_are_written_but_not_taken():
    world = RolloutWorld(*NODES, rollout=Rollout(max_parallel=3))
    while not world.turns():
        world.step()
    assert len(world.turns()) == 3
    world.cluster.job = replace(
        world.cluster.job, spec=replace(world.cluster.job.spec, rollout=ONE)
    )
    world.step(3)
    assert world.started == ["a"]
    world.finish()


def test_a_pod_that_runs_without_a_turn_takes_a_place():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.put(replace(gated_pod("c", serial=1), gates=(), is_scheduled=True))
    world.step(5)
    assert world.started == []
    assert set(world.turns()) == {"c"}


@pytest.mark.parametrize("limits", [{"max_parallel": 1}, {"max_parallel_per_zone": 1}])
def test_a_deleted_node_keeps_its_place_until_its_pod_is_gone(limits):
    """Its machine may go on with the task, as when a user deletes the Node object only."""
    world = RolloutWorld(*NODES, rollout=Rollout(**limits))
    world.step(5)
    assert world.started == ["a"]
    del world.cluster.nodes["a"]
    world.step(20)
    assert world.started == ["a"]
    world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "a"]
    world.step(5)
    assert world.started == ["a", "b"]


def test_a_deleted_node_that_has_completed_keeps_no_place():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    world.complete("a")
    del world.cluster.nodes["a"]
    world.step(5)
    assert world.started == ["a", "b"]


def test_a_zone_has_its_own_limit():
    world = RolloutWorld(*NODES, rollout=Rollout(max_parallel=3, max_parallel_per_zone=1))
    for name, zone in zip(NODES, "xxyy", strict=True):
        world.label(name, zone=zone)
    world.step(5)
    assert world.at_work == ["a", "c"]
    world.finish()


def test_spread_takes_one_node_of_each_zone_first():
    world = RolloutWorld(*NODES, rollout=Rollout(max_parallel=1, order=Order.SPREAD))
    for name, zone in zip(NODES, "xxyy", strict=True):
        world.label(name, zone=zone)
    world.finish()
    assert world.started == ["a", "c", "b", "d"]


def test_the_node_of_the_controller_is_the_last():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.settings = replace(world.settings, node_name="a")
    world.finish()
    assert world.started == ["b", "c", "d", "a"]


def test_a_random_order_is_the_same_in_each_pass_and_another_in_each_run():
    orders = set()
    for run in "123456":
        world = RolloutWorld(*NODES, rollout=Rollout(max_parallel=1, order=Order.RANDOM))
        world.cluster.job = replace(world.cluster.job, uid=f"{run}-uid")
        world.finish()
        orders.add(tuple(world.started))
        assert sorted(world.started) == list(NODES)
    assert len(orders) > 1


def test_nodes_that_failed_before_come_after_all_others_and_then_that_of_the_controller():
    failures = FailurePolicy(FailureAction.PAUSE)
    world = RolloutWorld("a", "b", "c", "d", rollout=ONE, failure_policy=failures)
    world.settings = replace(world.settings, node_name="b")
    world.step(5)
    world.fail("a")
    world.step(40)
    assert world.phase == "Paused"
    world.retry()
    world.finish()
    assert world.started == ["a", "c", "d", "a", "b"]


def test_the_pod_that_completed_a_former_node_takes_a_place_on_the_next_machine_of_its_name():
    """Its kubelet may start the task once more, until the controller has deleted the pod."""
    world = RolloutWorld("a", "b", rollout=Rollout(max_parallel=1))
    world.step(3)
    assert world.started == ["a"]
    (pod,) = [pod for pod in world.cluster.pods if pod.node_name == "a"]
    world.put(replace(pod, created_at=NOW))
    world.complete("a")
    later = world.now + timedelta(seconds=1)
    world.cluster.nodes["a"] = make_node("a", uid="a-uid-2", created_at=later)
    # The API server takes a while to delete it.
    with patch.object(world, "put"):
        plan = world.step(5)
    (deletion,) = acts(plan, DeletePods)
    assert [pod.node_name for pod in deletion.pods] == ["a"]
    assert world.started == ["a"]
    world.take_pod("a")
    world.step(3)
    assert world.started == ["a", "b"]
