"""Adds what holds up nodes of a rollout to a schedule: see `NAMES`.

Schedules with such a hold have seeds of their own, from FIRST_SEED on: the others keep all they
have. A window is open in each second minute: no run waits for it for longer than it may be quiet.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.rollouts import rolled_out
from tests.simulation.schedule import Disturbance, JobPlan, Schedule, Task
from tests.simulation.server import Raw

FIRST_SEED = 1_000_000_000
WINDOW = {"start": "*/2 * * * *", "duration": "1m"}
KEY = "maintenance"
SECOND = "second"
_Adapt = Callable[[Schedule, Random], Schedule]
# The time of a run that is held up is not that of its deadline.
_DEADLINE = "activeDeadlineSeconds"


def with_holds(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with one kind of hold, or several."""
    chosen = {rng.choice(NAMES)}
    chosen |= {name for name in NAMES if rng.random() < 0.1}
    schedule = without_what_no_hold_has(schedule)
    for name in NAMES:
        if name in chosen:
            schedule = _HOLDS[name](schedule, rng)
    found = tuple(sorted(schedule.disturbances, key=lambda d: d.at))
    return replace(schedule, disturbances=found)


def add_hold(schedule: Schedule, name: str, rng: Random) -> Schedule:
    """Return the schedule with the hold of that name, see NAMES."""
    return _HOLDS[name](schedule, rng)


def without_what_no_hold_has(schedule: Schedule) -> Schedule:
    """Return the schedule without deadlines of runs, and without pods that stay for their logs."""
    kept = tuple(d for d in schedule.disturbances if d.mode not in {"pods", _DEADLINE})
    jobs = tuple(_without_deadline(job) for job in schedule.jobs)
    return replace(schedule, jobs=jobs, disturbances=kept)


def _without_deadline(job: JobPlan) -> JobPlan:
    spec = {key: value for key, value in job.spec.items() if key != _DEADLINE}
    policy = spec.pop("failurePolicy", None) or {}
    policy = {key: value for key, value in policy.items() if value != "Keep"}
    return replace(job, spec={**spec, "failurePolicy": policy} if policy else spec)


def _with_rollout(schedule: Schedule, rng: Random, **fields: object) -> Schedule:
    """Return the schedule with a rollout in the first Job, and these fields in it."""
    first, *rest = schedule.jobs
    if "rollout" not in first.spec:
        first = rolled_out(first, rng)
    rollout = {**first.spec["rollout"], **fields}
    first = replace(first, spec={**first.spec, "rollout": rollout})
    return replace(schedule, jobs=(first, *rest))


def _set(schedule: Schedule, **fields: object) -> Schedule:
    first, *rest = schedule.jobs
    return replace(schedule, jobs=(replace(first, spec={**first.spec, **fields}), *rest))


def _when(schedule: Schedule, rng: Random) -> float:
    work = 3.0 + max(task.after for node in schedule.nodes for task in node.tasks)
    return round(rng.uniform(0, rng.choice((2.0, work, work + 20.0))), 2)


def _adds(schedule: Schedule, *found: Disturbance) -> Schedule:
    return replace(schedule, disturbances=(*schedule.disturbances, *found))


# --- the holds -----------------------------------------------------------------------------


def _windows(schedule: Schedule, rng: Random) -> Schedule:
    return _with_rollout(with_tasks_that_end(schedule), rng, window=WINDOW)


def with_tasks_that_end(schedule: Schedule) -> Schedule:
    """Return the schedule for a window. All tasks end: else it would open and close in vain."""
    nodes = [replace(node, tasks=tuple(map(_ending, node.tasks))) for node in schedule.nodes]
    jobs = [
        replace(job, tasks={node: _ending(task) for node, task in job.tasks.items()})
        for job in schedule.jobs
    ]
    # Nor is a write refused for good: what it is to say would change each minute.
    kept = tuple(d for d in schedule.disturbances if d.kind != "refuse_write" or d.seconds)
    return replace(schedule, nodes=tuple(nodes), jobs=tuple(jobs), disturbances=kept)


def _ending(task: Task) -> Task:
    return task if task.kind in {"done", "exit", "once"} else Task("done", task.after)


