"""No process of the product ends by an error, and no callback of its event loop raises one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.oracle.invariant import Invariant

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "process",
        "Neither program ends by an error.",
        mutant="ends_terminator",
        seed=0,
    ),
)


def judge_error(world: World, context: Mapping[str, Any]) -> None:
    """Judge an error that the event loop reports (`loop.call_exception_handler`)."""
    words = f"{context.get('message')}: {context.get('exception')!r}"
    world.oracle.violate("process", words)


def judge_end(world: World, name: str, error: BaseException) -> None:
    """Judge an error by which a process ended."""
    world.oracle.violate("process", f"{name} died: {error!r}")
