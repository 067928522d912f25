"""The step with the last nodes: the run ends after its soak, its check and its approval."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import FailurePolicy, SuccessPolicy
from daemonset_job.api.rollout import Check, Step
from tests.unit.builders import gated_pod, make_node
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.runs import spec
from tests.unit.core.standing_jobs import CONTINUOUS

ALL = "100%"


def ended(step: Step, *more: Step, passes: int = 8, **changes: object) -> RolloutWorld:
    """Return a world in which all nodes have completed, the last ones in this step."""
    world = RolloutWorld("a", "b", rollout=steps(Step(nodes=1), step, *more), **changes)
    for _ in range(passes):
        world.step()
        world.complete(*world.at_work)
    assert set(world.cluster.evidence) == {"a", "b"}
    return world


def test_the_run_ends_after_the_soak_of_its_last_nodes() -> None:
    world = ended(Step(nodes=ALL, soak_seconds=30))
    assert world.phase == "Running"
    assert "step 2 of 2 soaks until" in world.condition("Progressing")[2]
    world.step(35)
    assert world.phase == "Succeeded"


@pytest.mark.parametrize(("joins", "phase"), [(False, "Succeeded"), (True, "Failed")])
def test_the_wait_for_the_end_counts_for_no_deadline_unless_a_node_joins(
    joins: bool, phase: str
) -> None:
    world = ended(Step(nodes=ALL, soak_seconds=600), active_deadline_seconds=300)
    world.now += timedelta(seconds=400)
    world.step()
    assert world.phase == "Running"
    if joins:
        world.cluster.nodes["c"] = make_node("c")
        world.put(gated_pod("c", serial=1))
        world.cluster.desired = 3
        world.step(2)
        assert world.condition("Failed")[:2] == ("True", "DeadlineExceeded")
    else:
        world.now += timedelta(seconds=300)
        world.step(2)
    assert world.phase == phase


def test_changed_steps_count_by_their_number() -> None:
    """A step that is over does not begin again, and one that was taken out is over."""
    patient = Step(nodes=ALL, soak_seconds=30, needs_approval=True)
    world = ended(patient)
    spec(world.cluster, rollout=steps(Step(nodes=2, soak_seconds=900), patient))
    world.step(35)
    assert world.condition("Suspended")[:2] == ("True", "WaitingForApproval")
    world = ended(patient)
    spec(world.cluster, rollout=steps(patient))
    world.step(3)
    assert world.phase == "Succeeded"


def over(world: RolloutWorld) -> list[str]:
    """Return what the timeline says of the end of all steps."""
    lines = world.cluster.report_status["timeline"]
    return [line.partition(": ")[2] for line in lines if "all steps are over" in line]


def test_the_timeline_says_whether_nodes_follow_the_last_step() -> None:
    world = ended(Step(nodes=ALL, soak_seconds=30))
    world.step(35)
    assert over(world) == ["no node is left to start"]
    world = RolloutWorld("a", "b", "c", rollout=steps(Step(nodes=1)))
    for _ in range(8):
        world.step()
        world.complete(*world.at_work)
    assert over(world) == ["the other nodes follow"]


def test_the_run_ends_after_the_approval_of_its_last_nodes() -> None:
    world = ended(Step(nodes=5, needs_approval=True))
    world.step(10)
    assert world.condition("Suspended")[:2] == ("True", "WaitingForApproval")
    world.request(approved_step=2)
    world.step(3)
    assert world.phase == "Succeeded"


@pytest.mark.parametrize(
    ("action", "phase"), [(FailureAction.FAIL_FAST, "Failed"), (FailureAction.PAUSE, "Paused")]
)
def test_the_check_of_the_last_nodes_fails_the_run(action: FailureAction, phase: str) -> None:
    step = Step(nodes=ALL, soak_seconds=5, check=Check(node_ready=True, timeout_seconds=10))
    world = ended(step, passes=6, failure_policy=FailurePolicy(action=action))
    world.set_ready("b", is_ready=False)
    world.step(40)
    assert world.phase == phase
    assert "the check of step 2 of 2 failed" in str(world.cluster.job.status.to_raw())


def test_steps_without_nodes_of_their_own_do_not_hold_the_end() -> None:
    world = ended(Step(nodes=ALL), Step(nodes=9, soak_seconds=300, needs_approval=True))
    assert world.phase == "Succeeded"


def test_a_last_step_of_which_no_node_has_completed_asks_nobody() -> None:
    policy = FailurePolicy(action=FailureAction.CONTINUE, max_failed_nodes=1)
    rollout = steps(Step(nodes=1), Step(nodes=ALL, needs_approval=True))
    world = RolloutWorld("a", "b", rollout=rollout, failure_policy=policy, backoff_limit=0)
    for _ in range(4):
        world.step()
        world.complete(*(set(world.at_work) & {"a"}))
    world.fail("b")
    world.step(40)
    assert world.phase == "Succeeded"


def test_a_job_that_stays_is_complete_after_its_last_step() -> None:
    world = ended(Step(nodes=ALL, soak_seconds=30), completion=CONTINUOUS)
    assert world.phase == "Running"
    world.step(35)
    assert world.condition("Complete")[0] == "True"


def test_a_success_on_record_is_not_taken_back() -> None:
    """As one that a controller recorded which did not wait for the last step."""
    world = ended(Step(nodes=ALL))
    assert world.phase == "Succeeded"
    spec(world.cluster, rollout=steps(Step(nodes=1), Step(nodes=ALL, soak_seconds=3600)))
    world.step(3)
    assert world.phase == "Succeeded"


def with_c_at_work(**changes: object) -> RolloutWorld:
    """Return a world in which c, of the step with the last nodes, is the only one at work."""
    rollout = steps(Step(nodes=1), Step(nodes=ALL, needs_approval=True), max_parallel=2)
    world = RolloutWorld("a", "b", "c", rollout=rollout, **changes)
    while set(world.cluster.evidence) != {"a", "b"} or world.at_work != ["c"]:
        world.step()
        world.complete(*(set(world.at_work) - {"c"}))
    return world


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("waits", [0, 10])
def test_a_completed_task_that_runs_again_does_not_end_the_last_step(name: str, waits: int) -> None:
    """As one that exits after its token, when it has completed or while a person is asked."""
    world = ended(Step(nodes=ALL, needs_approval=True), passes=6)
    world.step(waits)
    (pod,) = [each for each in world.cluster.pods if each.node_name == name]
    ended_at = world.now + timedelta(seconds=5)
    again = Container(state="terminated", exit_code=0, finished_at=ended_at)
    world.put(replace(pod, container=again))
    world.step()
    assert world.phase == "Running"
    assert f"step 2 of 2 waits until no task runs on {name}" in world.condition("Progressing")[2]
    world.step(10)
    assert world.condition("Suspended")[:2] == ("True", "WaitingForApproval")


def test_a_node_that_is_deleted_at_work_does_not_end_the_last_step() -> None:
    world = with_c_at_work()
    (pod,) = [each for each in world.cluster.pods if each.node_name == "c"]
    world.remove("c")
    world.extra = {"left_pods": (pod,)}
    world.step(3)
    assert world.phase == "Running"
    assert "2 of 2 nodes completed; step 2 of 2 waits" in world.condition("Progressing")[2]
    world.extra = {}
    world.step(3)
    assert world.condition("Suspended")[:2] == ("True", "WaitingForApproval")


def test_a_person_is_asked_if_the_completed_nodes_of_the_last_step_are_deleted() -> None:
    world = ended(Step(nodes=ALL, soak_seconds=30))
    world.remove("b")
    world.step(35)
    assert world.condition("Suspended")[:2] == ("True", "CheckInconclusive")
    assert "its nodes have left: b" in world.condition("Suspended")[2]
    world.request(approved_step=2)
    world.step(3)
    assert world.phase == "Succeeded"


def test_a_retry_does_not_pass_a_failed_check_of_nodes_that_were_deleted() -> None:
    step = Step(nodes=ALL, check=Check(node_ready=True, timeout_seconds=10))
    world = ended(step, passes=6, failure_policy=FailurePolicy(action=FailureAction.PAUSE))
    world.set_ready("b", is_ready=False)
    world.step(20)
    world.remove("b")
    world.retry()
    world.step(20)
    assert world.condition("Suspended")[:2] == ("True", "CheckInconclusive")


def test_nodes_beyond_those_that_are_enough_do_not_hold_the_end() -> None:
    world = with_c_at_work(success_policy=SuccessPolicy(min_completed=2))
    assert world.phase == "Running"
    world.complete("c")
    world.step(3)
    assert world.phase == "Succeeded"


def test_all_nodes_are_no_fewer_that_are_enough() -> None:
    policy = SuccessPolicy(min_completed="100%")
    world = ended(Step(nodes=ALL, needs_approval=True), success_policy=policy)
    assert world.condition("Suspended")[:2] == ("True", "WaitingForApproval")
