"""Adds cordons to a schedule: only pods of DaemonSets are placed on a cordoned node.

They are drawn from a random stream of their own, so that a seed keeps everything else.
"""

from dataclasses import replace
from random import Random

from tests.fakekube.node_lifecycle import taints_of
from tests.simulation.schedule import Disturbance, Schedule
from tests.simulation.server import Raw

SHARE = 0.1
KEY = "node.kubernetes.io/unschedulable"
CORDON_TAINT = {"key": KEY, "effect": "NoSchedule"}


def is_cordoned(node: Raw) -> bool:
    """Return whether a raw node is cordoned."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def has_taint(node: Raw) -> bool:
    """Return whether a raw node has the taint of cordoned ones."""
    return any(taint["key"] == KEY for taint in taints_of(node))


def with_cordons(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with nodes that are cordoned, for a while or permanently, in some."""
    if rng.random() > SHARE:
        return schedule
    work = 3.0 + max(t.after for node in schedule.nodes for t in node.tasks)
    found = list(schedule.disturbances)
    for _ in range(rng.choice((1, 1, 2))):
        at = round(rng.uniform(0, rng.choice((2.0, work, work))), 2)
        node, seconds = rng.choice(schedule.nodes).name, float(rng.choice((0, 0, 5, 30)))
        found.append(Disturbance(at, "cordon", what=node, seconds=seconds))
        if rng.random() < 0.4:
            later = round(at + rng.uniform(0.0, 3.0), 2)
            found.append(Disturbance(later, "delete_pod", what=node))
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))
