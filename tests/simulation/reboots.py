"""Has the tasks of some schedules reboot their nodes: by a random stream of their own.

The Job says how long a node may be away, or not. Not in mode Exit (docs/how-to/reboot-nodes.md).
"""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import NodePlan, Schedule, Task

SHARE = 0.05


def with_reboots(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in some cases with tasks that reboot their nodes."""
    if rng.random() >= SHARE or len(schedule.jobs) > 1 or schedule.jobs[0].is_exit:
        return schedule
    job = schedule.jobs[0]
    spec = {key: value for key, value in job.spec.items() if key != "backoffLimit"}
    if rng.random() < 0.2:
        spec["backoffLimit"] = rng.choice((0, 1))
    if rng.random() < 0.7:
        spec["nodeUnreachableSeconds"] = rng.choice((5, 30, 90, 90))
    nodes = tuple(_rebooted(node, rng) if rng.random() < 0.6 else node for node in schedule.nodes)
    return replace(schedule, jobs=(replace(job, spec=spec),), nodes=nodes)


def _rebooted(node: NodePlan, rng: Random) -> NodePlan:
    away = float(rng.choice((1, 3, 10, 25, 60)))
    after, times = rng.choice((0.2, 1.0, 3.0)), rng.choice((1, 1, 2))
    task = Task("reboot", after, times=times, away=away)
    return replace(node, tasks=tuple(task for _ in node.tasks))