def _approvals(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with steps that a person approves in time, early, late or never."""
    steps: list[Raw] = [{"nodes": 1, "approval": "Required"}, {"nodes": 2, "approval": "Required"}]
    steps = steps[: rng.choice((1, 1, 2))]
    schedule, key = _with_rollout(schedule, rng, steps=steps), schedule.jobs[0].key
    for number in range(1, len(steps) + 1):
        if rng.random() < 0.85:
            at = _when(schedule, rng)
            schedule = _adds(schedule, Disturbance(at, "approve", key, str(number)))
    if rng.random() < 0.2:
        schedule = _adds(schedule, Disturbance(_when(schedule, rng), "promote", key))
    return schedule


def _aborts(schedule: Schedule, rng: Random) -> Schedule:
    if schedule.jobs[0].is_continuous:
        return schedule
    schedule, key = _with_rollout(schedule, rng), schedule.jobs[0].key
    schedule = _adds(schedule, Disturbance(_when(schedule, rng), "abort", key))
    if rng.random() < 0.5:
        schedule = _adds(schedule, Disturbance(_when(schedule, rng), "retry", key))
    return schedule


def _stops(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a stop of all Jobs, in the middle or from the beginning."""
    if rng.random() < 0.7:
        schedule = _with_rollout(schedule, rng, maxParallel=1)
    at = 0.0 if rng.random() < 0.3 else _when(schedule, rng)
    seconds = float(rng.choice((1, 5, 20, 60)))
    schedule = _adds(schedule, Disturbance(at, "stop_all", seconds=seconds))
    if rng.random() < 0.3:
        late = Disturbance(at, "stall", "controller", "configmaps", seconds=rng.choice((2.0, 10.0)))
        schedule = _adds(schedule, late)
    if rng.random() < 0.5:
        pod = Disturbance(round(at + 1, 2), "delete_pod", what=rng.choice(schedule.nodes).name)
        schedule = _adds(schedule, pod)
    return schedule


def _successors(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a Job that waits for the success of the first one."""
    return _with_second(schedule, rng, {"after": [schedule.jobs[0].name]})


def _exclusive(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with two Jobs that never run on a node at the same time."""
    schedule = _with_rollout(schedule, rng, exclusive=KEY)
    return _with_second(schedule, rng, {"rollout": {"exclusive": KEY}})


def _with_second(schedule: Schedule, rng: Random, fields: dict[str, Any]) -> Schedule:
    name, namespace = SECOND, schedule.jobs[0].namespace
    known = next((job for job in schedule.jobs if job.name == name), None)
    spec: dict[str, Any] = dict(known.spec) if known else {"image": "example/second:1"}
    rollout = {**spec.get("rollout", {}), **fields.get("rollout", {})}
    spec = {**spec, **fields, **({"rollout": rollout} if rollout else {})}
    tasks = {
        node.name: Task("done", rng.choice((0.2, 1.0, 4.0)))
        for node in schedule.nodes
        if rng.random() < 0.8
    }
    at = round(rng.choice((0.0, rng.uniform(0, 4))), 2)
    second = JobPlan(name, namespace, spec=spec, tasks=tasks, created_at=at)
    others = tuple(job for job in schedule.jobs if job.name != name)
    return replace(schedule, jobs=(*others, second))


def _sufficient(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a Job that has succeeded when some of its nodes have."""
    first = schedule.jobs[0]
    if first.is_continuous:
        return schedule
    if rng.random() < 0.7:
        schedule = _with_rollout(schedule, rng, maxParallel=1)
    return _set(schedule, successPolicy={"minCompleted": rng.choice((1, 2, "50%", "80%"))})


def _dead_nodes(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with nodes that go down, and a Job that does not wait for them."""
    schedule = _with_rollout(schedule, rng)
    policy: dict[str, Any] = dict(schedule.jobs[0].spec.get("failurePolicy") or {})
    policy["maxFailedNodes"] = rng.choice((1, "50%"))
    if rng.random() < 0.6:
        policy["unreachableSeconds"] = rng.choice((0, 3, 20))
    schedule = _set(schedule, failurePolicy=policy)
    for _ in range(rng.choice((1, 1, 2))):
        seconds = float(rng.choice((0, 0, 25, 60)))
        node = rng.choice(schedule.nodes).name
        down = Disturbance(_when(schedule, rng), "down", what=node, seconds=seconds)
        schedule = _adds(schedule, down)
    return schedule


_HOLDS: dict[str, _Adapt] = {
    "windows": _windows,
    "approvals": _approvals,
    "aborts": _aborts,
    "stops": _stops,
    "after": _successors,
    "exclusive": _exclusive,
    "minCompleted": _sufficient,
    "dead nodes": _dead_nodes,
}
NAMES = tuple(_HOLDS)
