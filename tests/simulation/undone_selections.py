"""Schedules in which a user undoes a change of `spec.nodes` or a suspension within two seconds.

It meets reruns, retries and changes of what runs, while a write is refused, the controller is away,
or a watch is late. Half of the Jobs stay.
"""

from dataclasses import replace
from random import Random

from tests.simulation.continuous_jobs import continuous
from tests.simulation.drawn_disturbances import random_selection
from tests.simulation.schedule import Disturbance, JobPlan, Schedule
from tests.simulation.undone_changes import BACK, new_image, obstacle, rerun

FIRST_SEED = 11_000_000_000
SHARE_CONTINUOUS = 0.5
SHARE_REQUESTED = 0.6
SHARE_REVISED = 0.3
# What makes another change of the Job, for longer.
_LEFT_OUT = {"edit", "zone"}


def with_undone_selections(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with up to three changes of a Job that are undone at once."""
    jobs = list(schedule.jobs)
    at = rng.randrange(len(jobs))
    if rng.random() < SHARE_CONTINUOUS:
        jobs[at] = continuous(jobs[at])
    schedule = replace(schedule, jobs=tuple(jobs))
    kept = [d for d in schedule.disturbances if d.kind not in _LEFT_OUT]
    if jobs[at].is_continuous:
        kept = [d for d in kept if d.kind != "select"]
    found = [*kept, *_changes(schedule, jobs[at], rng)]
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _changes(schedule: Schedule, job: JobPlan, rng: Random) -> list[Disturbance]:
    """Return changes of a Job that are undone, with what users ask for around them."""
    work = max(task.after for node in schedule.nodes for task in node.tasks)
    at = round(rng.uniform(0.0, work + 15.0), 2)
    found = []
    for _ in range(rng.choice((1, 2, 3))):
        found += [_change(schedule, job, at, rng), *obstacle(at, rng)]
        if rng.random() < SHARE_REQUESTED:
            found.append(_request(schedule, job, max(at + rng.uniform(-4, 4), 0.0), rng))
        at = round(at + rng.choice((0.1, 1.0, 4.0, 15.0)), 2)
    return found


def _change(schedule: Schedule, job: JobPlan, at: float, rng: Random) -> Disturbance:
    back = rng.choice(BACK)
    drawn = rng.random()
    if drawn < 0.25:
        return Disturbance(at, "suspend", job.key, seconds=back)
    if job.is_continuous and drawn < 0.25 + SHARE_REVISED:
        return new_image(job.key, at, back, rng)
    return Disturbance(at, "edit", job.key, random_selection(schedule, rng), "nodes", back)


def _request(schedule: Schedule, job: JobPlan, at: float, rng: Random) -> Disturbance:
    if job.is_continuous and rng.random() < 0.6:
        return rerun(schedule, job.key, round(at, 2), rng)
    return Disturbance(round(at, 2), "retry", job.key)
