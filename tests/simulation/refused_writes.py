"""Schedules in which the API server refuses writes that it refuses in no other schedule.

Each has what has such a write: a drain, a ScheduledJob, a start that is taken back, or pods that
are refused. A write is refused for a while or for good, from the beginning or in the middle.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.simulation.changed_rollouts import with_changed_rollouts
from tests.simulation.changed_schedules import with_changed_schedules
from tests.simulation.corrections import with_corrections
from tests.simulation.drains import with_drains
from tests.simulation.labelled_steps import with_labelled_steps
from tests.simulation.orphans import with_orphans
from tests.simulation.schedule import Disturbance, Schedule
from tests.simulation.scheduled_jobs import with_scheduled_jobs

FIRST_SEED = 17_000_000_000
SHARE_LASTING = 0.15
SHARE_AWAY = 0.3
_Adapt = Callable[[Schedule, Random], Schedule]


def _with_late_corrections(schedule: Schedule, rng: Random) -> Schedule:
    return with_corrections(schedule, rng, is_late=True)


def _with_refused_pods(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with pods that are refused for longer than it takes to ask for them."""
    seconds = rng.choice((20.0, 40.0, 60.0))
    at = 0.0 if rng.random() < 0.5 else _when(schedule, rng)
    found = [Disturbance(at, "refuse_pods", seconds=seconds)]
    if at:
        name = rng.choice(schedule.nodes).name
        found.append(Disturbance(round(at + 0.1, 2), "delete_pod", what=name))
    return replace(schedule, disturbances=(*schedule.disturbances, *found))


def _as_it_is(schedule: Schedule, _rng: Random) -> Schedule:
    return schedule


# Which schedules have such a write of the controller.
_HOMES: dict[str, tuple[_Adapt, ...]] = {
    "create eviction pods": (with_drains,),
    "create jobs": (
        *(with_scheduled_jobs, with_changed_schedules),
        *(with_changed_rollouts, with_labelled_steps),
    ),
    "delete jobs": (with_scheduled_jobs, with_changed_schedules, with_changed_rollouts),
    "delete jobreports": (with_corrections, _with_late_corrections, with_orphans),
    "patch daemonsets": (_with_refused_pods,),
    "patch jobreports": (_as_it_is,),
    "patch status scheduledjobs": (with_scheduled_jobs, with_changed_schedules),
}
WRITES = tuple(_HOMES)


def with_refused_writes(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a write, or two, that are refused once or several times."""
    what = rng.choice(WRITES)
    home = rng.choice(_HOMES[what])
    schedule = home(schedule, rng)
    others = [other for other in WRITES if home in _HOMES[other]]
    found = list(schedule.disturbances)
    for _ in range(rng.choice((1, 1, 2, 3))):
        found += _refusal(schedule, what, rng)
        what = rng.choice(others)
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _refusal(schedule: Schedule, what: str, rng: Random) -> list[Disturbance]:
    """Return a refusal of a write, and perhaps an absence of the controller in it."""
    at = 0.0 if rng.random() < 0.3 else _when(schedule, rng)
    seconds, mode = rng.choice((1.0, 5.0, 20.0, 60.0)), rng.choice(("403", "422", "413"))
    if what.startswith("delete"):
        # What is deleted is deleted late. It has no content that could be invalid, or too large.
        at, seconds, mode = rng.choice((0.0, at, at)), rng.choice((20.0, 60.0, 120.0)), "403"
    if rng.random() < SHARE_LASTING:
        seconds = 0.0
    found = [Disturbance(at, "refuse_write", "controller", what, mode, seconds)]
    if rng.random() < SHARE_AWAY:
        later = round(at + rng.uniform(0.1, seconds or 20.0), 2)
        found.append(Disturbance(later, "crash", "controller", seconds=rng.choice((0.2, 5.0))))
    return found


def _when(schedule: Schedule, rng: Random) -> float:
    """Return a time about a start of a ScheduledJob or a correction, or one in the run."""
    moments = [*schedule.start_moments]
    moments += [d.at for d in schedule.disturbances if d.kind == "correct"]
    if moments and rng.random() < 0.8:
        return round(max(rng.choice(moments) + rng.uniform(-10.0, 3.0), 0.0), 2)
    work = 3.0 + max(task.after for node in schedule.nodes for task in node.tasks)
    return round(rng.uniform(0.0, rng.choice((2.0, work, work + 20.0))), 2)
