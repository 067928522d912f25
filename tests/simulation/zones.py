"""Adds `spec.rollout.maxParallelPerZone` to a schedule, and the zones of a cloud to its nodes.

Schedules with it have seeds of their own, from FIRST_SEED on: the others keep all they have. A part
of them has a node that joins without a zone: the cloud's controller sets its label a while later.
"""

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation import holds
from tests.simulation.rollouts import rolled_out
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task

FIRST_SEED = 2_000_000_000
ZONES = ("z1", "z1", "z2", "z2", "z3", "")


def with_zones(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with nodes in zones, and a limit in each Job; in some with a hold."""
    schedule = without_lasting_refusals(holds.without_what_no_hold_has(schedule))
    if rng.random() < 0.3:
        schedule = holds.with_holds(schedule, rng)
    nodes = _with_more(schedule.nodes, rng)
    # Few zones: else no zone would have several nodes.
    zones = rng.sample(ZONES, rng.choice((1, 2, 2, 3)))
    nodes = tuple(replace(node, topology_zone=rng.choice(zones)) for node in nodes)
    jobs = tuple(_limited(job, rng) for job in schedule.jobs)
    schedule = replace(schedule, nodes=nodes, jobs=jobs)
    if rng.random() < 0.25:
        schedule = _with_late_zone(schedule, rng)
    return replace(schedule, disturbances=tuple(sorted(schedule.disturbances, key=lambda d: d.at)))


def without_lasting_refusals(schedule: Schedule) -> Schedule:
    """Return the schedule in which no write is refused for good.

    The start of a soak is that of the last try to write it: reports would change with each.
    """
    kept = tuple(d for d in schedule.disturbances if d.kind != "refuse_write" or d.seconds)
    return replace(schedule, disturbances=kept)


def _with_more(nodes: tuple[NodePlan, ...], rng: Random) -> tuple[NodePlan, ...]:
    """Return at least four nodes: of fewer, too few are in one zone."""
    more = [
        NodePlan(f"m{number}", (Task("done", rng.choice((0.2, 1.0, 3.0, 8.0))),))
        for number in range(4 - len(nodes))
    ]
    return (*nodes, *more)


def _limited(job: JobPlan, rng: Random) -> JobPlan:
    job = job if "rollout" in job.spec else rolled_out(job, rng)
    rollout: dict[str, Any] = {**job.spec["rollout"]}
    rollout["maxParallelPerZone"] = rng.choice((1, 1, 2, "50%"))
    if rng.random() < 0.5:
        # The limit of all nodes would hide that of the zones.
        rollout.pop("maxParallel", None)
    return replace(job, spec={**job.spec, "rollout": rollout})


def _with_late_zone(schedule: Schedule, rng: Random) -> Schedule:
    node = rng.choice([node for node in schedule.nodes if node.is_initial] or schedule.nodes)
    nodes = [replace(each, topology_zone="") if each is node else each for each in schedule.nodes]
    at = round(rng.uniform(0, rng.choice((1.0, 3.0, 10.0))), 2)
    late = Disturbance(at, "topology", what=node.name, mode=rng.choice(("z1", "z2")))
    return replace(schedule, nodes=tuple(nodes), disturbances=(*schedule.disturbances, late))
