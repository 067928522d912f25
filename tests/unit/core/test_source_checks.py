"""Steps of a rollout that are checked by sources, and the notification that a person is asked."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.notifications import NotifyEvent, Subscription
from daemonset_job.api.report_status import parse_report_status
from daemonset_job.api.rollout import (
    Check,
    HttpCheck,
    PrometheusCheck,
    Rollout,
    Step,
    parse_rollout,
)
from job_controller.core.sources import AnswerState, SourceAnswer
from tests.unit.core.rollouts import RolloutWorld

HTTP = Check(http=HttpCheck("web", "/healthz"), timeout_seconds=60)
PAUSE = FailurePolicy(action=FailureAction.PAUSE)


def world_of(check=HTTP, **changes):
    """Return a rollout whose first node has completed its step, and is to be checked."""
    rollout = Rollout(steps=(Step(nodes=1, soak_seconds=10, check=check),))
    world = RolloutWorld("a", "b", "c", rollout=rollout, **changes)
    world.step(4)
    assert world.started == ["a"]
    world.complete("a")
    world.step(3)
    return world


def answer(world, state, message="words", age=0):
    """Have each question of the last plan answered."""
    at = world.now - timedelta(seconds=age)
    world.extra["source_answers"] = {
        query: SourceAnswer(state, message, at) for query in world.plan.source_queries
    }


def test_nothing_is_asked_before_the_soak_is_over():
    world = world_of()
    assert world.plan.source_queries == ()
    world.step(12)
    (query,) = world.plan.source_queries
    assert (query.source, query.path) == ("web", "/healthz")
    assert world.started == ["a"]


def test_a_pass_lets_the_next_nodes_start():
    world = world_of()
    world.step(12)
    answer(world, AnswerState.PASS)
    world.step(4)
    assert world.started == ["a", "b", "c"]
    assert world.plan.source_queries == ()


@pytest.mark.parametrize("state", [None, AnswerState.UNKNOWN])
def test_without_an_answer_the_run_waits_and_then_asks_a_person(state):
    world = world_of()
    world.step(12)
    if state is not None:
        answer(world, state, "the source web gave no answer: it cannot be connected to")
    for _ in range(30):
        world.step()
        if state is not None:
            answer(world, state, "the source web gave no answer: it cannot be connected to")
    assert world.phase == "Running"
    for _ in range(60):
        world.step()
        if state is not None:
            answer(world, state, "the source web gave no answer: it cannot be connected to")
    assert world.phase == "Paused"
    _, reason, message = world.condition("Suspended")
    assert reason == "CheckInconclusive"
    assert "the source" in message
    assert world.started == ["a"]
    world.request(approved_step=1)
    world.step(4)
    assert world.started == ["a", "b", "c"]


def test_a_failure_may_still_become_a_pass_and_then_fails_the_run():
    world = world_of()
    world.step(12)
    answer(world, AnswerState.FAIL, "the source web answered with HTTP 503")
    world.step(20)
    assert world.phase == "Running"
    for _ in range(60):
        answer(world, AnswerState.FAIL, "the source web answered with HTTP 503")
        world.step()
    assert world.phase == "Failed"
    _, reason, message = world.condition("Failed")
    assert reason == "CheckFailed"
    assert "the source web answered with HTTP 503" in message
    assert world.started == ["a"]


def test_an_old_answer_and_one_to_an_earlier_step_are_no_answers():
    world = world_of()
    world.step(12)
    answer(world, AnswerState.PASS, age=120)
    world.step(4)
    assert world.started == ["a"]
    answer(world, AnswerState.PASS)
    world.extra["source_answers"] = {
        replace(query, since=query.since - timedelta(seconds=1)): found
        for query, found in world.extra["source_answers"].items()
    }
    world.step(4)
    assert world.started == ["a"]


def test_both_sources_have_to_pass():
    check = Check(http=HttpCheck("web"), prometheus=PrometheusCheck("prom", "errors", below=0.1))
    world = world_of(check)
    world.step(12)
    http, prometheus = world.plan.source_queries
    assert (http.path, prometheus.query, prometheus.below) == ("", "errors", 0.1)
    found = SourceAnswer(AnswerState.PASS, "", world.now)
    world.extra["source_answers"] = {http: found}
    world.step(4)
    assert world.started == ["a"]
    world.extra["source_answers"] = {http: found, prometheus: found}
    world.step(4)
    assert world.started == ["a", "b", "c"]


def test_the_fields_are_read():
    raw = {
        "steps": [
            {
                "nodes": 1,
                "check": {
                    "http": {"source": "web", "path": "/healthz"},
                    "prometheus": {"source": "prom", "expression": "up", "above": 0, "below": 1.5},
                },
            }
        ]
    }
    found = parse_rollout(raw)
    assert found is not None
    assert found.steps[0].check.http == HttpCheck("web", "/healthz")
    assert found.steps[0].check.prometheus == PrometheusCheck("prom", "", "up", 0, 1.5)
    assert not found.steps[0].check.is_empty


def test_a_person_who_is_asked_is_notified_once_for_each_step():
    steps = tuple(Step(nodes=number, needs_approval=True) for number in (1, 2))
    world = RolloutWorld(
        "a",
        "b",
        "c",
        rollout=Rollout(steps=steps),
        notify=(Subscription("ops", ("WaitingForApproval", "Paused", "Succeeded")),),
    )
    for number, name in ((1, "a"), (2, "b")):
        world.step(4)
        world.complete(name)
        world.step(6)
        assert world.phase == "Paused"
        world.request(approved_step=number)
        world.step(3)
    world.step(3)
    world.complete("c")
    world.step(4)
    status = parse_report_status(world.cluster.report_status)
    due = status.due_notifications("ops")
    assert [each.event for each in due] == [
        NotifyEvent.WAITING_FOR_APPROVAL,
        NotifyEvent.WAITING_FOR_APPROVAL,
        NotifyEvent.SUCCEEDED,
    ]
    assert "kubectl dsjob approve" in due[0].message
    assert "step 1 of 2" in due[0].message
    assert "step 2 of 2" in due[1].message
