"""Pods that end with their sandbox while the task is at work: its exit code means nothing."""

import pytest

from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task


def rejected_at_work(mode: str, on_term: str, seed: int) -> Schedule:
    """Return a schedule in which n1 loses its pod at work, and no attempt may fail."""
    kind = "exit" if mode == "Exit" else "done"
    tasks = Task(kind, 20.0, on_term=on_term), Task(kind, 2.0)
    spec = {"image": "example/task:1", "backoffLimit": 0, "completion": {"mode": mode}}
    return Schedule(
        seed,
        (NodePlan("n1", tasks), NodePlan("n2", (Task(kind, 5.0),))),
        (JobPlan(spec=spec),),
        (Disturbance(6.0, "readmit", what="n1"),),
        calm=True,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("on_term", ["", "clean", "deaf"])
@pytest.mark.parametrize("mode", ["Log", "Exit"])
def test_a_pod_that_a_restarted_kubelet_rejects_neither_fails_nor_completes_its_node(
    mode, on_term, seed
):
    assert not simulate(rejected_at_work(mode, on_term, seed)).violations


@pytest.mark.parametrize("seed", range(3))
def test_a_task_that_ends_with_0_as_its_machine_shuts_down_does_not_complete_its_node(seed):
    schedule = Schedule(
        seed,
        (NodePlan("n1", (Task("exit", 20.0, on_term="clean"),)),),
        (JobPlan(spec={"image": "example/task:1", "completion": {"mode": "Exit"}}),),
        (Disturbance(5.0, "reboot", what="n1", seconds=3.0),),
        calm=True,
    )
    assert not simulate(schedule).violations
