"""Schedules in which a user changes `spec.rollout` and `spec.failurePolicy` while a run is at work.

Steps come and go, with their soaks, checks and approvals; so do windows and limits, and the rollout
as a whole. Some changes are undone. Meanwhile a write is refused, a program crashes, or a watch is
late. Some of the Jobs stay.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation import holds
from tests.simulation.continuous_jobs import continuous
from tests.simulation.rollout_parts import with_rollout_parts
from tests.simulation.rollouts import rolled_out
from tests.simulation.schedule import Disturbance, JobPlan, Schedule, Task
from tests.simulation.server import Raw
from tests.simulation.undone_changes import new_image, obstacle, rerun

FIRST_SEED = 13_000_000_000
SHARE_CONTINUOUS = 0.4
SHARE_OF_WINDOWS = 0.25
SHARE_OF_PARTS = 0.5
SHARE_APPROVED = 0.8
SHARE_OF_POLICY = 0.35
# Seconds until a change is undone, 0 for never.
BACK = (0.0, 0.0, 0.0, 0.2, 1.0, 5.0, 20.0)
LIMITS = (1, 1, 2, 3, "50%", None)
# What makes other changes of a Job.
_LEFT_OUT = {"edit", "zone"}
_SCRIPT = {"script": {"script": "check"}, "timeoutSeconds": 10}
SHARE_OF_OTHER_SCRIPTS = 0.5


def with_changed_rollouts(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with rollouts, and with changes of the first one in its run."""
    schedule = holds.without_what_no_hold_has(schedule)
    is_standing = rng.random() < SHARE_CONTINUOUS
    jobs = [_with_steps(job, rng) for job in schedule.jobs]
    jobs = [continuous(job) if is_standing else job for job in jobs]
    kept = [d for d in schedule.disturbances if d.kind not in _LEFT_OUT]
    if is_standing:
        kept = [d for d in kept if d.kind != "select"]
    schedule = replace(schedule, jobs=tuple(jobs), disturbances=tuple(kept))
    if rng.random() < SHARE_OF_PARTS:
        schedule = with_rollout_parts(schedule, rng)
    has_windows = rng.random() < SHARE_OF_WINDOWS
    if has_windows:
        schedule = holds.with_tasks_that_end(schedule)
    found = [*schedule.disturbances, *_changes(schedule, rng, has_windows=has_windows)]
    found = [_with_other_script(each, rng) for each in sorted(found, key=lambda d: d.at)]
    return replace(schedule, disturbances=tuple(found))


def _with_other_script(change: Disturbance, rng: Random) -> Disturbance:
    """Return a change of the rollout, perhaps with another script in the checks of its steps."""
    if change.kind != "edit" or change.mode != "rollout" or not change.what:
        return change
    rollout = json.loads(change.what)
    checks = [step["check"] for step in rollout.get("steps") or () if "check" in step]
    for check in checks:
        if "script" in check and rng.random() < SHARE_OF_OTHER_SCRIPTS:
            check["script"] = {"script": "another check"}
    return replace(change, what=json.dumps(rollout, sort_keys=True))


def _with_steps(job: JobPlan, rng: Random) -> JobPlan:
    job = rolled_out(job, rng)
    rollout = dict(job.spec["rollout"])
    if rng.random() < 0.7:
        rollout["steps"] = [
            _step(nodes, rng) for nodes in rng.choice(((1,), (1, 2), (2, 3), (1, "50%")))
        ]
    return replace(job, spec={**job.spec, "rollout": rollout})


def _step(nodes: int | str, rng: Random) -> dict[str, Any]:
    step: dict[str, Any] = {"nodes": nodes}
    if rng.random() < 0.3:
        step["approval"] = "Required"
    if rng.random() < 0.3:
        step["soakSeconds"] = rng.choice((1, 3))
    if rng.random() < 0.15:
        step["check"] = _SCRIPT
    return step


# --- what happens ------------------------------------------------------------------------


def _changes(schedule: Schedule, rng: Random, *, has_windows: bool) -> list[Disturbance]:
    job = schedule.jobs[0]
    rollout: Raw | None = job.spec["rollout"]
    policy: Raw = job.spec.get("failurePolicy") or {}
    found = []
    for at in _moments(schedule, rng):
        back = rng.choice(BACK)
        if rng.random() < SHARE_OF_POLICY:
            changed = _other_policy(policy, rng)
            found.append(_edit(job, at, "failurePolicy", changed, back))
            policy = policy if back else changed
        else:
            other = _other_rollout(rollout, rng, has_windows=has_windows)
            found.append(_edit(job, at, "rollout", other, back))
            rollout = rollout if back else other
        found += [] if schedule.calm else obstacle(at, rng)
        found += _request(schedule, job, max(at + rng.uniform(-4, 6), 0.0), rng)
    for number in (1, 2, 3):
        if rng.random() < SHARE_APPROVED:
            at = rng.choice(_moments(schedule, rng))
            found.append(Disturbance(at, "approve", job.key, str(number)))
    return found


