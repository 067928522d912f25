"""Adds nodes to a schedule that are away for a time: shut down, not Ready, or without a network.

They are drawn from a random stream of their own, so that a seed keeps everything else.
"""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import Disturbance, Schedule

SHARE = 0.2


def with_conditions(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with nodes whose condition keeps pods off them, in some schedules."""
    if schedule.calm or rng.random() > SHARE:
        return schedule
    work = 3.0 + max(t.after for node in schedule.nodes for t in node.tasks)
    found = list(schedule.disturbances)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = round(rng.uniform(0, rng.choice((2.0, work, work, work + 20.0))), 2)
        node = rng.choice(schedule.nodes).name
        kind = rng.choice(("shutdown", "shutdown", "down", "no_network"))
        found.append(Disturbance(at, kind, what=node, seconds=float(rng.choice((0, 3, 20, 60)))))
        if kind != "shutdown":
            later = round(at + rng.uniform(0.1, 20.0), 2)
            found.append(Disturbance(later, "force_delete", what=node))
        if rng.random() < 0.2:
            later = round(at + rng.uniform(0.0, 20.0), 2)
            seconds = float(rng.choice((0, 5)))
            found.append(Disturbance(later, "taint", "", node, "NoSchedule", seconds))
    if rng.random() < 0.4:
        schedule = _with_policy(schedule, rng)
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _with_policy(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a first Job that goes on when nodes are lost, or may lose some."""
    first, *rest = schedule.jobs
    policy = {
        **first.spec.get("failurePolicy", {}),
        "action": rng.choice(("Continue", "Continue", "Pause", "FailFast")),
        "maxFailedNodes": rng.choice((0, 1, "50%")),
    }
    changed = replace(first, spec={**first.spec, "failurePolicy": policy})
    return replace(schedule, jobs=(changed, *rest))
