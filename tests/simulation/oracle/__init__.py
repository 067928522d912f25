"""The invariants, checked at every moment against the model's own objects, not against a cache.

Each file holds one or a few of them: in `INVARIANTS` what must hold, the cases that excuse it, and
the mutant that it catches; below, the check. `core` receives everything that happens and asks each.
"""

from tests.simulation.oracle import (
    changed_steps,
    check_scripts,
    chosen_steps,
    completed_count,
    completion,
    conventions,
    cordons,
    corrections,
    deadlines,
    due_again,
    evictions,
    evidence,
    excluded_nodes,
    failed_tasks,
    failure_rules,
    failures,
    final_state,
    gates,
    holds,
    idle_writes,
    images_first,
    lifetime,
    node_changes,
    pod_deletions,
    processes,
    quiet,
    reboots,
    record_history,
    results,
    rollbacks,
    schedules,
    set_aside,
    shards,
    start_problems,
    starts,
    step_nodes,
    timeouts,
    turns,
)
from tests.simulation.oracle.core import Oracle
from tests.simulation.oracle.facts import is_true, owned_by
from tests.simulation.oracle.invariant import Invariant

# What a run becomes at its end: completed nodes and their evidence.
MODULES = (
    completion,
    starts,
    excluded_nodes,
    due_again,
    gates,
    turns,
    step_nodes,
    changed_steps,
    chosen_steps,
    check_scripts,
    images_first,
    set_aside,
    rollbacks,
    holds,
    corrections,
    cordons,
    evictions,
    schedules,
    evidence,
    results,
    shards,
    # What is recorded and reported.
    conventions,
    completed_count,
    failures,
    failed_tasks,
    failure_rules,
    record_history,
    timeouts,
    start_problems,
    deadlines,
    reboots,
    lifetime,
    # What is written and deleted, and the end.
    idle_writes,
    node_changes,
    pod_deletions,
    processes,
    quiet,
    final_state,
)
INVARIANTS: dict[str, Invariant] = {
    each.name: each for module in MODULES for each in module.INVARIANTS
}

__all__ = ["INVARIANTS", "Oracle", "is_true", "owned_by"]