def _moments(schedule: Schedule, rng: Random) -> list[float]:
    """Return times at which nodes may get their turn: they work one after the other."""
    tasks: list[Task] = [task for node in schedule.nodes for task in node.tasks]
    work = 3.0 + sum(min(task.after, 8.0) + 2.0 for task in tasks)
    at, found = rng.uniform(0, rng.choice((2.0, work, work))), []
    for _ in range(rng.choice((1, 2, 3, 4))):
        found.append(round(at, 2))
        at += rng.choice((0.1, 1.0, 4.0, 15.0))
    return found


def _edit(job: JobPlan, at: float, field: str, value: Raw | None, back: float) -> Disturbance:
    words = json.dumps(value, sort_keys=True) if value else ""
    return Disturbance(at, "edit", job.key, words, field, back)


def _request(schedule: Schedule, job: JobPlan, at: float, rng: Random) -> list[Disturbance]:
    """Return what a user asks for about the time of a change, mostly nothing."""
    drawn, moment = rng.random(), round(at, 2)
    if drawn < 0.2:
        return [Disturbance(moment, "retry", job.key)]
    if drawn < 0.25:
        return [Disturbance(moment, "promote", job.key)]
    if drawn < 0.35:
        return [Disturbance(moment, "suspend", job.key, seconds=rng.choice((1.0, 10.0)))]
    if drawn < 0.5 and job.is_continuous:
        return [rerun(schedule, job.key, moment, rng)]
    if drawn < 0.65 and job.is_continuous:
        return [new_image(job.key, moment, rng.choice(BACK), rng)]
    return []


# --- what a rollout becomes --------------------------------------------------------------


def _other_rollout(rollout: Raw | None, rng: Random, *, has_windows: bool) -> Raw | None:
    """Return a rollout that differs from this one in a part or two, None for no rollout."""
    if rollout is None:
        return {"maxParallel": rng.choice((1, 2)), "steps": [_step(1, rng)]}
    if rng.random() < 0.06:
        return None
    changed: dict[str, Any] = dict(rollout)
    for _ in range(rng.choice((1, 1, 2))):
        draws: list[Callable[[dict[str, Any], Random], None]] = [_limit, _order, _pull]
        draws += [_steps] * 4 + [_window] * (3 if has_windows else 0)
        rng.choice(draws)(changed, rng)
    return changed


def _limit(rollout: dict[str, Any], rng: Random) -> None:
    field = rng.choice(("maxParallel", "maxParallel", "maxParallelPerZone"))
    rollout.pop(field, None)
    if (limit := rng.choice(LIMITS)) is not None:
        rollout[field] = limit


def _order(rollout: dict[str, Any], rng: Random) -> None:
    rollout["order"] = rng.choice(("Name", "Random", "Spread"))


def _pull(rollout: dict[str, Any], _rng: Random) -> None:
    if not rollout.pop("pullImagesFirst", False):
        rollout["pullImagesFirst"] = True


def _window(rollout: dict[str, Any], _rng: Random) -> None:
    if rollout.pop("window", None) is None:
        rollout["window"] = holds.WINDOW


def _steps(rollout: dict[str, Any], rng: Random) -> None:
    """Add, remove or change a step."""
    steps = [dict(step) for step in rollout.pop("steps", ())]
    kind = rng.choice(("add", "remove", "change", "change", "change", "none"))
    if kind == "add" or not steps:
        nodes = rng.choice((1, 2, 3, "50%"))
        steps.insert(rng.randrange(len(steps) + 1), _step(nodes, rng))
    elif kind == "remove":
        del steps[rng.randrange(len(steps))]
    elif kind == "change":
        _change_step(rng.choice(steps), rng)
    else:
        steps = []
    if steps:
        rollout["steps"] = steps


def _change_step(step: dict[str, Any], rng: Random) -> None:
    field = rng.choice(("nodes", "approval", "approval", "soakSeconds", "check", "check"))
    if field == "nodes":
        step["nodes"] = rng.choice((1, 2, 3, "50%"))
    elif step.pop(field, None) is None:
        others = {"approval": "Required", "soakSeconds": rng.choice((1, 3, 8)), "check": _SCRIPT}
        step[field] = others[field]


def _other_policy(policy: Raw, rng: Random) -> Raw:
    """Return a policy that differs from this one. What rules it has for exit codes, it keeps."""
    changed: dict[str, Any] = dict(policy)
    field = rng.choice(("action", "action", "maxFailedNodes", "maxFailedNodes", "pods"))
    if field == "action":
        changed[field] = rng.choice(("FailFast", "Continue", "Pause"))
    elif field == "maxFailedNodes":
        changed[field] = rng.choice((0, 1, 2, "50%"))
    else:
        changed[field] = rng.choice(("Delete", "DeleteFailed"))
    return changed
