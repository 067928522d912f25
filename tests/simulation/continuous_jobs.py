"""Has the Jobs of some schedules stay: policy Continuous. By a random stream of their own."""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import JobPlan, Schedule

SHARE = 0.06
# What a Job that has no end cannot have.
_OF_AN_END = {"ttlSecondsAfterFinished", "activeDeadlineSeconds"}
_OF_LABELS = {"zone"}


def with_continuous_jobs(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in some cases with Jobs that stay."""
    if rng.random() >= SHARE or any(_ends(d.mode) for d in schedule.disturbances):
        return schedule
    # A completed node whose labels leave the selection and come back runs the task again.
    kept = tuple(d for d in schedule.disturbances if d.kind not in _OF_LABELS)
    jobs = tuple(map(continuous, schedule.jobs))
    return replace(schedule, jobs=jobs, disturbances=kept)


def _ends(field: str) -> bool:
    """Return whether a disturbance gives the Job a field of a run that ends."""
    return field in _OF_AN_END


def continuous(job: JobPlan) -> JobPlan:
    """Return the Job with policy Continuous, without what is of an end."""
    completion = {**job.spec.get("completion", {}), "policy": "Continuous"}
    spec = {key: value for key, value in job.spec.items() if key not in _OF_AN_END}
    return replace(job, spec={**spec, "completion": completion})
