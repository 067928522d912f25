"""Adds `completion.release` to the Jobs of a schedule: the pods of completed nodes are deleted.

It is drawn from a random stream of its own, so that a seed keeps all else.
"""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import JobPlan, Schedule

SHARE = 0.12


def with_released_pods(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in which a share of all schedules has Jobs that release their pods."""
    if rng.random() >= SHARE:
        return schedule
    return replace(schedule, jobs=tuple(map(_released, schedule.jobs)))


def _released(job: JobPlan) -> JobPlan:
    completion = {**job.spec.get("completion", {}), "release": True}
    return replace(job, spec={**job.spec, "completion": completion})
