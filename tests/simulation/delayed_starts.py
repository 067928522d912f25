"""Adds problems that keep tasks from starting to a schedule.

They are drawn from a random stream of their own, so that a seed keeps everything else. Most
schedules have none.
"""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import Disturbance, Schedule, Task

SHARE = 0.15
SIDECAR = {"name": "proxy", "image": "example/proxy:1", "restartPolicy": "Always"}


def with_delayed_starts(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with tasks that start late, again late or never, and what that meets."""
    if schedule.calm or rng.random() >= SHARE:
        return schedule
    nodes = [
        replace(node, tasks=tuple(_late(task, rng) for task in node.tasks))
        for node in schedule.nodes
    ]
    schedule = replace(schedule, nodes=tuple(nodes))
    job = schedule.jobs[0]
    if rng.random() < 0.4:
        schedule = _with_sidecar(schedule)
    found = list(schedule.disturbances)
    for _ in range(rng.choice((0, 1, 1, 2))):
        at, node = round(rng.uniform(0, 40.0), 2), rng.choice(schedule.nodes).name
        kind = rng.choice(("not_ready", "not_ready", "down", "retry"))
        if kind == "retry":
            found.append(Disturbance(at, kind, job.key))
        else:
            found.append(Disturbance(at, kind, what=node, seconds=float(rng.choice((3, 20, 70)))))
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _late(task: Task, rng: Random) -> Task:
    """Return what is kept from starting half of the time."""
    if rng.random() < 0.5:
        return task
    kind = rng.choice(("again", "again", "slow", "work", "reject", "mount", "pull"))
    if kind == "reject":
        return replace(task, kind=kind, times=rng.choice((3, 99)))
    if kind == "again":
        return replace(task, kind=kind, code=rng.choice((1, 42)), after=rng.choice((0.0, 0.0, 9.0)))
    if kind in {"mount", "pull"}:
        return replace(task, kind=kind, after=rng.choice((0.0, 20.0)))
    return replace(task, kind=kind, after=rng.choice((20.0, 40.0, 70.0)))


def _with_sidecar(schedule: Schedule) -> Schedule:
    first, *rest = schedule.jobs
    pod_spec = first.spec.get("template", {}).get("spec", {})
    template = {"spec": {**pod_spec, "initContainers": [SIDECAR]}}
    return replace(
        schedule, jobs=(replace(first, spec={**first.spec, "template": template}), *rest)
    )
