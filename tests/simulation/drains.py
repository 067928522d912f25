"""Adds `spec.cordon` or `spec.drain` to the Jobs of a schedule, and pods of other clients.

Schedules with it have seeds of their own, from FIRST_SEED on: the others keep all they have. People
cordon and uncordon nodes meanwhile, budgets change, and changes of nodes are refused for a while.
"""

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation import holds
from tests.simulation.rollouts import rolled_out
from tests.simulation.schedule import Disturbance, JobPlan, Schedule, Task, Workload
from tests.simulation.zones import without_lasting_refusals

FIRST_SEED = 3_000_000_000
# What runs on each node, and is never evicted.
AGENTS = (Workload("agent", "DaemonSet"), Workload("static", "Node"))
DEADLINE_SECONDS = 10


def with_drains(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a first Job that cordons or drains nodes, and others in part."""
    schedule = without_lasting_refusals(holds.without_what_no_hold_has(schedule))
    if rng.random() < 0.2:
        schedule = holds.with_holds(schedule, rng)
    first, *rest = (_preparing(job, rng) for job in schedule.jobs)
    others = [job if rng.random() < 0.5 else _plain(job) for job in rest]
    schedule = replace(schedule, jobs=(first, *others), workloads=_workloads(rng))
    if rng.random() < 0.35:
        schedule = _with_failing_task(schedule, rng)
    more = [_disturbance(schedule, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    more += [_arrival(schedule, rng) for _ in range(rng.choice((0, 0, 1, 2, 4)))]
    found = sorted((*schedule.disturbances, *more), key=lambda d: d.at)
    return replace(schedule, disturbances=tuple(found))


def _preparing(job: JobPlan, rng: Random) -> JobPlan:
    """Return the Job with `cordon` or `drain`; half of them with a rollout."""
    if rng.random() < 0.5 and "rollout" not in job.spec:
        job = rolled_out(job, rng)
    if rng.random() < 0.25:
        return replace(job, spec={**job.spec, "cordon": True})
    # A drain that a window interrupts begins again: it has to fail within a minute, or never does.
    is_held = "window" in (job.spec.get("rollout") or {})
    drain: dict[str, Any] = {"timeoutSeconds": rng.choice((5, 20) if is_held else (5, 20, 60))}
    if rng.random() < 0.7:
        drain["deleteEmptyDirData"] = True
    if rng.random() < 0.7:
        drain["force"] = True
    if rng.random() < 0.2:
        drain["gracePeriodSeconds"] = 1
    return replace(job, spec={**job.spec, "drain": drain})


def _plain(job: JobPlan) -> JobPlan:
    spec = {key: value for key, value in job.spec.items() if key not in {"cordon", "drain"}}
    return replace(job, spec=spec)


def _workloads(rng: Random) -> tuple[Workload, ...]:
    """Return pods that leave fast, slowly, only in part, or not at all."""
    found = [*AGENTS]
    for number in range(rng.choice((1, 1, 2, 3))):
        replicas = rng.choice((1, 1, 2, 3, 5))
        healthy = rng.choice((None, None, None, replicas - 1, replicas - 1, replicas))
        grace = rng.choice((0.1, 1.0, 3.0, 10.0))
        has_empty_dir = rng.random() < 0.2
        found.append(Workload(f"w{number}", "ReplicaSet", replicas, healthy, grace, has_empty_dir))
    if rng.random() < 0.1:
        found.append(Workload("alone", "", 1, grace=rng.choice((0.1, 3.0))))
    return tuple(found)


def _with_failing_task(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a node whose task is at work when it fails by its deadline."""
    first, *rest = schedule.jobs
    node = rng.choice(schedule.nodes).name
    task = Task("never", on_term=rng.choice(("", "deaf", "deaf", "clean")))
    spec = {**first.spec, "nodeDeadlineSeconds": DEADLINE_SECONDS}
    first = replace(first, spec=spec, tasks={**first.tasks, node: task})
    return replace(schedule, jobs=(first, *rest))


def _arrival(schedule: Schedule, rng: Random) -> Disturbance:
    """Return a pod more, about when the first node has its turn or a later one."""
    at = round(rng.uniform(0.0, rng.choice((1.0, 1.0, 20.0))), 2)
    names = [each.name for each in schedule.workloads if each.kind == "ReplicaSet"]
    return Disturbance(at, "scale", what=rng.choice(names))


def _disturbance(schedule: Schedule, rng: Random) -> Disturbance:
    at = round(rng.uniform(0.0, rng.choice((2.0, 6.0, 25.0))), 2)
    node, key = rng.choice(schedule.nodes).name, schedule.jobs[0].key
    seconds = float(rng.choice((1, 5, 20)))
    kind = rng.choice(
        (
            *("cordon", "cordon", "uncordon", "keep_cordon", "budget", "budget", "suspend"),
            *("refuse", "stall", "crash", "crash_on", "fail", "delete_job", "down"),
        )
    )
    if kind == "budget":
        name = rng.choice([each.name for each in schedule.workloads if each not in AGENTS])
        return Disturbance(at, kind, what=name, mode=rng.choice(("", "0", "1", "5")))
    if kind in {"uncordon", "keep_cordon"}:
        return Disturbance(at, kind, what=node)
    if kind in {"cordon", "down"}:
        return Disturbance(at, kind, what=node, seconds=rng.choice((0.0, seconds)))
    if kind in {"suspend", "delete_job"}:
        return Disturbance(at, kind, key, seconds=seconds if kind == "suspend" else 0.0)
    if kind == "refuse":
        return Disturbance(at, "refuse_write", "controller", "patch nodes", "403", seconds)
    what = rng.choice(("nodes", "nodes", "pods", "jobreports"))
    mode = {"crash_on": ("before", "after"), "fail": ("before", "after", "slow", "conflict")}
    modes = mode.get(kind, ("",))
    return Disturbance(
        at, kind, "controller", what if kind != "crash" else "", rng.choice(modes), seconds
    )
