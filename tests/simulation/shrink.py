"""Reduces a failing schedule to the smallest one found that still breaks the same invariant.

It removes disturbances in groups (delta debugging), then one by one, then nodes, tasks and parts of
the spec, and last the lags. Each candidate schedule is simply run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from daemonset_job.api.shard_room import NODES_PER_SHARD
from tests.simulation.process import Decide
from tests.simulation.run import simulate
from tests.simulation.schedule import Schedule, Task
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.run import Outcome

TRIES = 400


def shrink(
    schedule: Schedule, outcome: Outcome, *, decide: Decide | None = None
) -> tuple[Schedule, Outcome]:
    """Return the smallest failing schedule found, and its outcome with the trace."""
    invariant = outcome.violations[0][1]
    tries = 0

    def fails(candidate: Schedule) -> bool:
        nonlocal tries
        tries += 1
        if tries > TRIES:
            return False
        return invariant in simulate(candidate, decide=decide).kinds

    smaller = True
    while smaller and tries <= TRIES:
        smaller = False
        for candidate in _candidates(schedule):
            if fails(candidate):
                schedule, smaller = candidate, True
                break
    return schedule, simulate(schedule, decide=decide, is_tracing=True)


def _candidates(schedule: Schedule) -> Iterator[Schedule]:
    """Yield what is simpler by one step, the largest steps first."""
    yield from _without_disturbances(schedule)
    if len(schedule.nodes) > 1:
        for i in range(len(schedule.nodes)):
            yield replace(schedule, nodes=schedule.nodes[:i] + schedule.nodes[i + 1 :])
    for i in range(len(schedule.workloads)):
        fewer = schedule.workloads[:i] + schedule.workloads[i + 1 :]
        yield replace(schedule, workloads=fewer)
    if not schedule.calm:
        yield replace(schedule, calm=True)
    yield from _with_simpler_jobs(schedule)
    yield from _with_simpler_tasks(schedule)
    if schedule.shard_nodes != NODES_PER_SHARD:
        yield replace(schedule, shard_nodes=NODES_PER_SHARD)
    if schedule.streams != 256:
        yield replace(schedule, streams=256)
    yield from _at_rounder_times(schedule)


def _without_disturbances(schedule: Schedule) -> Iterator[Schedule]:
    found = schedule.disturbances
    size = len(found)
    while size >= 1:
        for start in range(0, len(found), size):
            yield replace(schedule, disturbances=found[:start] + found[start + size :])
        size //= 2


def _with_simpler_jobs(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the schedule without a Job, or with one that is plainer."""
    jobs = schedule.jobs
    for i, job in enumerate(jobs):
        if len(jobs) > 1:
            yield replace(schedule, jobs=jobs[:i] + jobs[i + 1 :])
        needed = {"image", *(("rollback",) if _rolls_back(job.spec) else ())}
        keys = [key for key in job.spec if key not in needed]
        plainer = [replace(job, spec=_without(job.spec, key)) for key in keys]
        plainer += [replace(job, tasks=_without(job.tasks, node)) for node in job.tasks]
        if job.created_at:
            plainer.append(replace(job, created_at=0.0))
        for other in plainer:
            yield replace(schedule, jobs=(*jobs[:i], other, *jobs[i + 1 :]))


def _rolls_back(spec: Raw) -> bool:
    """Return whether a failure is rolled back: without `rollback`, admission refuses the Job."""
    return bool((spec.get("failurePolicy") or {}).get("action") == "Rollback")


def _without(mapping: Raw, key: str) -> Raw:
    return {k: v for k, v in mapping.items() if k != key}


def _with_simpler_tasks(schedule: Schedule) -> Iterator[Schedule]:
    for i, node in enumerate(schedule.nodes):
        for tasks in ((Task(after=1.0),), node.tasks[:1]):
            if tasks != node.tasks and node.tasks != (Task(after=1.0),):
                nodes = list(schedule.nodes)
                nodes[i] = replace(node, tasks=tasks)
                yield replace(schedule, nodes=tuple(nodes))


def _at_rounder_times(schedule: Schedule) -> Iterator[Schedule]:
    found = schedule.disturbances
    for i, disturbance in enumerate(found):
        if disturbance.at != round(disturbance.at):
            rounded = replace(disturbance, at=float(round(disturbance.at)))
            yield replace(schedule, disturbances=(*found[:i], rounded, *found[i + 1 :]))
