"""Adds `spec.rollout` to the Jobs of some schedules: their nodes start one batch after the other.

It is drawn from a random stream of its own, so that other seeds keep all they have.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.schedule import JobPlan, Schedule

SHARE = 0.1
_KEEPS_PODS = "Keep"


def with_rollouts(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in a share of all schedules with rollouts."""
    if rng.random() >= SHARE or changes_pods(schedule):
        return schedule
    return replace(schedule, jobs=tuple(rolled_out(job, rng) for job in schedule.jobs))


def changes_pods(schedule: Schedule) -> bool:
    """Return whether a user changes what happens to the pods of failed nodes."""
    return any("pods" in d.mode for d in schedule.disturbances)


def keeps_pods(spec: Mapping[str, Any]) -> bool:
    """Return whether the pods of failed nodes are kept, which a Job with a rollout refuses."""
    return (spec.get("failurePolicy") or {}).get("pods") == _KEEPS_PODS


def rolled_out(job: JobPlan, rng: Random) -> JobPlan:
    """Return the Job with a rollout, unless the pods of its failed nodes are kept."""
    if keeps_pods(job.spec):
        return job
    rollout: dict[str, Any] = {"order": rng.choice(("Name", "Random", "Spread"))}
    if rng.random() < 0.85:
        rollout["maxParallel"] = rng.choice((1, 1, 2, "50%"))
    if rng.random() < 0.5:
        rollout["steps"] = [
            {"nodes": nodes, **({"soakSeconds": rng.choice((1, 3))} if rng.random() < 0.5 else {})}
            for nodes in rng.choice(((1,), (1, 2), (2,), (1, "50%")))
        ]
    return replace(job, spec={**job.spec, "rollout": rollout})
