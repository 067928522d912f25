"""Schedules in which the clocks of the two API servers differ by seconds, or by up to an hour.

One of them may be far ahead, through which kubelets make their nodes. Then all nodes have been
there for a day, and stay. A node that joins would lose its pods until the other clock is past that
time (guarantees.md, At least once).
"""

from dataclasses import replace
from random import Random

from tests.simulation.schedule import Schedule

FIRST_SEED = 18_000_000_000
NODES_AGE = 86400.0
# By how many seconds the one that nodes are made through is ahead, or the other one.
AHEAD = (5.0, 20.0, 600.0, 3600.0)
BEHIND = (5.0, 20.0, 60.0, 600.0, 3600.0)
BASES = (0.0, 0.0, -3600.0, -60.0, 3.0, 3600.0)
# The most that a run may wait for a clock.
_LONG = 60.0
_NEW_NODES = {"join", "leave", "renew", "reregister", "drain"}


def with_far_clocks(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with API servers whose clocks differ."""
    base = rng.choice(BASES)
    if rng.random() < 0.5:
        return replace(schedule, api_skews=(base, base + rng.choice(BEHIND)))
    ahead = rng.choice(AHEAD)
    schedule = replace(schedule, api_skews=(base + ahead, base))
    if ahead <= _LONG:
        return schedule
    kept = tuple(d for d in schedule.disturbances if d.kind not in _NEW_NODES)
    nodes = tuple(replace(node, is_initial=True) for node in schedule.nodes)
    return replace(schedule, nodes=nodes, disturbances=kept, nodes_age=NODES_AGE)
