"""Schedules in which the kubelet deletes the logs of tasks that have just ended.

The logs cannot be read as a task ends, and are gone when they can. Most of these tasks end after
their token, fail, or print the failure token and end.
"""

from dataclasses import replace
from random import Random

from tests.simulation.features import STARTED_AT, with_answers, with_exit
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task

FIRST_SEED = 14_000_000_000
SHARE_WITH_OWN_TASK = 0.7
SHARE_WITH_EXIT = 0.25
SHARE_WITH_FAILURE_TOKEN = 0.4
SHARE_WITH_RESULTS = 0.4
_KINDS = ("exit", "exit", "once", "silent", "fail", "refuse", "again")


def with_lost_logs(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with one to three nodes whose ended tasks lose their logs."""
    chosen = rng.sample(schedule.nodes, rng.randint(1, min(3, len(schedule.nodes))))
    nodes = {node.name: _with_task(node, rng) for node in chosen}
    found = [each for node in nodes.values() for each in _losses(node, rng)]
    return replace(
        schedule,
        nodes=tuple(nodes.get(node.name, node) for node in schedule.nodes),
        jobs=tuple(_with_features(job, rng) for job in schedule.jobs),
        disturbances=tuple(sorted((*schedule.disturbances, *found), key=lambda each: each.at)),
    )


def _with_task(node: NodePlan, rng: Random) -> NodePlan:
    if rng.random() >= SHARE_WITH_OWN_TASK:
        return node
    kind = rng.choice(_KINDS)
    code = rng.choice((0, 0, 2)) if kind in {"exit", "once"} else rng.choice((1, 2))
    times = rng.choice((1, 1, 2, 3)) if kind in {"fail", "refuse"} else 0
    task = Task(kind, rng.choice((1.0, 3.0, 8.0)), 0 if kind == "silent" else code, times)
    return replace(node, tasks=(task, *node.tasks[1:]))


def _losses(node: NodePlan, rng: Random) -> list[Disturbance]:
    """Return what happens around an end of the node's first task."""
    # The kubelet waits 10 s before the second attempt.
    end = STARTED_AT + node.tasks[0].after * rng.choice((1, 1, 2)) + rng.choice((0.0, 0.0, 10.0))
    seconds = rng.choice((1.0, 2.0, 5.0))
    begin = max(end - rng.uniform(0.1, seconds), 0.1)
    moments = sorted(rng.uniform(end, begin + seconds + 1.0) for _ in range(3))
    losses = [Disturbance(round(at, 2), "lose_ended_logs", what=node.name) for at in moments]
    return [Disturbance(round(begin, 2), "log_fails", what=node.name, seconds=seconds), *losses]


def _with_features(job: JobPlan, rng: Random) -> JobPlan:
    if rng.random() < SHARE_WITH_EXIT:
        job = with_exit(job)
    return with_answers(
        job, rng, failure_token=SHARE_WITH_FAILURE_TOKEN, results=SHARE_WITH_RESULTS
    )
