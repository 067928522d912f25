"""What a step of a rollout says of itself holds, also if a user changes the rollout in its run.

A run goes on in the step of the same number. The status says that it is in the next one before a
node has its turn in that. So the end of a step is judged there, by the specs that the controller
may have known.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.simulation import intent
from tests.simulation.oracle.facts import is_continuous, is_true, rollout_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import node_states
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "changed steps",
        "Of a rollout that a user has changed, a step ends only when its soak is over, its "
        "approval is there, and its nodes have finished. Those that it selects are among them. "
        "No more nodes have their turn in it than it says, and none that it does not select.",
        mutant="skips_soaks",
        seed=13_000_000_008,
        excuses={
            "after the end": "A node that joins after Complete waits for a place of maxParallel, "
            "and for no step, nor for an approval (guarantees.md, The time to live).",
        },
    ),
)

# The times in the status of a Job are whole seconds.
SOAK_TOLERANCE_SECONDS = 1.0


class ChangedSteps:
    """Receives Jobs and reports."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle

    def job_written(self, old: Raw | None, new: Raw) -> None:
        """Judge that a step has ended."""
        uid, was, now = new["metadata"]["uid"], progress_of(old or {}), progress_of(new)
        number, specs = was.get("step", 1), self._oracle.turn_specs
        is_same = bool(was) and was.get("revision") == now.get("revision")
        if not is_same or now.get("step", 1) <= number or not specs.is_changed(uid):
            return
        faults = [self._find_fault(new, spec, number) for spec in specs.known(uid)]
        if all(faults):
            self._oracle.violate("changed steps", f"step {number} ends, and {faults[0]}")

    def _find_fault(self, job: Raw, spec: Raw, number: int) -> str:
        """Return what a step still waits for by a spec, "" for nothing."""
        uid = job["metadata"]["uid"]
        steps = (rollout_of({"spec": spec}) or {}).get("steps") or ()
        if number > len(steps):
            return "there is none with that number"
        step, records = steps[number - 1], self._records(job)
        approved = self._oracle.holds.approvals.get(uid, 0)
        newest = max((record.get("step", 0) for record in records.values()), default=0)
        if step.get("approval") == "Required" and approved < min(number, newest):
            return f"{approved} is approved"
        members = {name: each for name, each in records.items() if each.get("step") == number}
        desired = self._oracle.completion.desired(job)
        at_work = [
            name
            for name in members.keys() & desired
            if self._is_open(uid, members, name) and self._is_awaited(step, name, members[name])
        ]
        if lacking := self._oracle.chosen_steps.lacking(job, step):
            return f"{lacking} have not finished, which it selects"
        if at_work:
            return f"{at_work} have not finished"
        done_at = [
            self._oracle.evidence.entered[uid, name][2]
            for name, each in members.items()
            if not {"failures", "setAsideAt", "observedRerun"} & each.keys()
            and (uid, name) in self._oracle.evidence.entered
        ]
        waited = self._world.loop.moment - max(done_at, default=-math.inf)
        is_early = waited < step.get("soakSeconds", 0) - SOAK_TOLERANCE_SECONDS
        return f"it soaks for {waited:.1f} s" if is_early and approved < math.inf else ""

    def _is_open(self, job_uid: str, records: Raw, name: str) -> bool:
        """Return whether a node of a step has to finish before that ends."""
        machine, record = self._world.machines.get(name), records[name]
        if machine is None or machine.uid != record["uid"] or not machine.is_up:
            return False
        is_over = record.get("state") in {"Failed", "Removed", "Unreachable"}
        return not (
            is_over
            or {"setAsideAt", "observedRerun"} & record.keys()
            or self._oracle.is_entered(job_uid, name, machine.uid)
        )

    def _is_awaited(self, step: Raw, name: str, record: Raw) -> bool:
        """Return whether a step waits for the next turn of a node that it has had.

        One that its selector does not match waits for a later one (guarantees.md, Rollouts).
        """
        raw = self._world.server.get(NODES, name, "")
        is_chosen = (
            "selector" not in step or raw is None or intent.has_labels(step["selector"], raw)
        )
        return "turnAt" in record or is_chosen

    def _records(self, job: Raw) -> dict[str, Raw]:
        revision = (job.get("status") or {}).get("revision")
        records = node_states(self._world, job["metadata"]["uid"])
        return {name: each for name, each in records.items() if each.get("revision") == revision}

    def report_written(self, old: Raw, new: Raw) -> None:
        """Judge that no more nodes have a turn in a step than it says."""
        uid = new["spec"]["job"]["uid"]
        job = self._oracle.job(uid)
        if job is None or not self._oracle.turn_specs.is_changed(uid):
            return
        before = (old.get("status") or {}).get("nodeStates") or {}
        after = (new.get("status") or {}).get("nodeStates") or {}
        for name, record in after.items():
            if record.get("turnAt") and not (before.get(name) or {}).get("step"):
                self._judge_turn(job, name, record.get("step", 0))

    def _judge_turn(self, job: Raw, node: str, number: int) -> None:
        uid = job["metadata"]["uid"]
        turned = {
            name
            for name, record in self._records(job).items()
            if record.get("step", 0) and record["step"] <= number and "setAsideAt" not in record
        }
        # One that the user took out by a change of the Job made room for another one.
        turned -= self._oracle.turns.find_omitted(job, turned - {node})
        if any("rollout" not in spec for spec in self._oracle.completion.specs[uid].values()):
            return  # nodes have started without a turn, and have one on record since
        for spec in self._oracle.turn_specs.known(uid):
            steps = (rollout_of({"spec": spec}) or {}).get("steps") or ()
            step = steps[number - 1] if number <= len(steps) else {}
            if "selector" in step:
                if self._oracle.chosen_steps.was_chosen(uid, node, step):
                    return
                continue
            size = step.get("nodes")
            if not isinstance(size, int) or len(turned) <= size:
                return
        if is_true(job, "Complete") and not is_continuous(job):
            self._oracle.excuse("changed steps", "after the end")
            return
        words = f"{node} has its turn in step {number} with {sorted(turned)}"
        self._oracle.violate("changed steps", words)


def progress_of(job: Raw) -> Raw:
    """Return the progress of the rollout in the status of a Job, empty for none."""
    progress: Raw = (job.get("status") or {}).get("rollout") or {}
    return progress
