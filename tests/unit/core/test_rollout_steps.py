"""Steps of a rollout: growing batches, with soak, approval and checks."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from daemonset_job.api.choices import FailureAction, PodPolicy
from daemonset_job.api.job_spec import FailurePolicy, SuccessPolicy
from daemonset_job.api.rollout import Check, Rollout, Step
from job_controller.core.plan import RemoveSchedulingGates, WriteStatus
from job_controller.core.rollout import members
from job_controller.core.state.observed_pods import PodObservation, PodsOnNode
from tests.unit.builders import gated_pod, make_node
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.runs import acts
from tests.unit.core.standing_jobs import CONTINUOUS

NODES = ("a", "b", "c", "d")
BOTH_POLICIES = pytest.mark.parametrize(
    "changes", [{}, {"completion": CONTINUOUS}], ids=["Once", "Continuous"]
)
CANARY = {"matchLabels": {"canary": "true"}}
PODS = {"matchLabels": {"app": "web"}}


def run_batch(world: RolloutWorld, passes: int = 6) -> list[str]:
    """Let time pass; return the nodes that have started, and complete them."""
    before = len(world.started)
    world.step(passes)
    found = sorted(world.started[before:])
    world.complete(*world.at_work)
    return found


def test_batches_grow_and_count_the_nodes_of_earlier_steps():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1), Step(nodes="50%")))
    assert [run_batch(world) for _ in range(3)] == [["a"], ["b"], ["c", "d"]]
    world.finish()
    assert world.turns() == {"a": 1, "b": 2, "c": 3, "d": 3}


def test_a_selector_takes_its_nodes_first():
    world = RolloutWorld(*NODES, rollout=steps(Step(selector=CANARY)))
    world.label("c", canary="true")
    assert run_batch(world) == ["c"]
    assert run_batch(world) == ["a", "b", "d"]


def test_a_node_that_joins_keeps_no_step_from_its_end_whose_selector_does_not_match_it():
    """Its pod is not there yet, or is refused: the soak of the step goes on."""
    world = RolloutWorld(*NODES, rollout=steps(Step(selector=CANARY, soak_seconds=20)))
    world.label("c", canary="true")
    run_batch(world)
    world.step(3)
    began = world.cluster.job.status.rollout.soak_started_at
    assert began is not None
    world.label("e", canary="false")
    world.step(3)
    assert world.cluster.job.status.rollout.soak_started_at == began
    world.step(25)
    assert world.at_work == ["a", "b", "d"]


def test_a_node_that_is_counted_before_it_is_cached_does_not_restart_a_soak():
    world = RolloutWorld(*NODES, rollout=steps(Step(selector=CANARY, soak_seconds=20)))
    world.label("c", canary="true")
    run_batch(world)
    world.step(3)
    began = world.cluster.job.status.rollout.soak_started_at
    assert began is not None
    world.cluster.desired = 5
    world.step(3)
    world.label("e", canary="false")
    world.step(3)
    assert world.cluster.job.status.rollout.soak_started_at == began
    world.step(15)
    assert world.at_work == ["a", "b", "d"]


def test_a_node_that_is_counted_before_it_is_cached_does_not_interrupt_a_pause():
    """Nor does the step end on an approval before it is known whether the node is one of it."""
    world = RolloutWorld(*NODES, rollout=steps(Step(selector=CANARY, needs_approval=True)))
    world.label("c", canary="true")
    run_batch(world)
    world.step(3)
    world.cluster.desired = 5
    world.step(3)
    assert world.condition("Suspended")[:2] == ("True", "WaitingForApproval")
    world.request(approved_step=1)
    world.step(3)
    assert world.started == ["c"]
    world.label("e", canary="false")
    world.step(3)
    assert world.at_work == ["a", "b", "d"]


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_node_that_joins_has_its_turn_in_the_step_whose_selector_matches_it(is_cached):
    """While the cache of nodes does not have it, nothing says that it is not one of the step."""
    world = RolloutWorld(*NODES, rollout=steps(Step(selector=CANARY, soak_seconds=20)))
    world.label("c", canary="true")
    run_batch(world)
    world.step(3)
    world.cluster.desired = 5
    if is_cached:
        world.label("e", canary="true")
    world.step(30)
    assert world.started == ["c"]
    world.label("e", canary="true")
    world.put(gated_pod("e", serial=1))
    world.step(6)
    assert world.started == ["c", "e"]


def test_while_the_status_is_refused_the_report_stays_as_it_is():
    """Each pass finds that the soak begins, for that is not on record."""
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, soak_seconds=5)))
    world.step(6)
    world.complete("a")
    refused = world.cluster.job
    for _ in range(3):
        world.step()
        world.cluster.job = refused
    reported = world.cluster.report_status
    for _ in range(8):
        world.step()
        world.cluster.job = refused
    assert world.cluster.report_status == reported
    assert world.started == ["a"]
    world.step(2)
    assert world.cluster.report_status["rollout"]["soakStartedAt"]


def test_a_step_ends_when_all_its_nodes_have_finished():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=2)))
    world.step(6)
    world.complete("a")
    world.step(6)
    assert world.at_work == ["b"]
    world.complete("b")
    world.step(6)
    assert world.at_work == ["c", "d"]


@pytest.mark.parametrize(
    ("end", "soak"), [("completed", 100), ("failed", 100), ("at work", 100), ("at work", 0)]
)
def test_no_node_takes_the_place_of_one_that_left_in_its_step(end, soak):
    """The task may be why a machine is replaced: a step of one must not go through the cluster."""
    first = Step(nodes=1, soak_seconds=soak)
    failures = FailurePolicy(max_failed_nodes=1)
    world = RolloutWorld(*NODES, rollout=steps(first), failure_policy=failures)
    world.step(6)
    assert world.at_work == ["a"]
    if end == "completed":
        world.complete("a")
    elif end == "failed":
        world.fail("a")
    world.step(6)
    world.remove("a")
    world.step(6)
    assert world.started == ["a"]
    world.now += timedelta(seconds=100)
    world.step(6)
    assert world.started == ["a"]
    assert world.condition("Suspended")[1] == "CheckInconclusive"
    assert "its nodes have left: a" in world.condition("Suspended")[2]
    world.request(approved_step=1)
    world.step(6)
    assert world.at_work == ["b", "c", "d"]


def test_a_step_whose_other_nodes_are_there_goes_on():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=2, soak_seconds=100)))
    world.step(6)
    world.complete("a", "b")
    world.step(6)
    world.remove("a")
    world.now += timedelta(seconds=100)
    world.step(6)
    assert world.at_work == ["c", "d"]


def test_a_node_that_leaves_before_its_task_has_begun_counts_for_no_step():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1)))
    world.step()
    world.remove("a")
    assert run_batch(world) == ["b"]


def test_a_node_that_leaves_with_a_turn_that_it_could_not_take_counts_for_no_step():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, soak_seconds=100)))
    while not world.turns():
        world.step()
    assert world.started == []
    world.cluster.report_status["nodeStates"]["a"]["reason"] = "Unschedulable"
    world.remove("a")
    world.cluster.desired = 3
    world.step(6)
    assert world.started == ["b"]


def test_a_new_node_with_the_name_of_one_that_left_has_a_turn_in_its_step():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, soak_seconds=100)))
    run_batch(world)
    world.step(3)
    world.replace("a")
    world.step(6)
    assert world.started == ["a", "a"]


def test_a_soak_begins_when_the_last_node_has_finished_and_is_kept_in_the_status():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, soak_seconds=100)))
    run_batch(world)
    world.step(3)
    began = world.cluster.job.status.rollout.soak_started_at
    assert began is not None
    assert world.condition("Progressing")[1] == "RolloutSoaking"
    assert world.plan.requeue_after is not None
    assert 0 < world.plan.requeue_after <= 100
    while world.now < began + timedelta(seconds=99):
        world.step()
        assert world.cluster.job.status.rollout.soak_started_at == began
    assert world.started == ["a"]
    world.step(6)
    assert world.at_work == ["b", "c", "d"]


def test_approval_pauses_the_run_and_says_which_command_answers():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, needs_approval=True)))
    run_batch(world)
    world.step(5)
    assert world.phase == "Paused"
    status, reason, message = world.condition("Suspended")
    assert (status, reason) == ("True", "WaitingForApproval")
    assert "kubectl dsjob approve sample -n default" in message
    assert "daemonset.darkowlzz.space/approve=1" in message
    assert world.cluster.job.status.rollout.waits_for == message
    world.request(approved_step=2)
    world.step(3)
    assert world.phase == "Paused"
    world.request(approved_step=1)
    world.step(6)
    assert world.condition("Suspended")[0] == "False"
    assert world.at_work == ["b", "c", "d"]


def test_the_wait_for_an_approval_counts_for_no_deadline():
    rollout = steps(Step(nodes=1, needs_approval=True))
    world = RolloutWorld(*NODES, rollout=rollout, active_deadline_seconds=300)
    run_batch(world)
    world.step(3)
    world.now += timedelta(hours=1)
    world.step(3)
    assert world.condition("Suspended")[:2] == ("True", "WaitingForApproval")
    world.request(approved_step=1)
    world.step(200)
    assert world.phase == "Running"
    world.step(200)
    assert world.condition("Failed")[:2] == ("True", "DeadlineExceeded")


def test_after_a_retry_nobody_is_asked_before_the_step_is_over_once_more():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, needs_approval=True)))
    run_batch(world)
    world.step(5)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    world.retry()
    world.step()
    assert world.condition("Suspended")[0] == "False"
    assert not world.cluster.job.status.rollout.waits_for
    world.step()
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    assert world.cluster.job.status.rollout.waits_for


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"other_approval": "y\nes"}, "has the value 'y es', which is no step"),
        ({"approved_step": 7}, "has the value '7', which is no step"),
    ],
)
def test_an_approval_that_names_no_step_is_quoted(request_, words):
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, needs_approval=True)))
    run_batch(world)
    world.step(5)
    assert "which is no step" not in world.condition("Suspended")[2]
    world.request(**request_)
    world.step(5)
    status, reason, message = world.condition("Suspended")
    assert (status, reason) == ("True", "WaitingForApproval")
    assert message.endswith(words)
    asked = [e for e in world.cluster.report_status["history"] if e["reason"] == reason]
    assert len(asked) == 1


def test_an_early_approval_counts_when_the_step_is_done():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, needs_approval=True)))
    world.request(approved_step=1)
    assert run_batch(world) == ["a"]
    assert run_batch(world, 8) == ["b", "c", "d"]


def test_an_approval_that_is_on_record_holds_when_its_annotation_is_removed():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, needs_approval=True)))
    world.request(approved_step=1)
    world.step(4)
    world.request()
    world.complete("a")
    assert run_batch(world, 8) == ["b", "c", "d"]


@pytest.mark.parametrize("share", ["50%", 1])
def test_a_step_without_nodes_of_its_own_waits_for_its_approval(share):
    """Of three nodes 50% is one, which the first step had: the other two would follow unasked."""
    rollout = steps(Step(nodes=1), Step(nodes=share, needs_approval=True))
    world = RolloutWorld("a", "b", "c", rollout=rollout)
    run_batch(world)
    world.step(6)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    assert "approve=2" in world.condition("Suspended")[2]
    assert world.started == ["a"]
    world.request(approved_step=2)
    assert run_batch(world, 8) == ["b", "c"]


def test_nobody_approves_the_same_nodes_twice():
    steps_of_one = [Step(nodes=1, needs_approval=True) for _ in range(3)]
    world = RolloutWorld("a", "b", "c", rollout=steps(*steps_of_one))
    run_batch(world)
    world.request(approved_step=1)
    assert run_batch(world, 12) == ["b", "c"]


def test_promotion_leaves_out_soaks_and_approvals_and_keeps_the_batches():
    rollout = steps(Step(nodes=1, soak_seconds=9999), Step(nodes=2, needs_approval=True))
    world = RolloutWorld(*NODES, rollout=rollout)
    run_batch(world)
    world.step(3)
    world.request(is_promoted=True)
    assert run_batch(world, 8) == ["b"]
    assert run_batch(world, 8) == ["c", "d"]


def test_a_failed_node_of_a_step_fails_the_run_by_default():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1)))
    world.step(6)
    world.fail("a")
    world.step(40)
    assert world.phase == "Failed"
    assert world.started == ["a"]


def test_a_step_whose_selector_selects_no_node_asks_a_person():
    world = RolloutWorld(*NODES, rollout=steps(Step(selector=CANARY)))
    world.step(6)
    assert world.started == []
    _, reason, message = world.condition("Suspended")
    assert reason == "CheckInconclusive"
    assert "selects no node; `kubectl dsjob approve" in message
    world.request(approved_step=1)
    assert run_batch(world, 8) == list(NODES)


def test_a_step_of_which_no_node_has_completed_asks_a_person():
    world = RolloutWorld(
        *NODES,
        rollout=steps(Step(nodes=1)),
        failure_policy=FailurePolicy(FailureAction.CONTINUE, max_failed_nodes=2),
    )
    world.step(6)
    world.fail("a")
    world.step(40)
    _, reason, message = world.condition("Suspended")
    assert reason == "CheckInconclusive"
    assert "none of its nodes has completed; look at a, then `kubectl dsjob approve" in message
    assert world.started == ["a"]


READY = steps(Step(nodes=1, check=Check(node_ready=True, timeout_seconds=30)))


def test_a_check_waits_for_ready_nodes_and_then_the_run_goes_on():
    world = RolloutWorld(*NODES, rollout=READY)
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(10)
    assert world.started == ["a"]
    assert "not Ready: a" in world.condition("Progressing")[2]
    world.cluster.nodes["a"] = replace(world.cluster.nodes["a"], ready=True)
    world.step(6)
    assert world.at_work == ["b", "c", "d"]


def test_a_check_that_has_not_passed_in_time_fails_the_run():
    world = RolloutWorld(*NODES, rollout=READY)
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(45)
    assert world.phase == "Failed"
    assert world.condition("Failed")[1] == "CheckFailed"
    assert world.started == ["a"]


def test_a_failed_check_does_not_pass_because_nodes_leave_and_a_percentage_is_reached():
    world = RolloutWorld(
        *NODES,
        rollout=READY,
        failure_policy=FailurePolicy(FailureAction.PAUSE),
        success_policy=SuccessPolicy(min_completed="50%"),
    )
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(45)
    world.remove("c")
    world.remove("d")
    world.cluster.desired = 2
    world.step(5)
    assert world.phase == "Paused"
    assert world.condition("Suspended")[1] == "CheckFailed"
    world.set_ready("a", is_ready=True)
    world.retry()
    world.step(8)
    assert world.condition("Complete")[1] == "MinCompletedReached"


def test_a_failed_check_pauses_the_run_if_the_policy_says_so_and_a_retry_checks_again():
    policy = FailurePolicy(FailureAction.PAUSE)
    world = RolloutWorld(*NODES, rollout=READY, failure_policy=policy)
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(45)
    assert world.condition("Suspended")[1] == "CheckFailed"
    world.request(approved_step=1)
    world.step(3)
    assert world.started == ["a"], "an approval does not overrule a failed check"
    world.set_ready("a", is_ready=True)
    world.retry()
    world.step(8)
    assert world.at_work == ["b", "c", "d"]


@BOTH_POLICIES
def test_a_failed_check_that_is_taken_out_of_its_step_no_longer_holds_the_run(changes):
    policy = FailurePolicy(FailureAction.PAUSE)
    world = RolloutWorld(*NODES, rollout=READY, failure_policy=policy, **changes)
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(45)
    assert world.condition("Suspended")[1] == "CheckFailed"
    changed = replace(world.cluster.job.spec, rollout=steps(Step(nodes=1, soak_seconds=5)))
    world.cluster.job = replace(world.cluster.job, spec=changed)
    world.step(8)
    assert world.at_work == ["b", "c", "d"]
    assert world.condition("Suspended")[0] == "False"
    assert not world.cluster.job.status.rollout.check_failure


@BOTH_POLICIES
def test_a_retry_checks_again_although_the_failure_had_the_daemon_set_deleted(changes):
    """The retry is observed while there is no DaemonSet, and no node is counted."""
    policy = FailurePolicy(FailureAction.FAIL_FAST, pods=PodPolicy.DELETE)
    world = RolloutWorld(*NODES, rollout=READY, failure_policy=policy, **changes)
    run_batch(world)
    world.set_ready("a", is_ready=False)
    world.step(45)
    assert world.condition("Failed")[1] == "CheckFailed"
    assert world.cluster.job.status.rollout.check_failure
    world.cluster.has_daemon_set = False
    world.step(2)
    world.retry()
    world.step()
    assert not world.cluster.job.status.rollout.check_failure
    assert world.condition("Failed")[0] == "False"


WEB = steps(Step(nodes=1, check=Check(pods=PODS, timeout_seconds=30)))


def observe(world: RolloutWorld, found: PodsOnNode | None = None, error: str = "") -> None:
    query = world.plan.pod_query
    assert query is not None
    pods = {} if found is None else {"a": found}
    world.extra = {"observed_pods": PodObservation(query, pods, error)}


def test_pods_are_asked_for_and_the_step_goes_on_when_they_are_ready():
    world = RolloutWorld(*NODES, rollout=WEB)
    run_batch(world)
    world.step(3)
    assert world.plan.pod_query.selector == "app=web"
    assert world.plan.pod_query.nodes == {"a"}
    observe(world, PodsOnNode(2, 1))
    world.step(5)
    assert world.started == ["a"]
    observe(world, PodsOnNode(2, 2))
    world.step(6)
    assert world.at_work == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("found", "error", "reason"),
    [
        (None, "forbidden", "CheckInconclusive"),
        (None, "", "CheckInconclusive"),
        (PodsOnNode(2, 1), "", "CheckFailed"),
    ],
)
def test_pods_that_cannot_be_read_or_are_not_there_are_never_a_pass(found, error, reason):
    policy = FailurePolicy(FailureAction.PAUSE)
    world = RolloutWorld(*NODES, rollout=WEB, failure_policy=policy)
    run_batch(world)
    world.step(3)
    observe(world, found, error)
    world.step(45)
    assert world.condition("Suspended")[1] == reason
    assert world.started == ["a"]


def test_pods_that_were_never_read_are_inconclusive():
    world = RolloutWorld(*NODES, rollout=WEB)
    run_batch(world)
    world.step(45)
    assert world.condition("Suspended")[1] == "CheckInconclusive"


def test_no_gate_is_removed_while_a_person_is_asked():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, needs_approval=True)))
    run_batch(world)
    for _ in range(20):
        assert not acts(world.step(), RemoveSchedulingGates)


def test_the_history_says_who_approved_and_which_step_began():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1, needs_approval=True)))
    run_batch(world)
    world.step(4)
    world.request(approved_step=1, approved_by="kubectl-annotate")
    world.step(6)
    found = [(e["reason"], e.get("by", "")) for e in world.cluster.report_status["history"]]
    assert ("StepApproved", "kubectl-annotate") in found
    assert ("StepStarted", "") in found


def test_a_lower_number_of_steps_ends_them():
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1), Step(nodes=2)))
    run_batch(world)
    spec = replace(world.cluster.job.spec, rollout=Rollout())
    world.cluster.job = replace(world.cluster.job, spec=spec)
    world.finish()


def test_no_step_is_over_while_the_job_has_no_node():
    world = RolloutWorld(rollout=steps(Step(nodes=1), Step(nodes=2)))
    world.step(5)
    assert world.cluster.job.status.rollout.step == 1


def test_nodes_that_left_do_not_end_a_later_step_before_it_has_begun():
    """They count as having had their turn, so they also count among the nodes of the Job."""
    first, second = Step(nodes=2, soak_seconds=100), Step(nodes=3, needs_approval=True)
    world = RolloutWorld(*NODES, rollout=steps(first, second))
    run_batch(world)
    world.step(6)
    world.remove("a")
    world.remove("b")
    world.now += timedelta(seconds=100)
    world.step(6)
    world.request(approved_step=1)
    world.step(6)
    assert world.at_work == ["c"]
    world.complete("c")
    world.step(6)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    assert world.started == ["a", "b", "c"]


def test_a_step_of_all_nodes_has_those_that_took_the_place_of_others():
    every = Step(nodes="100%", needs_approval=True)
    world = RolloutWorld(*NODES, rollout=steps(Step(nodes=1), every))
    run_batch(world)
    world.step(6)
    assert world.at_work == ["b", "c", "d"]
    world.remove("a")
    world.cluster.nodes["e"] = make_node("e")
    world.put(gated_pod("e", serial=1))
    world.complete("b", "c", "d")
    world.step(6)
    assert world.at_work == ["e"]


def one_uncounted(*each: Step) -> RolloutWorld:
    """Return a world whose node a has completed, and whose node b is not counted yet."""
    world = RolloutWorld("a", rollout=steps(*each, max_parallel=2))
    world.cluster.nodes["b"] = make_node("b")
    world.cluster.desired = world.cluster.scheduled = 1
    world.step(6)
    world.complete("a")
    world.step(20)
    assert world.started == ["a"]
    return world


def count(world: RolloutWorld, name: str, nodes: int) -> None:
    """Have the DaemonSet controller count a node, and create its pod."""
    world.cluster.nodes[name] = make_node(name)
    world.put(gated_pod(name, serial=1))
    world.cluster.desired = world.cluster.scheduled = nodes


@pytest.mark.parametrize(
    "each",
    [
        (Step(nodes=2),),
        (Step(nodes=2, soak_seconds=5),),
        (Step(nodes=1), Step(nodes=2)),
        (Step(nodes="100%"),),
        (Step(nodes="50%"), Step(nodes="100%", soak_seconds=5)),
    ],
    ids=["nodes", "soak", "second", "share", "second share"],
)
def test_a_step_waits_for_a_node_that_is_known_and_not_counted_yet(each):
    """Found by the simulation, seed 7870704: it ended, and the third node began at once."""
    world = one_uncounted(*each)
    number = len(each)
    assert world.cluster.job.status.rollout.step == number
    words = f"step {number} of {number} waits until the DaemonSet controller has counted b"
    assert words in world.condition("Progressing")[2]
    count(world, "b", 2)
    world.step(3)
    assert world.started == ["a", "b"]
    assert world.turns()["b"] == number
    if isinstance(each[-1].nodes, int):
        count(world, "c", 3)
        world.step(20)
        assert world.started == ["a", "b"]
    world.finish()


@pytest.mark.parametrize("step", [Step(nodes=1), Step(nodes="50%")])
def test_a_step_that_has_its_nodes_waits_for_no_other_one(step):
    world = one_uncounted(step)
    assert world.cluster.job.status.rollout.step == 2
    # After the last step, nothing else says what the run waits for.
    assert world.condition("Progressing")[1] == "DaemonSetStalled"
    assert world.condition("Progressing")[2].startswith("b matches the Job")


def test_a_node_that_is_known_and_not_counted_yet_does_not_restart_a_soak():
    world = RolloutWorld("a", rollout=steps(Step(nodes=2, soak_seconds=20)))
    world.step(3)
    world.complete("a")
    world.step(3)
    began = world.cluster.job.status.rollout.soak_started_at
    assert began is not None
    world.cluster.desired = world.cluster.scheduled = 1
    world.cluster.nodes["b"] = make_node("b")
    world.step(40)
    progress = world.cluster.job.status.rollout
    assert (progress.step, progress.soak_started_at) == (1, began)
    assert "has counted b" in world.condition("Progressing")[2]
    del world.cluster.nodes["b"]
    world.step(3)
    assert world.phase == "Succeeded"


@pytest.mark.parametrize("soak", [0, 5])
def test_a_step_with_a_selector_waits_for_a_node_of_it_that_is_not_counted_yet(soak):
    """It ended, and node d, which is none of it, began beside the first task of node b."""
    step = Step(selector=CANARY, soak_seconds=soak)
    world = RolloutWorld("a", "d", rollout=steps(step, max_parallel=2))
    for name in "ab":
        world.label(name, canary="true")
    world.cluster.desired = world.cluster.scheduled = 2
    world.step(6)
    world.complete("a")
    world.step(20)
    assert world.started == ["a"]
    words = "step 1 of 1 waits until the DaemonSet controller has counted b"
    assert words in world.condition("Progressing")[2]
    world.put(gated_pod("b", serial=1))
    world.cluster.desired = world.cluster.scheduled = 3
    world.step(20)
    assert world.started == ["a", "b"]
    world.finish()
    assert world.turns() == {"a": 1, "b": 1, "d": 2}


def test_a_step_whose_selector_selects_only_a_node_that_is_not_counted_yet_asks_nobody():
    world = RolloutWorld("d", rollout=steps(Step(selector=CANARY)))
    world.label("b", canary="true")
    world.cluster.desired = world.cluster.scheduled = 1
    world.step(20)
    assert world.phase == "Pending"
    assert "has counted b" in world.condition("Progressing")[2]
    world.put(gated_pod("b", serial=1))
    world.cluster.desired = world.cluster.scheduled = 2
    world.step(6)
    assert world.started == ["b"]


def test_a_step_with_a_selector_waits_for_no_other_node_that_is_not_counted_yet():
    world = RolloutWorld("a", "d", rollout=steps(Step(selector=CANARY)))
    world.label("a", canary="true")
    world.label("b", canary="false")
    world.cluster.desired = world.cluster.scheduled = 2
    world.step(6)
    world.complete("a")
    world.step(6)
    assert world.started == ["a", "d"]


@pytest.mark.parametrize(
    ("step", "looked_at"),
    [(Step(nodes=1), []), (Step(nodes="100%"), ["b"]), (Step(selector=CANARY), ["b"])],
)
def test_other_nodes_of_the_cluster_are_looked_at_only_when_a_step_would_end(step, looked_at):
    """A soak may be long, and a cluster may have thousands of nodes."""
    world = RolloutWorld("a", rollout=steps(replace(step, soak_seconds=60)))
    world.label("a", canary="true")
    world.cluster.desired = world.cluster.scheduled = 1
    world.step(3)
    world.complete("a")
    world.step(3)
    world.label("b", canary="true")
    found = []

    def look(snapshot, known):
        found.extend(snapshot.nodes.keys() - known)
        return frozenset()

    with patch.object(members, "find_chosen_others", look):
        world.step(40)
        assert "soaks until" in world.condition("Progressing")[2]
        assert not found
        world.step(30)
    assert sorted(set(found)) == looked_at


@pytest.mark.parametrize("step", [Step(nodes="100%"), Step(selector=CANARY)])
def test_a_check_that_has_passed_is_not_asked_again_while_a_node_is_not_counted(step):
    """Else the status would change with each answer, for as long as no one counts the node."""
    world = RolloutWorld(
        "a", rollout=steps(replace(step, check=Check(pods=PODS, timeout_seconds=30)))
    )
    for name in "ab":
        world.label(name, canary="true")
    del world.cluster.nodes["b"]
    world.cluster.desired = world.cluster.scheduled = 1
    world.step(3)
    world.complete("a")
    world.step(3)
    assert world.plan.pod_query is not None
    world.label("b", canary="true")
    observe(world, PodsOnNode(2, 2))
    for _ in range(60):
        world.step()
        # What was read is forgotten when nothing asks any more.
        if world.plan.pod_query is None:
            world.extra = {}
    assert world.phase == "Running"
    assert world.cluster.job.status.rollout.step == 1
    assert "waits until the DaemonSet controller has counted b" in world.condition("Progressing")[2]
    assert not acts(world.step(), WriteStatus)
    del world.cluster.nodes["b"]
    world.step(3)
    assert world.phase == "Succeeded"
