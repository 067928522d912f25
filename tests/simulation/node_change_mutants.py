"""Deliberate defects of how completed nodes are changed; see `mutants`."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from job_controller.core import decide as decision
from job_controller.core.state import run_state
from job_controller.core.state.node_changes import PendingChanges
from terminator import deleter
from tests.simulation.record_mutants import Mutant


@contextmanager
def completes_before_changes() -> Iterator[None]:
    """A run is complete, and its Job is deleted, without a look at the changes of its nodes."""
    with (
        patch.object(run_state, "has_pending_changes", lambda _snapshot: False),
        patch.object(deleter, "unchanged_nodes", lambda _snapshot: []),
        patch.object(decision, "find_pending_changes", lambda *_: PendingChanges()),
    ):
        yield


NODE_CHANGE_MUTANTS: tuple[Mutant, ...] = (completes_before_changes,)
