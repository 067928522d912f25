"""A check that is changed while its step waits: what the former one found says nothing of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.owned_task import OwnedTask
from daemonset_job.api.rollout import Check, Step
from job_controller.core.plan import RefusedWrite
from job_controller.core.rollout import script_check
from tests.unit.core.rollouts import steps
from tests.unit.core.runs import spec
from tests.unit.core.test_passed_checks import HTTP, LATE, PODS, READY, CheckedWorld, asks_after
from tests.unit.core.test_script_check import CHECK, SCRIPT, asked, one, progress, world

OTHER = OwnedTask(script="other")


def without_script(found):
    spec(found.cluster, rollout=steps(Step(nodes=1, needs_approval=True)))
    found.step(3)


@pytest.mark.parametrize(
    "before", [lambda found: None, without_script], ids=["at once", "after no check"]
)
def test_a_script_that_is_changed_after_its_end_runs_before_the_approval(before):
    """The step had waited for its approval, as if the other script had passed, too."""
    found = world(rollout=one(needs_approval=True))
    found.end_owned(CHECK)
    found.step(3)
    assert asked(found)[1] == "WaitingForApproval"
    before(found)
    spec(found.cluster, rollout=one(script=OTHER, needs_approval=True))
    found.step(3)
    assert (found.phase, found.created) == ("Running", [CHECK, CHECK])
    assert found.owned[CHECK].spec.script == "other"
    found.end_owned(CHECK)
    found.step(3)
    assert asked(found)[1] == "WaitingForApproval"


def test_a_script_that_is_changed_while_another_check_is_open_runs():
    check = Check(script=SCRIPT, node_ready=True, timeout_seconds=60)
    found = world(rollout=steps(Step(nodes=1, check=check)))
    found.set_ready("a", is_ready=False)
    found.end_owned(CHECK)
    found.step(2)
    spec(found.cluster, rollout=steps(Step(nodes=1, check=replace(check, script=OTHER))))
    found.set_ready("a", is_ready=True)
    found.step(3)
    assert (progress(found).step, found.created) == (1, [CHECK, CHECK])


def test_a_changed_script_runs_on_the_nodes_that_the_former_one_passed_on(monkeypatch):
    monkeypatch.setattr(script_check, "BATCH_NODES", 2)
    found = world(*[f"n{number}" for number in range(6)], rollout=one(nodes=5))
    found.end_owned(CHECK)
    found.step(4)
    assert found.owned[CHECK].spec.nodes.include == ("n2", "n3")
    spec(found.cluster, rollout=one(nodes=5, script=OTHER))
    found.step(4)
    assert found.owned[CHECK].spec.nodes.include == ("n0", "n1")


def test_nobody_is_asked_about_a_script_that_was_changed():
    found = world()
    found.end_owned(CHECK, completed=0, unreachable=1, unreachable_names="a")
    found.step(3)
    assert asked(found)[1] == "CheckInconclusive"
    spec(found.cluster, rollout=one(script=OTHER))
    found.step(4)
    assert (asked(found)[0], found.created) == ("False", [CHECK, CHECK])
    found.end_owned(CHECK)
    found.finish()
    assert found.phase == "Succeeded"


def test_a_script_does_not_run_again_because_its_check_has_another_time():
    found = world(rollout=one(needs_approval=True))
    found.end_owned(CHECK)
    found.step(3)
    spec(found.cluster, rollout=one(needs_approval=True, timeout_seconds=90))
    found.step(4)
    assert (asked(found)[1], found.created) == ("WaitingForApproval", [CHECK])


def test_a_changed_script_whose_job_is_refused_for_a_moment_waits_for_it():
    found = world(rollout=one(needs_approval=True))
    found.end_owned(CHECK)
    found.step(3)
    found.now += LATE
    spec(found.cluster, rollout=one(script=OTHER, needs_approval=True))
    found.extra = {"refusals": {RefusedWrite.OWNED_JOB: "quota"}}
    found.step(4)
    assert (found.phase, asked(found)[0]) == ("Running", "False")
    found.extra = {}
    found.step(2)
    assert found.created == [CHECK, CHECK]


# --- the time of a check -----------------------------------------------------------------------


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_check_that_is_changed_late_has_its_time(is_empty):
    """The run failed at once, although the new check had been made only once."""
    world = CheckedWorld(Check() if is_empty else PODS)
    world.wait_for_approval()
    world.now += LATE
    world.set_ready("a", is_ready=False)
    spec(world.cluster, rollout=asks_after(READY))
    world.step(20)
    assert world.state[0] == "Running"
    assert "not Ready: a" in world.condition("Progressing")[2]
    world.step(20)
    assert world.state[0] == "Failed"


@pytest.mark.parametrize("check", [PODS, HTTP], ids=["pods", "http"])
def test_nobody_is_asked_about_a_changed_check_before_its_first_answer(check):
    world = CheckedWorld(READY)
    world.wait_for_approval()
    world.now += LATE
    spec(world.cluster, rollout=asks_after(check))
    world.step(6)
    assert {reason for _, reason in world.seen_states} == {"WaitingForApproval", "Resumed"}
    assert world.state == ("Paused", "WaitingForApproval")


def test_a_check_that_is_changed_and_changed_back_is_made_again():
    world = CheckedWorld(READY)
    world.wait_for_approval()
    world.set_ready("a", is_ready=False)
    for check in (Check(node_ready=True, pods=PODS.pods), READY):
        spec(world.cluster, rollout=asks_after(check))
        world.step(2)
    assert world.state[0] == "Running"


@pytest.mark.parametrize("other", [READY, replace(READY, timeout_seconds=5)])
def test_another_time_makes_no_other_check(other):
    world = CheckedWorld(READY)
    world.wait_for_approval()
    world.now += LATE
    world.set_ready("a", is_ready=False)
    spec(world.cluster, rollout=asks_after(other))
    world.step(3)
    assert world.state == ("Paused", "WaitingForApproval")


@pytest.mark.parametrize("before", [(600, 300), (0, 600)], ids=["shorter", "longer"])
def test_a_check_has_its_time_after_a_soak_of_another_length(before):
    first, then = before
    step = Step(nodes=1, soak_seconds=first, check=READY)
    world = CheckedWorld(READY)
    spec(world.cluster, rollout=steps(step))
    world.step(6)
    world.complete("a")
    world.set_ready("a", is_ready=False)
    world.step(20)
    world.now += timedelta(seconds=500 if first else 0)
    spec(world.cluster, rollout=steps(replace(step, soak_seconds=then)))
    world.step()
    world.now += timedelta(seconds=0 if first else 600)
    world.step(20)
    assert world.phase == "Running"
    world.step(20)
    assert world.phase == "Failed"
