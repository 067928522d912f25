"""Adds `spec.rollback` to the Job of some schedules: for when a node fails, or on request.

It is drawn from a random stream of its own, so that other seeds keep all they have.
"""

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.schedule import Disturbance, Schedule, Task

SHARE = 0.06
# What happens to the cluster and to the programs; a user does nothing to the run that is judged.
_KINDS = frozenset(
    {
        *("fail", "crash", "stop", "crash_on", "stall", "relist", "repeat", "list_late"),
        *("join", "down", "not_ready", "shutdown", "evict", "delete_pod"),
        *("log_fails", "log_late", "lose_lines"),
        *("slow_daemon_sets", "slow_scheduler", "slow_gc", "refuse_pods"),
    }
)


def with_rollbacks(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in a share of all schedules with a rollback."""
    first, *rest = schedule.jobs
    is_other = rest or first.is_continuous or first.created_at
    if rng.random() >= SHARE or is_other:
        return schedule
    kept = {
        key: part
        for key, part in first.spec.items()
        if key in {"image", "completion", "rollout", "results"}
    }
    spec: dict[str, Any] = {
        **kept,
        "backoffLimit": 0,
        "rollback": {"args": ["undo"]},
        "failurePolicy": {"action": "Rollback"},
    }
    if rng.random() < 0.5:
        spec["rollout"] = {"maxParallel": rng.choice((1, 1, 2))}
    tasks = {node.name: _task(rng) for node in schedule.nodes}
    tasks[rng.choice(schedule.nodes).name] = Task("fail", rng.choice((0.2, 1.0, 3.0)), 1, 99)
    if rng.random() < 0.3:
        spec["failurePolicy"] = {**spec["failurePolicy"], "pods": "Delete"}
    disturbances = [d for d in schedule.disturbances if d.kind in _KINDS]
    if rng.random() < 0.4:
        # A person asks for it, of a run that may have succeeded.
        del spec["failurePolicy"]
        if rng.random() < 0.5:
            tasks = {
                node.name: Task("done", rng.choice((0.2, 1.0, 3.0))) for node in schedule.nodes
            }
        if rng.random() < 0.7:
            spec["ttlSecondsAfterFinished"] = 60
        at = round(rng.uniform(1.0, 30.0), 2)
        disturbances.append(Disturbance(at, "roll_back", first.key))
        disturbances.sort(key=lambda d: d.at)
    return replace(
        schedule,
        jobs=(replace(first, spec=spec, tasks=tasks),),
        nodes=tuple(replace(node, slot="1") for node in schedule.nodes),
        disturbances=tuple(disturbances),
    )


def _task(rng: Random) -> Task:
    kind = rng.choice(("done", "done", "done", "exit", "once", "fail"))
    after = rng.choice((0.0, 0.2, 1.0, 3.0, 8.0))
    return Task(kind, after, 1, 99) if kind == "fail" else Task(kind, after)
