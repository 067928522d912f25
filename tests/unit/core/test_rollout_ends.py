"""How runs end early: aborted, with enough completed nodes, without unreachable ones."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction, PodPolicy
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rollout import Rollout, Step, SuccessPolicy
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import DeleteDaemonSet, DeletePods, WriteReportStatus
from job_controller.core.state.success_policy import required_completions
from tests.unit.builders import NOW, done, gated_pod, make_cluster, make_node, make_pod
from tests.unit.core.rollouts import WITHIN_ONE, RolloutWorld, steps
from tests.unit.core.runs import acts, conditions, lost, run, spec

NODES = ("a", "b", "c", "d")
ONE = Rollout(max_parallel=1)


def test_an_aborted_run_starts_no_further_node_and_its_task_finishes():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    world.request(abort="the disk\nfilled up")
    world.step(3)
    assert world.phase == "Failed"
    assert world.condition("Failed")[1:] == (
        "Aborted",
        "aborted after 0 of 4 nodes: the disk filled up",
    )
    world.complete("a")
    world.step(5)
    assert world.started == ["a"]
    assert world.at_work == []


def test_no_retry_revives_an_aborted_run_and_neither_does_the_removal_of_the_request():
    world = RolloutWorld(*NODES, rollout=ONE)
    world.step(5)
    world.request(abort="no")
    world.step(3)
    ended = world.cluster.job.status.completion_time
    world.request()
    world.retry()
    world.step(5)
    assert world.phase == "Failed"
    assert world.started == ["a"]
    assert world.cluster.job.status.completion_time == ended
    assert world.step().actions == ()


def test_an_aborted_run_ends_its_tasks_if_the_policy_deletes_pods():
    policy = FailurePolicy(pods=PodPolicy.DELETE)
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=policy)
    world.step(5)
    world.request(abort="no")
    assert not acts(world.step(), DeleteDaemonSet)
    while not acts(world.step(), DeleteDaemonSet):
        assert world.phase == "Failed"


def test_a_failed_run_whose_daemon_set_is_deleted_can_be_aborted_for_good():
    """Nodes cannot be counted any more, but what a person says is recorded."""
    policy = FailurePolicy(pods=PodPolicy.DELETE)
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=policy)
    world.step(5)
    world.complete("a")
    world.step(5)
    world.fail("b")
    while not acts(world.step(), DeleteDaemonSet):
        pass
    world.cluster.has_daemon_set, world.cluster.pods = False, []
    world.step(2)
    assert world.condition("Failed")[1] == "MaxFailedNodesExceeded"
    world.request(abort="no")
    world.step(2)
    assert world.condition("Failed")[1:] == ("Aborted", "aborted after 1 of 4 nodes: no")
    world.request()
    world.retry()
    world.step(3)
    assert world.phase == "Failed"
    assert world.step().actions == ()


def test_a_run_without_a_rollout_can_be_aborted():
    cluster = make_cluster("a", "b", gated=True)
    cluster.job = replace(
        cluster.job, requests=replace(cluster.job.requests, abort="x" * 300, aborted_by="me")
    )
    run(cluster)
    assert conditions(cluster)["Failed"] == ("True", "Aborted")
    assert cluster.report_status["history"][-1]["by"] == "me"


def test_a_run_that_has_succeeded_cannot_be_aborted():
    world = RolloutWorld("a", rollout=ONE)
    world.finish()
    world.request(abort="late")
    world.step(3)
    assert world.phase == "Succeeded"


def test_an_abort_takes_no_success_back_that_only_the_report_has():
    world = RolloutWorld("a", rollout=ONE)
    world.step(5)
    world.complete("a")
    before = world.cluster.job.status
    world.step()
    # The controller is killed between both writes.
    world.cluster.job = replace(world.cluster.job, status=before)
    assert world.cluster.report_status["phase"] == "Succeeded"
    world.request(abort="late")
    world.step(3)
    assert (world.phase, world.cluster.report_status["phase"]) == ("Succeeded", "Succeeded")


@pytest.mark.parametrize(
    ("least", "desired", "required"),
    [("95%", 100, 95), ("95%", 10, 10), ("50%", 3, 2), (2, 9, 2), (9, 3, 3), ("1%", 3, 1)],
)
def test_a_percentage_of_completions_is_rounded_up(least, desired, required):
    assert required_completions(least, desired) == required


ENOUGH = SuccessPolicy("50%")


def test_with_enough_completions_no_further_node_starts_and_the_run_succeeds():
    rollout = Rollout(max_parallel=2)
    world = RolloutWorld(*NODES, "e", rollout=rollout, success_policy=ENOUGH)
    world.step(5)
    world.complete("a", "b")
    world.step(5)
    assert world.at_work == ["c", "d"]
    world.complete("c")
    world.step(5)
    assert world.phase == "Running"
    assert "minCompleted" in world.condition("Progressing")[2]
    world.complete("d")
    world.step(5)
    assert world.phase == "Succeeded"
    assert world.started == ["a", "b", "c", "d"]
    assert world.condition("Complete")[1] == "MinCompletedReached"
    assert world.condition("Complete")[2] == (
        "4 of 5 nodes completed; not started, since minCompleted is reached: e"
    )
    assert world.step(3).actions == ()


def test_enough_completions_end_a_run_without_a_rollout():
    cluster = spec(
        make_cluster("a", "b", gated=True, evidence={"a": done("a")}), success_policy=ENOUGH
    )
    run(cluster)
    assert cluster.job.status.phase == "Running"
    cluster.pods[1] = gated_pod("b")
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "MinCompletedReached")


def test_the_nodes_that_did_not_start_include_those_without_a_pod():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")}, desired=3)
    spec(cluster, success_policy=SuccessPolicy(1))
    cluster.pods[1] = gated_pod("b")
    run(cluster)
    complete = next(each for each in cluster.job.status.conditions if each.type == "Complete")
    assert complete.message == (
        "1 of 3 nodes completed; not started, since minCompleted is reached: b, 1 without a pod"
    )


@pytest.mark.parametrize("is_refused", [True, False])
def test_completions_of_another_selection_are_not_enough(is_refused):
    """The DaemonSet still runs on b alone: its change is refused, or another client changed it."""
    cluster = make_cluster("a", "b", gated=True, evidence={"b": done("b")}, desired=1)
    cluster.pods = [make_pod("b")]
    spec(cluster, success_policy=ENOUGH, nodes=NodeSelection(include=("b",)))
    older = cluster.daemon_set()
    spec(cluster, nodes=NodeSelection())
    if is_refused:
        cluster.refusal = "no"
    else:
        older = replace(older, annotations=cluster.daemon_set().annotations)
    plan = decide(cluster.snapshot(daemon_set=older), NOW)
    (written,) = (action.status for action in acts(plan, WriteReportStatus))
    assert written.phase == "Running"


def test_a_node_that_joins_does_not_start_when_there_are_enough():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a"), "b": done("b")})
    spec(cluster, success_policy=SuccessPolicy(2))
    cluster.nodes |= make_cluster("c").nodes
    cluster.pods.append(gated_pod("c"))
    plan = decide(cluster.snapshot(), NOW)
    assert not [a for a in plan.actions if type(a).__name__ == "RemoveSchedulingGates"]


def test_a_run_within_its_budget_does_not_wait_for_a_dead_node():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["b"] = lost("b")
    spec(cluster, failure_policy=WITHIN_ONE)
    for _ in range(3):
        run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "CompletedWithinFailureLimit")
    assert "1 unreachable (b)" in cluster.report_status["message"]
    assert cluster.report_status["nodeStates"]["b"]["setAsideAt"]


def test_a_dead_node_is_waited_for_while_others_are_at_work():
    cluster = make_cluster("a", "b", gated=True)
    cluster.nodes["b"] = lost("b")
    spec(cluster, failure_policy=WITHIN_ONE)
    for _ in range(3):
        run(cluster)
    assert "setAsideAt" not in cluster.report_status["nodeStates"]["b"]


def test_with_action_continue_a_dead_node_too_many_is_waited_for():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["b"] = lost("b")
    spec(cluster, failure_policy=FailurePolicy(FailureAction.CONTINUE))
    for _ in range(3):
        run(cluster)
    assert cluster.job.status.phase == "Running"
    spec(
        cluster,
        failure_policy=FailurePolicy(FailureAction.CONTINUE, unreachable_seconds=3600),
    )
    run(cluster)
    assert cluster.job.status.phase == "Running"
    for _ in range(3):
        run(cluster, NOW, timedelta(seconds=3700))
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")


def test_a_dead_node_frees_its_place_when_the_rollout_can_do_nothing_else():
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=WITHIN_ONE)
    world.step(5)
    world.lose("a")
    world.step(6)
    states = world.cluster.report_status["nodeStates"]
    assert states["a"]["setAsideAt"]
    assert "turnAt" not in states["a"]
    assert world.started == ["a", "b"]


def test_the_pod_of_a_node_that_is_set_aside_is_deleted_once_that_is_on_record():
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=WITHIN_ONE)
    world.step(5)
    world.lose("a")
    while not acts(world.step(), DeletePods):
        assert world.started == ["a"]
    (deletion,) = acts(world.plan, DeletePods)
    assert [pod.node_name for pod in deletion.pods] == ["a"]


def test_a_node_that_comes_back_waits_for_another_turn():
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=WITHIN_ONE)
    world.step(5)
    world.lose("a")
    world.step(8)
    assert world.at_work == ["b"]
    world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], ready=True)
    world.step(3)
    assert world.at_work == ["b"]
    assert "setAsideAt" not in world.cluster.report_status["nodeStates"].get("a", {})
    world.finish()
    assert sorted(set(world.started)) == list(NODES)


def test_a_limit_of_time_sets_a_dead_node_aside_while_others_are_at_work():
    policy = FailurePolicy(max_failed_nodes=1, unreachable_seconds=60)
    world = RolloutWorld(*NODES, rollout=Rollout(max_parallel=2), failure_policy=policy)
    world.step(5)
    world.lose("a")
    world.step(6)
    assert world.at_work == ["b", "c"]


def test_a_dead_node_without_a_turn_is_passed_over():
    world = RolloutWorld(*NODES, rollout=ONE, failure_policy=WITHIN_ONE)
    world.lose("a")
    world.finish()
    assert world.started == ["b", "c", "d"]
    assert world.condition("Complete")[1] == "CompletedWithinFailureLimit"


def test_a_dead_node_that_never_had_a_turn_counts_for_no_step():
    """Else the canary would be a node on which nothing ran."""
    world = RolloutWorld(
        *NODES,
        rollout=Rollout(steps=(Step(nodes=1, soak_seconds=3600),)),
        failure_policy=FailurePolicy(max_failed_nodes=1, unreachable_seconds=0),
    )
    world.lose("d")
    world.cluster.job = replace(world.cluster.job, stop_message="stopped")
    world.step(5)
    assert world.cluster.report_status["nodeStates"]["d"]["setAsideAt"]
    world.cluster.job = replace(world.cluster.job, stop_message="")
    world.step(5)
    assert world.started == ["a"]
    world.complete("a")
    world.step(5)
    assert world.started == ["a"]


@pytest.mark.parametrize("before", [0, 1])
def test_a_step_is_not_over_if_all_nodes_that_it_could_have_are_set_aside(before):
    """Else all of them would start together in a later step, once their network is back."""
    policy = FailurePolicy(FailureAction.PAUSE, unreachable_seconds=0)
    rollout = steps(Step(nodes=1, needs_approval=True), Step(nodes=2, needs_approval=True))
    world = RolloutWorld(*NODES, rollout=rollout, failure_policy=policy)
    if before:
        world.step(6)
        world.complete("a")
        world.step(6)
        assert world.condition("Suspended")[1] == "WaitingForApproval"
    away = NODES[before:]
    for name in away:
        world.lose(name)
    world.step(6)
    world.request(approved_step=before)
    world.step(10)
    states = world.cluster.report_status["nodeStates"]
    assert all(states[name]["setAsideAt"] for name in away)
    assert world.cluster.job.status.rollout.step == 1, "too many nodes are unreachable"
    for name in away:
        world.cluster.nodes[name] = make_node(name)
    world.step(10)
    assert world.cluster.job.status.rollout.step == before + 1
    assert world.at_work == [NODES[before]]


def test_a_run_ends_although_the_other_nodes_of_its_step_are_set_aside():
    policy = FailurePolicy(max_failed_nodes=1, unreachable_seconds=0)
    rollout = steps(Step(nodes=3), Step(nodes="100%"))
    world = RolloutWorld(*NODES, rollout=rollout, failure_policy=policy)
    world.lose("d")
    world.finish()
    assert world.cluster.job.status.rollout.step == 2
    assert world.condition("Complete")[1] == "CompletedWithinFailureLimit"


def test_a_failed_node_keeps_its_part_of_a_step_while_its_pod_is_created_again():
    """Else another node has its turn in the step, before that is over."""
    world = RolloutWorld(
        *NODES,
        rollout=Rollout(steps=(Step(nodes=2),)),
        failure_policy=FailurePolicy(max_failed_nodes=1, pods=PodPolicy.DELETE),
    )
    world.step(5)
    assert world.started == ["a", "b"]
    world.fail("a")
    world.step(4)
    assert world.cluster.report_status["nodeStates"]["a"]["state"] == "Failed"
    world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "a"]
    world.step(4)
    assert world.started == ["a", "b"]
    world.complete("b")
    world.step(4)
    assert world.started == ["a", "b", "c", "d"]


def test_a_step_is_over_when_only_dead_nodes_are_left():
    world = RolloutWorld(
        *NODES,
        rollout=Rollout(steps=(Step(nodes="100%", soak_seconds=10),)),
        failure_policy=FailurePolicy(max_failed_nodes=1, unreachable_seconds=0),
    )
    world.lose("d")
    world.finish()
    assert world.started == ["a", "b", "c"]
    assert world.condition("Complete")[1] == "CompletedWithinFailureLimit"


def test_a_run_whose_other_nodes_are_set_aside_still_waits_for_its_approval():
    """A node that came back after the end of the run would start without it."""
    policy = FailurePolicy(max_failed_nodes=1, unreachable_seconds=5)
    world = RolloutWorld(
        "a", "b", rollout=steps(Step(nodes=1, needs_approval=True)), failure_policy=policy
    )
    world.step(5)
    world.complete("a")
    world.lose("b")
    world.step(20)
    assert "setAsideAt" in world.cluster.report_status["nodeStates"]["b"]
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    world.request(approved_step=1)
    world.step(5)
    assert world.condition("Complete")[1] == "CompletedWithinFailureLimit"
    assert world.started == ["a"]


def test_a_failed_node_that_is_down_frees_its_place():
    world = RolloutWorld(
        *NODES, rollout=ONE, failure_policy=FailurePolicy(max_failed_nodes=1, pods=PodPolicy.DELETE)
    )
    world.step(5)
    world.fail("a")
    while world.cluster.report_status["nodeStates"]["a"]["state"] != "Failed":
        world.step()
    world.lose("a")
    taint = Taint("node.kubernetes.io/unreachable", "NoSchedule")
    world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], taints=(taint,))
    world.put(make_pod("a", serial=9, is_terminating=True))
    world.seen = timedelta(seconds=59)
    world.step(10)
    assert world.started == ["a"], "it may be back soon, and then its kubelet ends the task"
    assert world.plan.requeue_after == 1
    world.seen = timedelta(seconds=60)
    world.step(10)
    assert world.started[-1] == "b"


@pytest.mark.parametrize("passes", [0, 6])
def test_a_canary_that_dies_before_or_after_its_start_lets_no_other_node_start(passes):
    rollout = steps(Step(selector={"matchLabels": {"canary": "true"}}), Step(nodes=2))
    world = RolloutWorld(*NODES, rollout=rollout, failure_policy=WITHIN_ONE)
    world.label("a", canary="true")
    world.step(passes)
    world.lose("a")
    world.step(10)
    assert set(world.started) <= {"a"}
    assert world.cluster.report_status["nodeStates"]["a"]["setAsideAt"]
    assert world.condition("Suspended")[1] == "CheckInconclusive"


def test_a_node_that_joins_a_completed_run_waits_for_no_step():
    """The one node of the first step has failed, within the limit; the Job stays for it."""
    rollout = steps(Step(nodes=1, soak_seconds=600), Step(nodes=2), max_parallel=1)
    world = RolloutWorld("a", rollout=rollout, failure_policy=WITHIN_ONE)
    world.step(5)
    world.fail("a")
    world.step(40)
    assert world.phase == "Succeeded"
    world.cluster.nodes |= make_cluster("b").nodes
    world.cluster.pods.append(gated_pod("b", serial=1))
    world.step(10)
    assert world.started[-1] == "b"
