"""The changes of completed nodes: each node that completed is changed once, and no other one is."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tests.simulation.oracle import due_again
from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import node_states, reports_of
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "node changes",
        "With onSuccess the controller changes each node once that has completed, and no other "
        "node. The Job is complete, or deleted, only when each of these nodes that exists has been "
        "changed. What a node did before it was due again is not judged.",
        mutant="completes_before_changes",
        seed=5,
        excuses={
            "failed before": "The run had failed, and its time to live was over when the "
            "completion was recorded (guarantees.md, The time to live).",
            "recorded late": "The run was complete without the node, whose completion reached the "
            "controller after that was decided (guarantees.md, The time to live).",
        },
    ),
)


class NodeChanges:
    """Judges the writes to nodes, and the ends of Jobs."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # The label and the UID of each node that the controller has changed.
        self._changed: set[tuple[str, str]] = set()

    def node_written(self, actor: str, old: Raw | None, new: Raw) -> None:
        """Judge a write that may be a change of a completed node."""
        if actor != "controller":
            return
        before = (old or new)["metadata"].get("labels") or {}
        uid, after = new["metadata"]["uid"], new["metadata"]["labels"]
        for label in {key for key in after if after[key] != before.get(key)}:
            if (label, uid) in self._changed or uid not in self._completed(label):
                words = f"{new['metadata']['name']} is changed without reason, or twice"
                self._oracle.violate("node changes", words)
            self._changed.add((label, uid))

    def judge_end(self, old: Raw, new: Raw) -> None:
        """Judge a write of a Job's status that may complete it."""
        if is_true(new, "Complete") and not is_true(old, "Complete"):
            view = self._oracle.completion.views[new["metadata"]["uid"]]
            self.judge_unchanged(new, known_until=view.reports_until)

    def judge_unchanged(self, job: Raw, known_until: float = inf) -> None:
        """Judge a Job that is complete, or that the terminator deletes.

        `known_until`: the moment up to which the program had seen what is in reports.
        """
        for label in _labels(job):
            for node in self._world.server.all(NODES):
                name, uid = node["metadata"]["name"], node["metadata"]["uid"]
                is_changed = label in (node["metadata"].get("labels") or {})
                if is_changed or not self._has_completed(job, name, uid):
                    continue
                entered = self._oracle.evidence.entered.get((job["metadata"]["uid"], name))
                if is_true(job, "Failed"):
                    self._oracle.excuse("node changes", "failed before")
                elif entered is not None and entered[2] >= known_until:
                    self._oracle.excuse("node changes", "recorded late")
                else:
                    self._oracle.violate("node changes", f"{name} has not been changed")

    def _has_completed(self, job: Raw, node: str, node_uid: str) -> bool:
        """Return whether a node has completed what the Job asked for, as it was read last.

        guarantees.md: what its pods did before that does not count, however late it is recorded.
        """
        uid, demands = job["metadata"]["uid"], self._oracle.demands
        if node_uid not in self._entered(uid):
            return False
        if uid not in demands.images:
            return True
        record = node_states(self._world, uid).get(node) or {}
        if due_again.is_followed(self._world, uid, node, node_uid, record):
            return False
        read = (job.get("status") or {}).get("observedGeneration")
        due = demands.due(uid, node, node_uid, generation=read)
        return self._oracle.has_met(uid, node, node_uid, due)

    def _completed(self, label: str) -> set[str]:
        """Return the UIDs of the nodes that completed a Job with that label in onSuccess."""
        plans = self._oracle.plans.items()
        jobs = [uid for uid, plan in plans if label in _labels({"spec": plan.spec})]
        return {uid for job in jobs for uid in self._entered(job)}

    def _entered(self, job_uid: str) -> set[str]:
        return {
            entry["nodeUID"]
            for report in reports_of(self._world, job_uid)
            for entry in (report.get("evidence") or {}).values()
            if entry.get("completedAt")
        }


def _labels(job: Raw) -> set[str]:
    return set(job["spec"].get("onSuccess", {}).get("labels", {}))
