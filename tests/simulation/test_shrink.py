"""The shrinker leaves a schedule that a cluster would take."""

from tests.simulation.rollback_mutants import forgets_failed_nodes
from tests.simulation.run import simulate
from tests.simulation.schedule import JobPlan, NodePlan, Schedule, Task
from tests.simulation.shrink import shrink

ROLLED_BACK = {
    "image": "example/task:1",
    "backoffLimit": 0,
    "rollback": {"args": ["undo"]},
    "failurePolicy": {"action": "Rollback"},
}


def test_a_run_that_is_rolled_back_keeps_what_says_how():
    """Without `rollback` the Job breaks the same invariant for another reason."""
    tasks = {"n0": Task("fail", 1.0, 1, 99)}
    jobs = (JobPlan(spec=ROLLED_BACK, tasks=tasks),)
    schedule = Schedule(0, (NodePlan("n0", slot="1"), NodePlan("n1")), jobs, calm=True)
    with forgets_failed_nodes():
        smaller, outcome = shrink(schedule, simulate(schedule))
    assert outcome.kinds == {"rollback"}
    assert smaller.jobs[0].spec.keys() == {"image", "rollback", "failurePolicy"}
