"""Adds a ScheduledJob to a schedule, and disturbances about the moments of its starts.

Schedules with it have seeds of their own, from FIRST_SEED on: the others keep all they have. The
clocks of the API servers are right: a start may be due in the second in which it is created.
"""

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation import holds
from tests.simulation.schedule import Disturbance, JobPlan, Schedule, ScheduledPlan, Task
from tests.simulation.zones import without_lasting_refusals

FIRST_SEED = 4_000_000_000
NAME = "often"
MINUTES = ((5, 6, 7), (5, 6, 7), (5, 7), (6,), (5, 6, 7, 8))


def with_scheduled_jobs(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a ScheduledJob, whose runs last for less or more than a minute."""
    schedule = without_lasting_refusals(holds.without_what_no_hold_has(schedule))
    plan = _plan(schedule, rng)
    more = [_disturbance(plan, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    found = sorted((*schedule.disturbances, *more), key=lambda d: d.at)
    return replace(schedule, scheduled=(plan,), api_skews=(0.0, 0.0), disturbances=tuple(found))


def _plan(schedule: Schedule, rng: Random) -> ScheduledPlan:
    spec: dict[str, Any] = {"concurrencyPolicy": rng.choice(("Allow", "Forbid", "Replace"))}
    if rng.random() < 0.5:
        spec["startingDeadlineSeconds"] = rng.choice((15, 30, 90))
    for field, limits in (
        ("successfulJobsHistoryLimit", (0, 1)),
        ("failedJobsHistoryLimit", (0, 1)),
    ):
        if rng.random() < 0.5:
            spec[field] = rng.choice(limits)
    if rng.random() < 0.1:
        spec["suspend"] = True
    job: dict[str, Any] = {"image": "example/task:1"}
    if rng.random() < 0.4:
        job["ttlSecondsAfterFinished"] = rng.choice((3, 300))
    seconds = rng.choice((0.2, 3.0, 20.0, 50.0, 70.0, 70.0, 130.0, 130.0))
    task = Task("never") if rng.random() < 0.1 else Task("done", seconds)
    if rng.random() < 0.3:
        job["backoffLimit"] = 0
        task = Task("fail", rng.choice((1.0, 20.0, 70.0)), 1, 99)
    tasks = {node.name: task for node in schedule.nodes}
    return ScheduledPlan(NAME, "default", rng.choice(MINUTES), spec, JobPlan(spec=job, tasks=tasks))


def _disturbance(plan: ScheduledPlan, rng: Random) -> Disturbance:
    """Return what happens about a start, or at any time."""
    near = max(rng.choice(plan.moments) + rng.uniform(-3.0, 3.0), 0.0)
    at = round(rng.choice((near, near, rng.uniform(0.0, 200.0))), 2)
    seconds = float(rng.choice((1, 5, 20, 45)))
    kind = rng.choice(
        (
            *("crash", "crash", "crash_on", "crash_on", "fail", "fail", "stall"),
            *("suspend_schedule", "suspend_schedule", "delete_runs", "delete_schedule"),
        )
    )
    if kind in {"delete_runs", "delete_schedule"}:
        return Disturbance(at, kind, what=NAME)
    if kind == "suspend_schedule":
        return Disturbance(at, kind, what=NAME, seconds=rng.choice((0.0, seconds, seconds)))
    what = "" if kind == "crash" else rng.choice(("scheduledjobs", "scheduledjobs", "jobs"))
    modes = {"crash_on": ("before", "after"), "fail": ("before", "after", "slow", "conflict")}
    mode = rng.choice(modes.get(kind, ("",)))
    seconds = min(seconds, 4.0) if kind == "fail" else seconds
    return Disturbance(at, kind, "controller", what, mode, seconds)
