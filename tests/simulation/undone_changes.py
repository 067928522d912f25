"""Schedules in which a user asks for more, and undoes a change of what runs within seconds.

Reruns and retries meet a change that is undone before the status of the Job has it. For that write
is refused, the controller crashes after the one of the report, or a watch is late.
"""

from dataclasses import replace
from random import Random

from tests.simulation.continuous_jobs import continuous
from tests.simulation.rollouts import changes_pods, keeps_pods
from tests.simulation.schedule import Disturbance, Schedule

FIRST_SEED = 10_000_000_000
SHARE_RELEASED = 0.2
SHARE_ONE_AT_A_TIME = 0.3
SHARE_RETRIED = 0.4
# Seconds until a change is undone.
BACK = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
# What makes another change of a Job or its nodes, and what ends its run.
_LEFT_OUT = {"edit", "zone", "select", "suspend"}


def with_undone_changes(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with Jobs that stay, requests to one of them, and changes undone."""
    jobs = [continuous(job) for job in schedule.jobs]
    at = rng.randrange(len(jobs))
    spec = dict(jobs[at].spec)
    if rng.random() < SHARE_RELEASED:
        spec["completion"] = {**spec["completion"], "release": True}
    is_drawn = rng.random() < SHARE_ONE_AT_A_TIME
    if is_drawn and not (changes_pods(schedule) or keeps_pods(spec)):
        spec["rollout"] = {"maxParallel": 1}
    jobs[at] = replace(jobs[at], spec=spec)
    schedule = replace(schedule, jobs=tuple(jobs))
    kept = [d for d in schedule.disturbances if d.kind not in _LEFT_OUT]
    found = [*kept, *_requests(schedule, jobs[at].key, rng)]
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _requests(schedule: Schedule, key: str, rng: Random) -> list[Disturbance]:
    """Return up to three reruns of a Job, each with changes that are undone around it."""
    work = max(task.after for node in schedule.nodes for task in node.tasks)
    at = round(rng.uniform(2.0, work + 15.0), 2)
    found = []
    for _ in range(rng.choice((1, 2, 3))):
        found.append(rerun(schedule, key, at, rng))
        if rng.random() < SHARE_RETRIED:
            found.append(Disturbance(round(at + rng.uniform(0, 6), 2), "retry", key))
        for _ in range(rng.choice((1, 1, 2))):
            changed = round(max(at + rng.uniform(-1, 8), 0.0), 2)
            back = rng.choice(BACK)
            found.append(new_image(key, changed, back, rng))
            found += obstacle(changed, rng)
        at = round(at + rng.choice((0.1, 1.0, 4.0, 15.0)), 2)
    return found


def rerun(schedule: Schedule, key: str, at: float, rng: Random) -> Disturbance:
    """Return a request that one node, or all, run the task again."""
    name = rng.choice([node.name for node in schedule.nodes])
    return Disturbance(at, "rerun", key, f"{rng.choice(('*', name))}@{rng.randrange(1000)}")


def new_image(key: str, at: float, back: float, rng: Random) -> Disturbance:
    """Return a change of what a Job runs that is undone after `back` seconds."""
    image = f"example/task:{rng.randrange(2, 9)}"
    return Disturbance(at, "edit", key, image, "image", back)


def obstacle(at: float, rng: Random) -> list[Disturbance]:
    """Return what keeps the controller from the writes of a change; in a tenth of cases nothing."""
    before, drawn = round(max(at - 0.3, 0.0), 2), rng.random()
    if drawn < 0.5:
        seconds = rng.choice((0.5, 1.0, 2.0, 4.0))
        words = ("patch status jobs", "403")
    elif drawn < 0.7:
        away = rng.choice((1.0, 5.0))
        return [
            Disturbance(round(at + 0.01, 2), "crash_on", "controller", "jobreports", "after", away)
        ]
    elif drawn < 0.8:
        seconds = rng.choice((0.5, 2.0))
        words = ("patch status jobreports", "403")
    elif drawn < 0.9:
        what = rng.choice(("jobs", "pods", "jobreports", "daemonsets"))
        return [Disturbance(before, "stall", "controller", what, seconds=rng.choice((1.0, 4.0)))]
    else:
        return []
    return [Disturbance(before, "refuse_write", "controller", *words, seconds)]
