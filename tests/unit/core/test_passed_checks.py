"""A check that has passed is not made again while its step waits for an approval."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.rollout import Check, HttpCheck, Step
from job_controller.core.rollout.source_answers import find_queries
from job_controller.core.sources import AnswerState, SourceAnswer
from job_controller.core.state.observed_pods import PodObservation, PodsOnNode
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.runs import spec

PODS = Check(pods={"matchLabels": {"app": "web"}}, timeout_seconds=30)
READY = Check(node_ready=True, timeout_seconds=30)
HTTP = Check(http=HttpCheck("web"), timeout_seconds=30)
LATE = timedelta(hours=2)


def asks_after(check: Check, nodes: int | str = 1):
    return steps(Step(nodes=nodes, needs_approval=True, check=check))


class CheckedWorld(RolloutWorld):
    """A rollout of which pods are read while a check asks about them, and forgotten after that."""

    def __init__(self, check: Check) -> None:
        super().__init__("a", "b", rollout=asks_after(check))
        self.seen_states: list[tuple[str, str]] = []

    def step(self, passes: int = 1):
        for _ in range(passes):
            super().step()
            query = self.plan.pod_query
            pods = {} if query is None else dict.fromkeys(query.nodes, PodsOnNode(1, 1))
            self.extra["observed_pods"] = query and PodObservation(query, pods)
            self.extra["source_answers"] = {
                asked: SourceAnswer(AnswerState.PASS, "", self.now)
                for asked in self.plan.source_queries
            }
            self.seen_states.append(self.state)
        return self.plan

    @property
    def state(self) -> tuple[str, str]:
        found = [c for c in self.cluster.job.status.conditions if c.type == "Suspended"]
        return self.phase, found[0].reason if found else ""

    def wait_for_approval(self) -> None:
        self.step(6)
        self.complete("a")
        self.step(6)
        assert self.state == ("Paused", "WaitingForApproval")
        self.seen_states.clear()


@pytest.mark.parametrize("check", [PODS, READY, HTTP], ids=["pods", "nodeReady", "http"])
@pytest.mark.parametrize("later", [timedelta(0), LATE], ids=["at once", "later"])
def test_a_run_waits_for_its_approval_without_a_pause_that_comes_and_goes(check, later):
    """Pods are read only while a check asks, and without an answer it had not passed."""
    world = CheckedWorld(check)
    world.wait_for_approval()
    world.now += later
    world.step(10)
    assert set(world.seen_states) == {("Paused", "WaitingForApproval")}
    assert world.plan.actions == ()
    assert (world.plan.pod_query, world.plan.source_queries) == (None, ())
    world.request(approved_step=1)
    world.step(5)
    assert world.at_work == ["b"]


def test_a_node_that_is_not_ready_after_the_check_has_passed_does_not_fail_the_check():
    world = CheckedWorld(READY)
    world.wait_for_approval()
    world.now += LATE
    world.set_ready("a", is_ready=False)
    world.step(5)
    assert set(world.seen_states) == {("Paused", "WaitingForApproval")}


def test_a_source_that_answers_otherwise_after_the_check_has_passed_does_not_fail_the_check():
    world = CheckedWorld(HTTP)
    world.wait_for_approval()
    began = world.cluster.job.status.rollout.soak_started_at
    world.now += LATE
    (asked,) = find_queries(HTTP, began)
    for _ in range(5):
        world.extra["source_answers"] = {asked: SourceAnswer(AnswerState.FAIL, "500", world.now)}
        world.step()
    assert set(world.seen_states) == {("Paused", "WaitingForApproval")}


def test_another_check_of_the_step_is_made():
    world = CheckedWorld(PODS)
    world.wait_for_approval()
    world.set_ready("a", is_ready=False)
    spec(world.cluster, rollout=asks_after(replace(READY, timeout_seconds=600)))
    world.step(3)
    assert world.phase == "Running"
    assert "not Ready: a" in world.condition("Progressing")[2]
    world.set_ready("a", is_ready=True)
    world.step(3)
    assert world.state == ("Paused", "WaitingForApproval")


def test_a_retry_has_the_check_made_again():
    world = CheckedWorld(READY)
    world.wait_for_approval()
    world.set_ready("a", is_ready=False)
    world.retry()
    world.step(4)
    assert world.phase == "Running"
    assert "not Ready: a" in world.condition("Progressing")[2]
