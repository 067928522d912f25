"""A kubelet that is restarted, and then has no room for a pod whose task is at work."""

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
