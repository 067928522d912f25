"""Schedules with a rule for an exit code, and tasks whose later attempts end with another one."""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import JobPlan, NodePlan, Schedule, Task

FIRST_SEED = 9_500_000_000
# The code for which the rule of each Job fails its nodes.
FATAL_CODE = 42


def with_exit_codes(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with such tasks on one or two nodes, and with a rule in each Job."""
    chosen = {
        node.name: _draw_task(rng)
        for node in rng.sample(schedule.nodes, rng.randint(1, min(2, len(schedule.nodes))))
    }
    return replace(
        schedule,
        nodes=tuple(_with_task(node, chosen.get(node.name)) for node in schedule.nodes),
        jobs=tuple(_with_rule(plan, rng) for plan in schedule.jobs),
    )


def _draw_task(rng: Random) -> Task:
    """Return a task that ends with the code of the rule first, or after another one."""
    codes = [FATAL_CODE, rng.choice((1, 75))]
    if rng.random() < 0.3:
        codes.reverse()
    after, times = rng.choice((0.0, 0.2, 1.0, 3.0)), rng.choice((2, 3, 99, 99))
    return Task("fail", after, codes[0], times, later_code=codes[1])


def _with_task(node: NodePlan, task: Task | None) -> NodePlan:
    return node if task is None else replace(node, tasks=(task, *node.tasks[1:]))


def _with_rule(plan: JobPlan, rng: Random) -> JobPlan:
    policy = {
        "action": rng.choice(("FailFast", "Continue", "Continue", "Pause")),
        **plan.spec.get("failurePolicy", {}),
        "rules": [{"exitCodes": [FATAL_CODE], "action": "Fail"}],
    }
    limit = rng.choice((1, 2, 6))
    return replace(plan, spec={**plan.spec, "failurePolicy": policy, "backoffLimit": limit})
