"""Schedules in which a user edits a ScheduledJob, and in which clocks of API servers are wrong.

The edits are of `schedule`, `suspend` and `concurrencyPolicy`, mostly about the moments of starts.
Some are undone, some while the controller is away.
"""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import Disturbance, Schedule
from tests.simulation.scheduled_jobs import MINUTES, NAME, with_scheduled_jobs

FIRST_SEED = 15_000_000_000
SHARE_WRONG = 0.6
SHARE_AWAY = 0.3
# Seconds by which the clocks of the API servers are ahead, and the difference between the two.
SKEWS = (3.0, 60.0, 60.0, 150.0, 3600.0, -3.0, -60.0)
BETWEEN = (0.0, 0.0, 0.0, -1.0, 1.0, -2.0, 2.0)
# Seconds until an edit is undone, 0 for never.
BACK = (0.0, 0.0, 0.0, 0.2, 2.0, 20.0, 70.0)
FIELDS = ("schedule", "schedule", "suspend", "concurrencyPolicy")


def with_changed_schedules(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a ScheduledJob, edits of it, and perhaps wrong clocks."""
    schedule = with_scheduled_jobs(schedule, rng)
    if rng.random() < SHARE_WRONG:
        base = rng.choice(SKEWS)
        schedule = replace(schedule, api_skews=(base, base + rng.choice(BETWEEN)))
    found = list(schedule.disturbances)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        found += _edit(schedule, rng)
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _edit(schedule: Schedule, rng: Random) -> list[Disturbance]:
    """Return an edit of the ScheduledJob, and perhaps an absence of the controller about it."""
    near = rng.choice(schedule.start_moments) + rng.choice((-1, 1)) * rng.uniform(0.0, 20.0)
    at = round(max(rng.choice((near, near, rng.uniform(1.0, 220.0))), 0.5), 2)
    field = rng.choice(FIELDS)
    values = {
        "schedule": [",".join(map(str, minutes)) for minutes in MINUTES],
        "suspend": ["true", "false"],
        "concurrencyPolicy": ["Allow", "Forbid", "Replace"],
    }
    edit = Disturbance(at, "edit_schedule", rng.choice(values[field]), NAME, field)
    found = [replace(edit, seconds=rng.choice(BACK))]
    if rng.random() < SHARE_AWAY:
        before = round(max(at - rng.uniform(0.1, 20.0), 0.2), 2)
        away = rng.choice((5.0, 20.0, 45.0))
        found.append(Disturbance(before, "crash", "controller", seconds=away))
    return found
