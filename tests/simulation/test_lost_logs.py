"""A kubelet that deletes the log of an ended container before anybody has read it."""

import pytest

from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task


def with_lost_logs(mode, task, at):
    """Return a schedule in which the log of each end within two seconds is lost."""
    spec = {"image": "example/task:1", "completion": {"mode": mode}, "failureLogLines": 5}
    lost = (Disturbance(at + after, "lose_ended_logs", what="n1") for after in (0.0, 0.5, 1.0, 1.5))
    return Schedule(
        0,
        (NodePlan("n1", (task,)), NodePlan("n2", (Task("done", 3.0),))),
        (JobPlan(spec=spec),),
        (Disturbance(at - 0.6, "log_fails", what="n1", seconds=2.0), *lost),
        calm=True,
    )


@pytest.mark.parametrize("at", [3.0, 3.5, 14.0, 16.5])
@pytest.mark.parametrize("mode", ["Log", "Exit"])
@pytest.mark.parametrize(
    "task",
    [
        *(Task(kind, 3.0) for kind in ("exit", "silent")),
        *(Task(kind, 3.0, 1, 2) for kind in ("fail", "refuse", "again")),
    ],
    ids=lambda task: task.kind,
)
def test_a_log_that_is_lost_makes_no_verdict_wrong(mode, task, at):
    assert not simulate(with_lost_logs(mode, task, at)).violations


def test_a_task_that_prints_its_token_only_once_waits_for_a_retry_if_its_log_is_lost():
    """As guarantees.md says: the proof is gone with the log."""
    result = simulate(with_lost_logs("Log", Task("once", 3.0), 3.0))
    assert not result.violations
    assert result.excused["stuck: lost log"]
