"""A failed task stops: nothing of it remains on its node, unless the user keeps the pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "failed task",
        "At rest the pod of a node that is recorded as failed is gone. So are all pods of a run "
        "whose time is over. With failurePolicy.pods Keep they stay.",
        mutant="keeps_failed_pods",
        seed=12,
    ),
)


def judge_failed_tasks(
    world: World, job: Raw, pods: Mapping[str, Raw], records: Mapping[str, Raw]
) -> None:
    """Judge the `pods` of a Job at rest, by node, with the `records` of its nodes."""
    policy = job["spec"].get("failurePolicy") or {}
    if policy.get("pods") == "Keep" or "deletionTimestamp" in job["metadata"]:
        return
    conditions = (job.get("status") or {}).get("conditions") or ()
    is_over = is_true(job, "Failed") and any(
        each["type"] == "Failed" and each["reason"] == "DeadlineExceeded" for each in conditions
    )
    for node, pod in pods.items():
        record = records.get(node) or {}
        has_failed = record.get("state") == "Failed"
        if is_over or (has_failed and record.get("podUID") == pod["metadata"]["uid"]):
            world.oracle.violate("failed task", f"{node} has failed, and its pod is kept")
