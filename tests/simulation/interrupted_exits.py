"""Schedules of mode Exit in which nodes are interrupted just as their tasks end.

Machines reboot, shut down or are installed again, and pods are evicted or deleted, within a second
of the end of a task. Most of the Jobs ask for results, and many have a failure token.
"""

from dataclasses import replace
from random import Random

from tests.simulation.drawn_disturbances import DISRUPTIONS
from tests.simulation.features import STARTED_AT, with_answers, with_exit, with_refusals
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule

FIRST_SEED = 12_000_000_000
SHARE_WITH_RESULTS = 0.8
SHARE_WITH_FAILURE_TOKEN = 0.4
SHARE_WITH_REFUSALS = 0.2
_KINDS = (
    *("reboot", "reboot", "reboot", "shutdown", "reimage", "not_ready", "down"),
    *("evict", "disrupt", "delete_pod", "readmit"),
)


def with_interrupted_exits(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with Jobs of mode Exit, and one or two interruptions of some nodes."""
    nodes = rng.sample(schedule.nodes, rng.randint(1, min(3, len(schedule.nodes))))
    found = [_interruption(node, rng) for node in nodes for _ in range(rng.choice((1, 1, 2)))]
    ordered = sorted((*schedule.disturbances, *found), key=lambda each: each.at)
    jobs = tuple(_exit(job, rng) for job in schedule.jobs)
    schedule = replace(schedule, jobs=jobs, disturbances=tuple(ordered))
    return with_refusals(schedule, rng) if rng.random() < SHARE_WITH_REFUSALS else schedule


def _interruption(node: NodePlan, rng: Random) -> Disturbance:
    """Return what happens to a node when its first task ends, or an attempt after it."""
    work = node.tasks[0].after
    at = STARTED_AT + work * rng.choice((1, 1, 1, 2)) + rng.uniform(-1.0, 1.5)
    seconds = rng.choice((1.0, 3.0, 8.0, 40.0))
    kind = rng.choice(_KINDS)
    why = rng.choice(DISRUPTIONS) if kind == "disrupt" else ""
    return Disturbance(round(max(at, 0.1), 2), kind, what=node.name, mode=why, seconds=seconds)


def _exit(job: JobPlan, rng: Random) -> JobPlan:
    return with_answers(
        with_exit(job), rng, failure_token=SHARE_WITH_FAILURE_TOKEN, results=SHARE_WITH_RESULTS
    )
