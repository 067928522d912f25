"""Adds what a rollout runs in Jobs of its own: pulls of images, and checks by a script.

It is drawn from a random stream of its own, so that other seeds keep all they have.
"""

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.schedule import JobPlan, Schedule, Task


def with_rollout_parts(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in which a share of the rollouts pulls images first, or checks."""
    return replace(schedule, jobs=tuple(_with_parts(job, schedule, rng) for job in schedule.jobs))


def _with_parts(job: JobPlan, schedule: Schedule, rng: Random) -> JobPlan:
    rollout = job.spec.get("rollout")
    if rollout is None or rng.random() < 0.4:
        return job
    changes: dict[str, Any] = {}
    if rng.random() < 0.7:
        changes["pullImagesFirst"] = True
    if steps := rollout.get("steps"):
        check = {"script": {"script": "check"}, "timeoutSeconds": rng.choice((10, 60))}
        changes["steps"] = [
            {**step, "check": check} if rng.random() < 0.6 else step for step in steps
        ]
    tasks = {node.name: _task(rng) for node in schedule.nodes if rng.random() < 0.15}
    spec = {**job.spec, "rollout": {**rollout, **changes}}
    return replace(job, spec=spec, owned_tasks=tasks)


def _task(rng: Random) -> Task:
    """Return a task that takes a while, fails, or cannot start."""
    kind = rng.choice(("done", "done", "fail", "pull", "pull"))
    if kind == "fail":
        return Task(kind, 0.3, code=3, times=1)
    return Task(kind, rng.choice((2.0, 5.0, 0.0 if kind == "pull" else 8.0)))
