"""Adds changes of completed nodes to some schedules, by a random stream of their own.

The label is chosen by no Job, and one of each Job: what is changed says for which Job it is.
"""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import JobPlan, Schedule

SHARE = 0.08


def with_node_changes(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in some cases with Jobs that label their completed nodes."""
    if rng.random() >= SHARE:
        return schedule
    jobs = (_labelling(job, number) for number, job in enumerate(schedule.jobs))
    return replace(schedule, jobs=tuple(jobs))


def _labelling(job: JobPlan, number: int) -> JobPlan:
    on_success = {"labels": {f"example.com/done-{number}": "yes"}}
    return replace(job, spec={**job.spec, "onSuccess": on_success})
