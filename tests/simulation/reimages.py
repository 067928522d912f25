"""Schedules with machines that are installed again, some of them with crowded rollouts.

The Node object stays, and so do the pods. The kubelet creates their containers again, and counts
their starts from 0.
"""

from dataclasses import replace
from random import Random

from tests.simulation.crowded_rollouts import with_crowded_rollouts
from tests.simulation.schedule import Disturbance, Schedule

FIRST_SEED = 9_000_000_000
SHARE_CROWDED = 0.3


def with_reimages(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with one or two machines that are installed again."""
    if rng.random() < SHARE_CROWDED:
        schedule = with_crowded_rollouts(schedule, rng)
    nodes = rng.sample(schedule.nodes, rng.randint(1, min(2, len(schedule.nodes))))
    reimages = tuple(
        Disturbance(
            rng.choice((0.5, 1.5, 2.0, 3.0, 6.0, 12.0, 25.0, 45.0)),
            "reimage",
            what=node.name,
            seconds=rng.choice((3.0, 4.0, 4.0, 8.0, 20.0, 90.0)),
        )
        for node in nodes
    )
    ordered = sorted((*schedule.disturbances, *reimages), key=lambda each: each.at)
    return replace(schedule, disturbances=tuple(ordered))
