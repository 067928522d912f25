"""A step of a few nodes stays with them, whatever becomes of them before their next turn."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rollout import Check, Order, Step
from daemonset_job.api.taints import Taint
from job_controller.core.plan import DeletePods, RefusedWrite
from tests.unit.builders import gated_pod, make_node, make_pod
from tests.unit.core.rollouts import WITHIN_ONE, RolloutWorld, steps
from tests.unit.core.runs import acts, spec

NOT_READY = Taint("node.kubernetes.io/not-ready", "NoSchedule")
NODES = ("a", "b", "c", "d")
CANARY = steps(Step(nodes=1, soak_seconds=100))


def test_a_node_that_is_tried_again_has_the_next_turn_of_its_step():
    policy = FailurePolicy(FailureAction.PAUSE)
    world = RolloutWorld(*NODES, rollout=CANARY, failure_policy=policy)
    for retry in range(3):
        world.step(6)
        world.fail("a")
        world.step(10)
        world.retry(str(retry))
    world.step(10)
    assert world.started == ["a"] * 4


def test_a_node_that_is_back_after_it_was_set_aside_has_the_next_turn_of_its_step():
    world = RolloutWorld(*NODES, rollout=CANARY, failure_policy=WITHIN_ONE)
    world.step(6)
    world.lose("a")
    world.step(20)
    assert "setAsideAt" in world.cluster.report_status["nodeStates"]["a"]
    world.take_pod("a")
    world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], ready=True)
    world.step(10)
    assert world.started == ["a"], "it has no pod yet"
    world.put(gated_pod("a", serial=9))
    world.step(10)
    assert world.started == ["a", "a"]


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_node_may_have_begun_whose_gate_was_removed_by_a_controller_that_ended(is_removed):
    world = RolloutWorld(*NODES, rollout=CANARY, failure_policy=WITHIN_ONE)
    while not world.turns():
        world.step()
    # Its gate is removed, its machine is shut down, its pod is deleted, all without a pass.
    world.take_pod("a")
    world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], ready=False, taints=(NOT_READY,))
    if is_removed:
        world.remove("a")
    world.cluster.desired = 3
    world.step(120)
    assert world.started == []
    assert "its nodes have left: a" in world.condition("Suspended")[2]


def find_no_room(world: RolloutWorld) -> None:
    """Have node a get its turn, and the scheduler find no room for its pod."""
    while not world.started:
        world.step()
    world.seen = timedelta(seconds=5)
    full = {"unschedulable_message": "0/4 nodes are available", "is_scheduled": False}
    world.put(make_pod("a", uid="pod-a-1", state="", **full))
    world.step(2)


def test_the_record_has_the_next_pod_of_a_node_before_its_gate_is_removed():
    world = RolloutWorld(*NODES, rollout=CANARY, failure_policy=WITHIN_ONE)
    find_no_room(world)
    states = world.cluster.report_status["nodeStates"]
    assert states["a"]["reason"] == "Unschedulable"
    # That pod is deleted. The next one waits at the gate.
    world.put(gated_pod("a", serial=2))
    world.limit = 1
    for _ in range(10):
        if world.started == ["a"]:
            world.step()
    assert world.started == ["a", "a"]
    # The controller has ended after that, and the node leaves with its pod meanwhile.
    world.limit = None
    world.remove("a")
    world.cluster.desired = 3
    world.step(120)
    assert world.started == ["a", "a"], "nothing shows that it has not begun"


@pytest.mark.parametrize("taint", [Taint("broken", "NoSchedule"), NOT_READY])
def test_a_node_that_had_no_room_and_is_back_has_no_turn_beside_the_one_in_its_place(taint):
    """The DaemonSet controller, which may be away, has counted it all the time."""
    world = RolloutWorld(*NODES, rollout=CANARY)
    find_no_room(world)
    node = world.cluster.nodes["a"]
    is_ready = taint is not NOT_READY
    world.cluster.nodes["a"] = replace(node, taints=(taint,), ready=is_ready)
    world.take_pod("a")
    world.step(20)
    assert world.started == ["a", "b"]
    world.cluster.nodes["a"] = node
    world.put(gated_pod("a", serial=2))
    world.step(5)
    assert world.started == ["a", "b"]
    assert world.turns() == {"b": 1}


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("has_failed", [False, True])
def test_a_node_that_is_registered_again_has_the_next_turn_of_its_step(order, has_failed):
    rollout = replace(CANARY, order=order)
    world = RolloutWorld(*NODES, rollout=rollout, failure_policy=WITHIN_ONE)
    world.step(6)
    (name,) = world.started
    if has_failed:
        world.fail(name)
        world.step(6)
    world.replace(name)
    world.step(10)
    assert world.started == [name, name]


def by_label(world: RolloutWorld) -> None:
    world.label("a", configured="true")


def by_taint(world: RolloutWorld) -> None:
    node = world.cluster.nodes["a"]
    world.cluster.nodes["a"] = replace(node, taints=(Taint("broken", "NoExecute"),))


UNCONFIGURED = NodeSelection(
    selector={"matchExpressions": [{"key": "configured", "operator": "DoesNotExist"}]}
)


@pytest.mark.parametrize("leaves", [by_label, by_taint])
@pytest.mark.parametrize("has_failed", [False, True])
def test_no_node_takes_the_place_of_one_that_left_the_selection_by_itself(leaves, has_failed):
    world = RolloutWorld(*NODES, rollout=CANARY, nodes=UNCONFIGURED, failure_policy=WITHIN_ONE)
    world.step(6)
    if has_failed:
        world.fail("a")
        world.step(6)
    leaves(world)
    world.take_pod("a")
    world.cluster.desired = 3
    world.step(120)
    assert world.started == ["a"]
    assert "its nodes have left: a" in world.condition("Suspended")[2]


@pytest.mark.parametrize("is_completed", [False, True])
def test_no_node_takes_the_place_of_one_with_a_taint_after_a_change_of_the_selection(is_completed):
    """The change did not take it out: the Job still chooses it."""
    world = RolloutWorld(*NODES, rollout=CANARY)
    world.step(6)
    world.exclude("d")
    world.take_pod("d")
    world.cluster.desired = 3
    world.step(3)
    if is_completed:
        world.complete("a")
        world.step(3)
    by_taint(world)
    world.take_pod("a")
    world.cluster.desired = 2
    world.step(90)
    assert world.started == ["a"], "its soak is not over"
    world.step(30)
    assert ("b" in world.started) == is_completed
    if not is_completed:
        assert "its nodes have left: a" in world.condition("Suspended")[2]


@pytest.mark.parametrize("is_tainted", [False, True])
def test_a_node_that_the_user_took_out_makes_room_in_its_step(is_tainted):
    world = RolloutWorld(*NODES, rollout=CANARY)
    world.step(6)
    world.exclude("a")
    if is_tainted:
        by_taint(world)
    world.take_pod("a")
    world.cluster.desired = 3
    world.step(10)
    assert world.started == ["a", "b"]


def test_a_node_that_waits_again_and_is_unreachable_keeps_no_other_from_its_turn():
    policy = FailurePolicy(FailureAction.CONTINUE)
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=2)), failure_policy=policy)
    world.step(6)
    world.fail("a")
    world.step(3)
    world.lose("a")
    world.retry()
    world.step(3)
    world.complete("b")
    world.step(20)
    assert world.started == ["a", "b", "c", "d"]


def test_a_node_that_completed_and_left_while_the_controller_was_away_stays_in_its_step():
    world = RolloutWorld(*NODES, rollout=CANARY)
    while not world.started:
        world.step()
    assert world.cluster.report_status["nodeStates"]["a"]["state"] == "Waiting"
    world.complete("a")
    world.remove("a")
    world.cluster.desired = 3
    world.step(120)
    assert world.started == ["a"]
    assert world.cluster.report_status["nodeStates"]["a"]["state"] == "Completed"


def test_a_node_whose_taint_is_lifted_has_its_next_turn_when_its_pod_is_there():
    world = RolloutWorld(*NODES, rollout=CANARY)
    world.step(6)
    by_taint(world)
    world.take_pod("a")
    world.cluster.desired = 3
    world.step(6)
    world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], taints=())
    world.cluster.desired = 4
    world.step(20)
    assert world.started == ["a"], "it has no pod yet"
    world.put(gated_pod("a", serial=9))
    world.step(10)
    assert world.started == ["a", "a"]


def with_unreported_start() -> RolloutWorld:
    """Return a rollout in which a has its turn, and its kubelet has not reported the start."""
    world = RolloutWorld(*NODES, rollout=CANARY)
    while not world.started:
        world.step()
    (pod,) = [each for each in world.cluster.pods if each.node_name == "a"]
    world.put(replace(pod, phase="Pending", container=None, is_scheduled=True))
    return world


def test_no_node_takes_the_place_of_one_that_is_deleted_before_its_kubelet_reported_the_start():
    """The DaemonSet counts the node until its pod is gone."""
    world = with_unreported_start()
    del world.cluster.nodes["a"]
    world.cluster.desired = len(NODES)
    world.step(3)
    world.take_pod("a")
    world.step()
    world.cluster.desired = 3
    world.step(120)
    assert world.started == ["a"]
    assert "its nodes have left: a" in world.condition("Suspended")[2]


def test_no_node_takes_the_place_of_one_that_is_deleted_with_its_pod_while_no_controller_runs():
    """The record shows that the pod was past its gate, and nothing else does."""
    world = with_unreported_start()
    world.step()
    assert world.cluster.report_status["nodeStates"]["a"]["state"] == "Waiting"
    world.remove("a")
    world.step(120)
    assert world.started == ["a"]
    assert "its nodes have left: a" in world.condition("Suspended")[2]


@pytest.mark.parametrize("leaves", ["deleted", "deleted, its pod is there", "label", "taint"])
@pytest.mark.parametrize("is_completed", [False, True])
def test_a_step_grows_by_no_node_that_has_left_and_is_still_counted(leaves, is_completed):
    """The DaemonSet controller counts late. With one node more, half of them would be two."""
    half = steps(Step(nodes="50%", soak_seconds=100))
    world = RolloutWorld("a", "b", "c", rollout=half, nodes=UNCONFIGURED)
    world.step(6)
    if is_completed:
        world.complete("a")
        world.step(2)
    soak = world.cluster.job.status.rollout.soak_started_at
    assert (soak is not None) == is_completed
    match leaves:
        case "label":
            by_label(world)
        case "taint":
            by_taint(world)
        case _:
            del world.cluster.nodes["a"]
    if not leaves.endswith("is there"):
        world.take_pod("a")
    for desired in (3, 2):
        world.cluster.desired = desired
        world.step(4)
        assert world.started == ["a"]
    world.take_pod("a")
    world.step(4)
    assert world.started == ["a"]
    if is_completed:
        assert world.cluster.job.status.rollout.soak_started_at == soak


@pytest.mark.parametrize("action", [FailureAction.FAIL_FAST, FailureAction.PAUSE])
@pytest.mark.parametrize("first", [Step(nodes=2), Step(nodes=2, soak_seconds=3)])
def test_a_step_does_not_end_while_too_many_nodes_have_failed(action, first):
    """A node that is tried again afterwards has its turn before those of the next step."""
    world = RolloutWorld(*NODES, rollout=steps(first), failure_policy=FailurePolicy(action))
    world.step(6)
    world.complete("a")
    world.fail("b")
    world.step(20)
    assert world.cluster.job.status.rollout.step == 1
    world.retry()
    world.step(10)
    assert world.started == ["a", "b", "b"]
    world.complete("b")
    world.step(10)
    assert world.started == ["a", "b", "b", "c", "d"]


def test_no_early_approval_ends_a_step_while_too_many_nodes_have_failed():
    """Found by the simulation with checks and approvals."""
    rollout = steps(Step(nodes=1, check=Check(node_ready=True)))
    policy = FailurePolicy(FailureAction.PAUSE)
    world = RolloutWorld(*NODES, rollout=rollout, failure_policy=policy)
    world.request(approved_step=1)
    world.step(6)
    world.fail("a")
    world.step(20)
    world.retry()
    world.step(10)
    assert world.started == ["a", "a"]


def test_a_step_ends_once_more_nodes_may_fail():
    policy = FailurePolicy(FailureAction.PAUSE)
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=2)), failure_policy=policy)
    world.step(6)
    world.complete("a")
    world.fail("b")
    world.step(20)
    spec(world.cluster, failure_policy=replace(policy, max_failed_nodes=1))
    world.step(10)
    assert world.started == ["a", "b", "c", "d"]


@pytest.mark.parametrize("is_registered_again", [False, True])
def test_a_node_that_is_deleted_at_the_gate_gives_its_turn_back_before_its_pod_is_gone(
    is_registered_again,
):
    """The controller deletes that pod, and then nothing shows that the turn was not taken."""
    world = RolloutWorld(*NODES, rollout=CANARY)
    while not world.turns():
        world.step()
    del world.cluster.nodes["a"]
    world.step()
    if is_registered_again:
        world.cluster.nodes["a"] = make_node("a", uid="a-uid-2")
        world.step()
    world.take_pod("a")
    world.step(2)
    if is_registered_again:
        world.put(gated_pod("a", serial=5))
    world.step(20)
    assert world.started == ["b"]
    assert world.turns() == {"b": 1}
    world.complete("b")
    world.step(5)
    assert "step 1 of 1 soaks" in world.condition("Progressing")[2]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, None])
def test_a_turn_is_given_back_before_the_pod_is_deleted_that_shows_it_was_not_taken(limit):
    """Whatever write is the last one of the controller, or the first one that is refused."""
    world = RolloutWorld(*NODES, rollout=CANARY)
    while not world.turns():
        world.step()
    del world.cluster.nodes["a"]
    world.limit = limit
    plan = world.step()
    if any(isinstance(action, DeletePods) for action in plan.actions[:limit]):
        world.take_pod("a")
    world.limit = None
    world.step()
    world.take_pod("a")
    world.cluster.desired = 3
    world.step(20)
    assert world.started == ["b"]


def test_a_pod_that_shows_that_a_turn_was_not_taken_stays_while_the_report_is_refused():
    """The API server goes on to take deletions while a quota or a policy refuses the report."""
    world = RolloutWorld(*NODES, rollout=CANARY)
    while not world.turns():
        world.step()
    del world.cluster.nodes["a"]
    world.extra = {"refusals": {RefusedWrite.REPORT: "quota"}}
    for _ in range(3):
        assert not acts(world.step(), DeletePods)
    world.extra = {}
    assert acts(world.step(), DeletePods)
    world.take_pod("a")
    world.cluster.desired = 3
    world.step(20)
    assert world.started == ["b"]


def test_a_node_that_is_deleted_at_the_gate_of_a_failed_run_gives_its_turn_back():
    """Its nodes are not counted while the pod is there, and a retry goes on with the step."""
    rollout = steps(Step(nodes=3, soak_seconds=100), max_parallel=2)
    world = RolloutWorld(*NODES, rollout=rollout)
    while world.started != ["a", "b"]:
        world.step()
    world.complete("a")
    while "c" not in world.turns():
        world.step()
    world.fail("b")
    world.step(20)
    assert world.phase == "Failed"
    del world.cluster.nodes["c"]
    while not acts(world.step(), DeletePods):
        pass
    world.take_pod("c")
    world.cluster.desired = 3
    world.step(2)
    world.retry()
    world.step(10)
    assert sorted(world.started) == ["a", "b", "b", "d"]


def test_a_node_that_is_deleted_at_the_gate_of_a_suspended_job_counts_for_no_step():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1), Step(nodes=2, soak_seconds=100)))
    while world.turns().get("b") != 2:
        world.complete(*world.at_work)
        world.step()
    spec(world.cluster, suspend=True)
    world.step(5)
    del world.cluster.nodes["b"]
    world.step(2)
    world.take_pod("b")
    world.step(2)
    spec(world.cluster, suspend=False)
    world.step(5)
    assert world.started == ["a", "c"]


@pytest.mark.parametrize("limit", [0, 1, None])
def test_a_node_that_gets_a_taint_at_the_gate_of_a_suspended_job_counts_for_no_step(limit):
    """The controller deletes its pod, which the DaemonSet controller would keep."""
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1), Step(nodes=2, soak_seconds=100)))
    while world.turns().get("b") != 2:
        world.complete(*world.at_work)
        world.step()
    spec(world.cluster, suspend=True)
    world.step(5)
    world.cluster.started_with = world.cluster.job.selection_hash
    taint = Taint("broken", "NoSchedule")
    world.cluster.nodes["b"] = replace(world.cluster.nodes["b"], taints=(taint,))
    world.limit = limit
    deleted = [each for each in world.step().actions[:limit] if isinstance(each, DeletePods)]
    if deleted:
        world.take_pod("b")
    world.limit = None
    world.step()
    world.take_pod("b")
    world.cluster.desired = 3
    world.step(3)
    spec(world.cluster, suspend=False)
    world.step(5)
    assert world.started == ["a", "c"]


def test_a_node_that_leaves_before_it_takes_the_turn_of_its_former_node_makes_room():
    """Although the former node of its name had run the task in the step (guarantees.md)."""
    world = RolloutWorld("a", "b", rollout=CANARY)
    world.step(5)
    world.cluster.nodes["a"] = make_node("a", uid="a-uid-2")
    world.take_pod("a")
    world.step(2)
    world.put(gated_pod("a", serial=2))
    world.step()
    assert world.cluster.report_status["nodeStates"]["a"]["step"] == 1
    del world.cluster.nodes["a"]
    world.step(2)
    world.take_pod("a")
    world.step(6)
    assert world.started == ["a", "b"]
    assert world.turns() == {"b": 1}
