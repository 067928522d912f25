"""A user who deletes the DaemonSet of a Job with `--cascade=orphan`, and the adoption of its pods.

The garbage collector takes the owner from each pod before the DaemonSet goes. The next DaemonSet
with the same selector adopts them (pkg/controller/controller_ref_manager.go, ClaimPods). Forged
pods are not adopted here: what they do is in security.md. Schedules with such a user have seeds of
their own, from FIRST_SEED on; in them a Job is corrected, too.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from daemonset_job.api import names
from tests.fakekube.daemon_set_objects import may_adopt, owned_pods, owner_of_pods
from tests.simulation.corrections import with_corrections
from tests.simulation.schedule import Disturbance, Schedule
from tests.simulation.server import DAEMON_SETS, PODS, Raw, Server

if TYPE_CHECKING:
    from tests.simulation.world import World

FIRST_SEED = 7_000_000_000
_COLLECTOR = "garbage-collector"
# How long the garbage collector needs for all of it.
SECONDS = 0.3


def with_orphans(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a correction, and a DaemonSet that is orphaned about that time."""
    schedule = with_corrections(schedule, rng, is_late=rng.random() < 0.6)
    corrected = [d for d in schedule.disturbances if d.kind == "correct"]
    found = []
    for _ in range(rng.choice((1, 1, 2)) if corrected else 0):
        about = rng.choice(corrected)
        delay = rng.choice((rng.uniform(0, 1.5), rng.uniform(-3, 3), rng.uniform(-40, 10)))
        at = round(max(about.at + delay, 0.0), 2)
        found.append(Disturbance(at, "orphan_daemon_set", about.who))
    disturbances = sorted((*schedule.disturbances, *found), key=lambda each: each.at)
    return replace(schedule, disturbances=tuple(disturbances))


def orphan_daemon_set(world: World, d: Disturbance) -> None:
    """Delete the DaemonSet of a Job, and leave its pods."""
    plan, server = world.schedule.job(d.who), world.server
    name = names.daemon_set_name(plan.name) if plan is not None else ""
    for found in server.all(DAEMON_SETS):
        meta = found["metadata"]
        if plan is not None and (meta["namespace"], meta["name"]) == (plan.namespace, name):
            body = {"metadata": {"finalizers": ["orphan"]}}
            server.patch("user", DAEMON_SETS, name, body, namespace=plan.namespace)
            server.drop("user", DAEMON_SETS, found)
            world.loop.call_later(SECONDS, _orphan, server, found)


def _orphan(server: Server, daemon_set: Raw) -> None:
    if server.now(DAEMON_SETS, daemon_set) is None:
        return
    meta = daemon_set["metadata"]
    for pod in owned_pods(daemon_set, server.all(PODS)):
        _set_owners(server, _COLLECTOR, pod, [])
    body = {"metadata": {"finalizers": None}}
    server.patch(_COLLECTOR, DAEMON_SETS, meta["name"], body, namespace=meta["namespace"])


def adopt_pods(server: Server, daemon_set: Raw) -> None:
    """Have a DaemonSet adopt the pods that another one has left."""
    for pod in server.all(PODS):
        if "ownerReferences" in pod["metadata"] and may_adopt(daemon_set, pod):
            _set_owners(server, "daemonset-controller", pod, [owner_of_pods(daemon_set)])


def _set_owners(server: Server, actor: str, pod: Raw, owners: list[Raw]) -> None:
    meta = pod["metadata"]
    body = {"metadata": {"ownerReferences": owners}}
    server.patch(actor, PODS, meta["name"], body, namespace=meta["namespace"])
