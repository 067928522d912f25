"""Nodes that are taken out of the selection of a rollout while they are not Ready."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.taints import Taint
from job_controller.core.state.first_seen import ObservedObjects, node_left, update_sightings
from job_controller.core.state.left_nodes import LEFT_PODS_SECONDS, find_nearly_given_up
from tests.unit.builders import NOW, gated_pod, make_node, make_pod, seen_before
from tests.unit.core.rollouts import RolloutWorld

NODES = ("a", "b", "c", "d")
ONE = Rollout(max_parallel=1)


def unselected(world: RolloutWorld, name: str) -> None:
    """Let the user take a node out of the selection; its pod is being deleted."""
    cluster = world.cluster
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != name]
    cluster.pods.append(make_pod(name, serial=9, is_terminating=True))
    labels = {"chosen": "yes"}
    for other in cluster.nodes.keys() - {name}:
        cluster.nodes[other] = replace(cluster.nodes[other], labels=labels)
    cluster.job = replace(
        cluster.job,
        spec=replace(cluster.job.spec, nodes=NodeSelection(selector={"matchLabels": labels})),
        raw_spec={"nodes": {"selector": {"matchLabels": labels}}},
    )
    cluster.desired, cluster.misscheduled = len(cluster.nodes) - 1, 1


def test_a_dead_node_that_the_user_takes_out_of_the_selection_frees_its_place():
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=FailurePolicy(FailureAction.CONTINUE))
    world.step(5)
    world.lose("a")
    unselected(world, "a")
    world.step(8)
    assert world.started[-1] == "b"


def test_a_node_that_leaves_the_selection_while_it_is_not_ready_keeps_its_place_for_a_while():
    """Its task may run on, and the node may be back in a moment."""
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    world.lose("a")
    unselected(world, "a")
    world.seen = timedelta(seconds=59)
    world.step(8)
    assert world.started == ["a"]
    # Nothing else causes the pass that frees the place.
    assert world.plan.requeue_after == 1
    world.seen = timedelta(seconds=60)
    world.step(3)
    assert world.started == ["a", "b"]


def test_a_node_that_left_the_selection_keeps_its_place_until_it_would_be_unreachable():
    policy = FailurePolicy(FailureAction.CONTINUE, unreachable_seconds=315_360_000)
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=policy, node_unreachable_seconds=900)
    world.step(5)
    world.lose("a")
    unselected(world, "a")
    world.seen = timedelta(seconds=899)
    world.step(8)
    assert (world.started, world.plan.requeue_after) == (["a"], 1)
    world.seen = timedelta(seconds=900)
    world.step(3)
    assert world.started == ["a", "b"]


@pytest.mark.parametrize("has_started", [False, True])
@pytest.mark.parametrize("by", ["labels", "taint"])
def test_a_node_with_a_turn_that_left_frees_its_place_although_a_pod_of_another_is_refused(
    by, has_started
):
    """Its turn stays on record: it is not known exactly which nodes are desired."""
    world = RolloutWorld(*NODES, rollout=ONE)
    world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "d"]
    world.cluster.desired = 4
    while not (world.started if has_started else world.turns()):
        world.step()
    if by == "labels":
        unselected(world, "a")
    else:
        taints = (Taint("example.com/held", "", "NoExecute"),)
        world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], taints=taints)
    world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "a"]
    world.cluster.desired, world.cluster.misscheduled = 3, 0
    world.step(8)
    assert world.turns()["a"]
    assert world.started[-1] == "b"


@pytest.mark.parametrize("leaves", [False, True])
def test_a_pod_of_a_deleted_daemon_set_takes_the_place_until_it_has_ended(leaves):
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    if leaves:
        unselected(world, "a")
        world.cluster.misscheduled = 0
    world.cluster.pods = [gated_pod(name, serial=5) for name in ("bcd" if leaves else "abcd")]
    old = make_pod("a", owner_uid="former", is_terminating=True)
    world.extra = {"left_pods": (old,)}
    world.step(8)
    # Its end is seen by its label. Nor does the next pod on its node start beside it.
    assert (world.started, world.plan.requeue_after) == (["a"], LEFT_PODS_SECONDS)
    world.extra = {}
    world.step(3)
    assert world.started == ["a", "b" if leaves else "a"]


def test_a_node_whose_next_pod_is_about_to_be_created_keeps_its_place():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "a"]
    world.step(8)
    assert (world.started, world.turns()) == (["a"], {"a": 1})


@pytest.mark.parametrize(
    "between",
    [
        ObservedObjects({}, {"a": make_node("a")}, ending={"a"}),
        ObservedObjects({}, {"a": make_node("a", ready=False)}, tainted={"a"}, ending={"a"}),
        ObservedObjects({}, {"a": make_node("a", ready=False)}),
    ],
    ids=["ready", "desired", "ended"],
)
def test_the_time_begins_again_when_the_node_is_not_away_for_a_moment(between):
    away = make_node("a", ready=False)
    left = ObservedObjects({}, {"a": away}, ending={"a"})
    seen = update_sightings({}, left, NOW)
    later = NOW + timedelta(seconds=50)
    assert update_sightings(seen, left, later)[node_left(away)].first == NOW
    seen = update_sightings(seen, between, later)
    assert update_sightings(seen, left, later)[node_left(away)].first == later


def test_the_time_begins_again_when_the_node_was_ready_without_being_seen():
    away = make_node("a", ready=False, ready_changed_at=NOW)
    assert node_left(away) != node_left(replace(away, ready_changed_at=NOW + timedelta(seconds=1)))


def test_a_node_is_read_before_its_place_is_free():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    world.lose("a")
    unselected(world, "a")
    for seconds, found in ((59, []), (60, ["a"])):
        snapshot = seen_before(world.cluster.snapshot(), timedelta(seconds=seconds))
        nodes = find_nearly_given_up(snapshot, snapshot.nodes.values(), NOW)
        assert [node.name for node in nodes] == found
