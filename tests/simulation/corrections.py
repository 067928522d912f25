"""Adds a Job with a mistake, and a user who suspends it, corrects it and resumes it.

Schedules with such a correction have seeds of their own, from FIRST_SEED on: the others keep all
they have. The image of the Job cannot be pulled, on all nodes or on some, until it is corrected.
Where the user is late, a volume may be missing instead, or the kubelets reject the pods.
"""

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.server import Raw

FIRST_SEED = 5_000_000_000
# From here on the user is late: most of the runs have failed before.
LATE_SEED = 6_000_000_000
# Nothing keeps a task with this image from starting.
CORRECTED = "example/task:corrected"
# What keeps a task from starting until then: its image, a volume, or what its kubelet rejects.
_MISTAKES = frozenset({"pull", "mount", "reject"})
# How often the user looks whether the start is taken back.
LOOK_SECONDS = 0.5


def with_corrections(schedule: Schedule, rng: Random, *, is_late: bool = False) -> Schedule:
    """Return the schedule with its first Job of policy Once to be corrected."""
    plan = next((job for job in schedule.jobs if not job.is_continuous), None)
    if plan is None:
        return schedule
    share = rng.choice((1.0, 1.0, 0.6, 0.0))
    kind = rng.choice(("pull", "pull", "mount", "reject")) if is_late else "pull"
    broken = Task(kind, rng.choice((0.0, 0.0, 4.0)), times=100)
    tasks: dict[str, Task] = {
        node.name: broken if rng.random() < share else _task(node, plan) for node in schedule.nodes
    }
    jobs = tuple(replace(job, tasks=tasks) if job is plan else job for job in schedule.jobs)
    at, found = plan.created_at + is_late * round(rng.uniform(25, 75), 2), []
    for _ in range(rng.choice((1, 1, 2))):
        at += round(rng.choice((0.3, 1.0, rng.uniform(0, 3), rng.uniform(0, 15))), 2)
        found.append(Disturbance(at, "correct", plan.key, seconds=rng.choice((1.0, 8.0, 20.0))))
    disturbances = sorted((*schedule.disturbances, *found), key=lambda each: each.at)
    return replace(schedule, jobs=jobs, disturbances=tuple(disturbances), has_last_statuses=True)


def task_with_image(task: Task, pod: Raw) -> Task:
    """Return what the task of a raw pod does, which may have the corrected image."""
    images = {container.get("image") for container in _containers(pod)}
    return Task() if task.kind in _MISTAKES and CORRECTED in images else task


def image_of(pod: Raw, name: str) -> str:
    """Return the image of a container of a raw pod."""
    return next((str(each["image"]) for each in _containers(pod) if each["name"] == name), "")


def _containers(pod: Raw) -> list[dict[str, Any]]:
    spec = pod["spec"]
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _task(node: NodePlan, plan: JobPlan) -> Task:
    return plan.tasks.get(node.name) or node.tasks[0]
