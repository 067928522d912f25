"""Rollouts with all they can have, and several disturbances each.

Other schedules have one theme, and a tenth of them a rollout. Here each Job has one, with steps,
soaks, checks by a script and approvals. Its run meets crashes, late watches, refused writes, edits,
nodes that go and come back, and users. Schedules of this kind have seeds of their own, from
FIRST_SEED on.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.simulation import drawn_disturbances, holds, standing_work
from tests.simulation.rollout_parts import with_rollout_parts
from tests.simulation.rollouts import rolled_out
from tests.simulation.schedule import Disturbance, JobPlan, Schedule, Task

FIRST_SEED = 8_000_000_000
# A third of the Jobs stay, and are asked for more.
_STANDING_SHARE = 0.35
_GROUPS = ("absences", "absences", "edits", "refusals", "endings", "starts", "taints", "clocks")


def with_crowded_rollouts(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with rollouts, and with more that happens to them."""
    schedule = holds.without_what_no_hold_has(schedule)
    schedule = replace(schedule, jobs=tuple(_with_steps(job, rng) for job in schedule.jobs))
    if rng.random() < _STANDING_SHARE:
        schedule = standing_work.asked_for_more(schedule, rng)
    elif rng.random() < 0.4:
        schedule = holds.add_hold(schedule, "approvals", rng)
    schedule = with_rollout_parts(schedule, rng)
    if not schedule.calm:
        for name in rng.sample(_GROUPS, rng.choice((0, 1, 1, 2))):
            schedule = drawn_disturbances.add_drawn(schedule, name, rng)
        found = [_draw(schedule, rng) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
        schedule = replace(schedule, disturbances=(*schedule.disturbances, *found))
    # What a group adds, such as a selection, may bring back what a hold cannot have.
    schedule = holds.without_what_no_hold_has(schedule)
    ordered = tuple(sorted(schedule.disturbances, key=lambda each: each.at))
    return replace(schedule, disturbances=ordered)


def _with_steps(job: JobPlan, rng: Random) -> JobPlan:
    """Return the Job with a rollout that has steps."""
    job = rolled_out(job, rng)
    rollout = dict(job.spec["rollout"])
    if "steps" not in rollout:
        rollout["steps"] = [{"nodes": nodes} for nodes in rng.choice(((1,), (1, 2), (1, "50%")))]
    return replace(job, spec={**job.spec, "rollout": rollout})


def _draw(schedule: Schedule, rng: Random) -> Disturbance:
    """Return a disturbance of a rollout, mostly of what a turn depends on."""
    draws: tuple[Callable[[Schedule, Random, float], Disturbance], ...] = (
        _crash,
        _stall,
        _node_change,
        _node_change,
        _user,
    )
    return rng.choice(draws)(schedule, rng, _when(schedule, rng))


def _when(schedule: Schedule, rng: Random) -> float:
    """Return a time at which a node may get its turn: the nodes work one after the other."""
    tasks: list[Task] = [task for node in schedule.nodes for task in node.tasks]
    work = 3.0 + sum(min(task.after, 8.0) + 2.0 for task in tasks)
    return round(rng.uniform(0, rng.choice((2.0, work, work))), 2)


def _crash(_schedule: Schedule, rng: Random, at: float) -> Disturbance:
    what = rng.choice(("jobs", "pods", "pods", "jobreports", "jobreports"))
    mode, seconds = rng.choice(("before", "after")), float(rng.choice((0.2, 1, 5, 20, 60)))
    return Disturbance(at, "crash_on", "controller", what, mode, seconds)


def _stall(_schedule: Schedule, rng: Random, at: float) -> Disturbance:
    who = rng.choice(("controller", "controller", "controller", "terminator"))
    what = rng.choice(("jobs", "daemonsets", "pods", "jobreports", "nodes"))
    return Disturbance(at, "stall", who, what, seconds=float(rng.choice((1, 3, 10, 30))))


def _node_change(schedule: Schedule, rng: Random, at: float) -> Disturbance:
    lasting = ("renew", "reregister", "down")
    kind = rng.choice(("delete_pod", "delete_pod", "leave", "join", "readmit", *lasting))
    seconds = float(rng.choice((2, 20, 70))) if kind in lasting else 0.0
    return Disturbance(at, kind, what=rng.choice(schedule.nodes).name, seconds=seconds)


def _user(schedule: Schedule, rng: Random, at: float) -> Disturbance:
    kind = rng.choice(("suspend", "retry", "retry", "delete_daemon_set", "select"))
    if kind == "select":
        return Disturbance(at, kind, what=rng.choice(("a", "b", "*")))
    seconds = float(rng.choice((2, 10, 30))) if kind == "suspend" else 0.0
    return Disturbance(at, kind, what=rng.choice(schedule.nodes).name, seconds=seconds)
