"""What people do to nodes that a Job has cordoned, and to the pods that are to leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_CORDONED_BY
from tests.simulation.schedule import Disturbance
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.world import World


def _uncordon(world: World, d: Disturbance) -> None:
    """Let other pods onto a node again, also one that a Job has cordoned."""
    _patch(world, d.what, {"spec": {"unschedulable": None}})


def _keep_cordon(world: World, d: Disturbance) -> None:
    """Take the mark off a node that a Job has cordoned, so that it stays cordoned."""
    _patch(world, d.what, {"metadata": {"annotations": {ANNOTATION_CORDONED_BY: None}}})


def _budget(world: World, d: Disturbance) -> None:
    """Have the disruption budget of other pods ask for `mode` healthy ones, "" for none."""
    world.workloads.budgets[d.what] = int(d.mode) if d.mode else None


def _scale(world: World, d: Disturbance) -> None:
    """Have one more pod of a workload."""
    world.workloads.scale(d.what)


def _patch(world: World, node: str, body: Raw) -> None:
    if world.server.get(NODES, node, "") is not None:
        world.server.patch("user", NODES, node, body, namespace="")


DURING_DRAINS: dict[str, Callable[[World, Disturbance], None]] = {
    "uncordon": _uncordon,
    "keep_cordon": _keep_cordon,
    "budget": _budget,
    "scale": _scale,
}
