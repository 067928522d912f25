"""Pods that cannot end, because their machine is down, and the runs that they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakekube import daemon_sets
from tests.simulation import intent
from tests.simulation.oracle.facts import is_true, owned_by
from tests.simulation.server import JOBS, NODES, PODS, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.world import World


def ending_nodes(world: World, job: Raw) -> list[str]:
    """Return the nodes that match, are down, and whose only pod of the Job is being deleted.

    A pod that has ended, as one does whose machine is shut down, runs nothing any more.
    """
    daemon_set = world.oracle.daemon_set_of(job["metadata"]["uid"])
    if daemon_set is None:
        return []
    uid, current = daemon_set["metadata"]["uid"], owned_by(world.server, daemon_set)
    held = {
        pod["spec"].get("nodeName")
        for pod in world.server.all(PODS)
        if controller_of(pod) == uid and not daemon_sets.is_terminal(pod)
    }
    return sorted(
        name
        for name, machine in world.machines.items()
        if name in held - current.keys()
        and not machine.is_up
        and (node := world.server.get(NODES, name, "")) is not None
        and intent.matches(job["spec"], node)
    )


def has_held_pull(world: World, job: Raw) -> bool:
    """Whether the images of the Job are pulled, and such a pod keeps that.

    guarantees.md: the pull waits for it as any run does, also if the Job itself no longer desires
    the node.
    """
    return any(
        controller_of(pull) == job["metadata"]["uid"]
        and pull["metadata"]["name"].endswith("-image-pull")
        and not (is_true(pull, "Complete") or is_true(pull, "Failed"))
        and ending_nodes(world, pull)
        for pull in world.server.all(JOBS)
    )
