"""Steps that select their nodes by labels, judged by labels, by the spec, and by what runs.

Which step a node starts in, nothing here asks the product. Each start gets two bounds: the first
step that may have the node, and the last one. A label that came or went at about that time makes
them differ. Then nothing is asked of steps between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_APPROVE
from tests.simulation import intent
from tests.simulation.oracle.facts import is_continuous, is_true, rollout_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import node_states
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "chosen",
        "If a step selects by labels, no node of a later step starts before the nodes that it "
        "selects have finished. Nor before its soak is over and its approval is there. Nor does "
        "the run succeed before that. A step that selects no node, or in which none has "
        "completed, waits for a person, and no other one does.",
        mutant="selects_every_node",
        seed=16_000_000_001,
        excuses={
            "after the end": "A node that joins after Complete waits for a place of maxParallel, "
            "and for no step, nor for an approval (guarantees.md, The time to live).",
            "unselected": "A node waits for its next turn, and the selector of its step does not "
            "match it any more: it holds up a later step (guarantees.md, Rollouts).",
        },
    ),
)

# The times in the status of a Job are whole seconds.
SOAK_TOLERANCE_SECONDS = 1.0


def selects_by_labels(steps: Sequence[Raw]) -> bool:
    """Return whether a step of a rollout selects its nodes by labels."""
    return any("selector" in step for step in steps)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A node whose task has started: its name, and the first and the last step it may be in."""

    name: str
    first: int
    last: int


@dataclass(slots=True)
class ChosenSteps:
    """Receives decisions, reports, Jobs, and tasks that start."""

    world: World
    oracle: Oracle
    # By the UID of a Job: when the controller decided, and up to when it then knew all of nodes and
    # of how many the DaemonSet controller counts.
    decisions: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    # By the UIDs of a Job and a node: its newest turn, and up to when the controller knew nodes.
    turns: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    # By the UIDs of a Job and a node: when it had first completed or failed, or was set aside.
    finished: dict[tuple[str, str], float] = field(default_factory=dict)
    # By the UID of a Job: when a node had the first turn.
    first_turns: dict[str, float] = field(default_factory=dict)
    # The UIDs of a Job and of a node that waits for another turn, or has waited for one.
    returned: set[tuple[str, str]] = field(default_factory=set)
    # By the UID of a Job, and by that of a node.
    begun: dict[str, dict[str, _Begun]] = field(default_factory=dict)

    # --- what happens ------------------------------------------------------------------------

    def controller_decides(self, job_uid: str, nodes_until: float) -> None:
        """Note what the controller knows of nodes when it decides about a Job."""
        known = self.decisions.setdefault(job_uid, [])
        known.append((self.world.loop.moment, nodes_until))

    def report_written(self, new: Raw) -> None:
        """Note which nodes have their turn, and which have finished."""
        job_uid, now = new["spec"]["job"]["uid"], self.world.loop.moment
        for record in ((new.get("status") or {}).get("nodeStates") or {}).values():
            key, at = (job_uid, record["uid"]), record.get("turnAt", "")
            if at and self.turns.get(key, ("", 0.0))[0] != at:
                self.turns[key] = at, self._known_of_nodes(job_uid)
                self.first_turns.setdefault(job_uid, now)
            if key in self.turns and not at:
                self.returned.add(key)
            if record.get("state") == "Failed" or "setAsideAt" in record:
                self.finished.setdefault(key, now)
        for entry in (new.get("evidence") or {}).values():
            if entry.get("completedAt"):
                self.finished.setdefault((job_uid, str(entry.get("nodeUID"))), now)

    def _known_of_nodes(self, job_uid: str) -> float:
        """Return up to when the controller knew of nodes when it decided what it writes now."""
        decision = self.oracle.holds.gates_decided.get(job_uid)
        known = self.decisions.get(job_uid, ())
        return max((until for at, until in known if decision and at == decision.at), default=0.0)

    def task_starts(self, job: Raw, run: PodRun) -> None:
        """Judge the first start of a node."""
        uid, node_uid = job["metadata"]["uid"], run.machine.uid
        begun = self.begun.setdefault(uid, {})
        if node_uid in begun or not self._is_judged(job):
            return
        found = self._place(job, run.machine.name, node_uid)
        if is_true(job, "Complete") and not is_continuous(job):
            self.oracle.excuse("chosen", "after the end")
        elif words := next(self._faults(job, found.first, node_uid), ""):
            self.oracle.violate("chosen", f"{run.machine.name} starts {words}")
        begun[node_uid] = found

    def job_written(self, old: Raw | None, job: Raw) -> None:
        """Judge the success of a run: it ends with the step that has its last nodes."""
        is_end = is_true(job, "Complete", "AllNodesCompleted") and not is_true(
            old or {}, "Complete"
        )
        if not is_end or is_continuous(job) or not self._is_judged(job):
            return
        uid = job["metadata"]["uid"]
        begun = self.begun.get(uid, {})
        last = max((each.first for each in begun.values()), default=0)
        own = [node for node, each in begun.items() if (each.first, each.last) == (last, last)]
        is_there = any(
            self._is_there(begun[node].name, node)
            and self.oracle.is_entered(uid, begun[node].name, node)
            for node in own
        )
        may_lack = "successPolicy" in job["spec"]
        if is_there and not may_lack and (words := next(self._faults(job, last + 1, ""), "")):
            self.oracle.violate("chosen", f"the run succeeds {words}")

    def judge_rest(self, job: Raw) -> None:
        """Judge that a run at rest waits for a person only if its step asks for one."""
        uid, status = job["metadata"]["uid"], job.get("status") or {}
        reasons = [c["reason"] for c in status.get("conditions") or () if c["type"] == "Suspended"]
        number = (status.get("rollout") or {}).get("step", 0)
        if not self._is_judged(job) or number > len(self._steps(job)):
            return
        if not {"CheckInconclusive", "WaitingForApproval"} & set(reasons):
            return
        step = self._steps(job)[number - 1]
        # Of several approvals, the annotation has the newest one.
        if (job["metadata"].get("annotations") or {}).get(ANNOTATION_APPROVE) == str(number):
            self.oracle.violate("chosen", f"step {number} waits, and is approved")
        selector = step.get("selector")
        open_ = [name for name in self._selected_now(job, selector) if self._is_open(uid, name)]
        if open_:
            self.oracle.violate("chosen", f"step {number} waits, and {open_} have had no turn")
        own = [
            each.name
            for node, each in self.begun.get(uid, {}).items()
            if (each.first, each.last) == (number, number)
            and self._is_there(each.name, node)
            and self.oracle.is_entered(uid, each.name, node)
        ]
        if "CheckInconclusive" in reasons and "check" not in step and own:
            self.oracle.violate("chosen", f"step {number} waits, and {own} have completed")

    def _selected_now(self, job: Raw, selector: Raw | None) -> list[str]:
        if selector is None:
            return []
        return [
            raw["metadata"]["name"]
            for raw in self.world.server.all(NODES)
            if intent.has_labels(selector, raw) and intent.placement(job["spec"], raw).should_run
        ]

    def _is_open(self, job_uid: str, name: str) -> bool:
        """Return whether a node that is up has had no turn, and has not failed."""
        machine = self.world.machines.get(name)
        record = node_states(self.world, job_uid).get(name) or {}
        return (
            machine is not None
            and machine.is_up
            and (job_uid, machine.uid) not in self.finished
            and machine.uid not in self.begun.get(job_uid, {})
            and "turnAt" not in record
        )

    # --- who is in which step ----------------------------------------------------------------

    def _steps(self, job: Raw) -> Sequence[Raw]:
        return (rollout_of(job) or {}).get("steps") or ()

    def _is_judged(self, job: Raw) -> bool:
        """Return whether a Job has had the same steps, and run the same thing, at all times."""
        uid = job["metadata"]["uid"]
        specs = list(self.oracle.completion.specs[uid].values())
        is_same = all(spec.get("image") == specs[0].get("image") for spec in specs)
        is_changed = self.oracle.turn_specs.is_changed(uid)
        return is_same and not is_changed and selects_by_labels(self._steps(job))

    def _place(self, job: Raw, name: str, node_uid: str) -> _Begun:
        """Return between which steps a node is that starts now."""
        uid, steps = job["metadata"]["uid"], self._steps(job)
        _, until = self.turns.get((uid, node_uid), ("", 0.0))
        versions = self._versions(name, node_uid, until)
        others = {node: each for node, each in self.begun[uid].items() if node != node_uid}
        least = sum(self._counts_for_sure(job, node, each) for node, each in others.items())
        rest = len(steps) + 1
        first = next(
            (
                number
                for number, step in enumerate(steps, 1)
                if (
                    any(intent.has_labels(step["selector"], raw) for raw in versions)
                    if "selector" in step
                    else least < self._sizes(uid, step)[1]
                )
            ),
            rest,
        )
        is_late = (uid, node_uid) in self.finished or not self._is_steady(job, name, node_uid)
        is_late |= not self._is_counted(uid, name, node_uid, self.first_turns.get(uid, 0.0))
        last = rest if is_late else self._last(job, name, node_uid)
        return _Begun(name, first, max(first, last))

    def _last(self, job: Raw, name: str, node_uid: str) -> int:
        """Return the first step that is not over without a node that was there from the start."""
        uid = job["metadata"]["uid"]
        versions = self._versions(name, node_uid, self.oracle.born[uid])
        done = {node for job_uid, node in self.finished if job_uid == uid} - {node_uid}
        current = {machine.uid for machine in self.world.machines.values()}
        gone = {node for node in self.begun[uid] if node not in current} - done
        gone |= {node for job_uid, node in self.turns if job_uid == uid} - current - done
        for number, step in enumerate(self._steps(job), 1):
            if "selector" in step:
                if all(intent.has_labels(step["selector"], raw) for raw in versions):
                    return number
            elif len(done) + len(gone) < self._sizes(uid, step)[0]:
                return number
        return len(self._steps(job)) + 1

    def _sizes(self, job_uid: str, step: Raw) -> tuple[int, int]:
        """Return how many nodes a step has that gives a number, at least and at most."""
        sizes = self.oracle.turns.sizes(job_uid)
        least = min(min(_share(step["nodes"], size), size) for size in sizes)
        most = max(_share(step["nodes"], size) for size in (*sizes, len(self.world.schedule.nodes)))
        return least, most

    def _counts_for_sure(self, job: Raw, node_uid: str, each: _Begun) -> bool:
        record = node_states(self.world, job["metadata"]["uid"]).get(each.name) or {}
        is_there = self._is_there(each.name, node_uid) and "setAsideAt" not in record
        return is_there and self._is_steady(job, each.name, node_uid)

    def _is_there(self, name: str, node_uid: str) -> bool:
        raw = self.world.server.get(NODES, name, "")
        return raw is not None and bool(raw["metadata"]["uid"] == node_uid)

    def _versions(self, name: str, node_uid: str, moment: float) -> list[Raw]:
        """Return what a node has been from a moment on."""
        found = self.oracle.completion.node_versions.since(name, moment)
        return [raw for raw in found if raw["metadata"]["uid"] == node_uid]

    def _is_steady(self, job: Raw, name: str, node_uid: str) -> bool:
        """Return whether a node is there from the start of a Job on, and always one of its own."""
        uid = job["metadata"]["uid"]
        if not self._is_there(name, node_uid) or self.oracle.born[node_uid] > self.oracle.born[uid]:
            return False
        specs = self.oracle.completion.specs[uid].values()
        return all(
            intent.placement(spec, raw).should_run
            for spec in specs
            for raw in self._versions(name, node_uid, self.oracle.born[uid])
        )

    def _is_counted(self, job_uid: str, name: str, node_uid: str, since: float) -> bool:
        """Return whether the DaemonSet controller counts a node from a moment on.

        A node counts from when it is counted there, and the controller has seen that (see
        `completion`).
        """
        counts = self.oracle.completion.counts.get(job_uid, ())
        before = [nodes for at, nodes in counts if at < since][-1:]
        found = before + [nodes for at, nodes in counts if at >= since]
        return bool(before) and all(
            name in nodes and nodes[name]["metadata"]["uid"] == node_uid for nodes in found
        )

    # --- what has to be before ---------------------------------------------------------------

    def _faults(self, job: Raw, before: int, starting: str) -> Iterator[str]:
        """Yield what the steps before that number still wait for."""
        uid = job["metadata"]["uid"]
        for node, each in self.begun[uid].items():
            is_there = self._is_there(each.name, node) and self._is_steady(job, each.name, node)
            if each.last < before and (uid, node) not in self.finished and is_there:
                if self._is_unselected(job, node, each):
                    self.oracle.excuse("chosen", "unselected")
                else:
                    yield f"before {each.name} has finished step {each.last}"
        for number, step in enumerate(self._steps(job)[: before - 1], 1):
            yield from self._lacking(job, number, step, starting)
            yield from self._unanswered(job, number, step)

    def _is_unselected(self, job: Raw, node_uid: str, each: _Begun) -> bool:
        """Return whether a node has waited for another turn, and lost the labels of its step."""
        uid, selector = job["metadata"]["uid"], self._steps(job)[each.last - 1].get("selector")
        versions = self._versions(each.name, node_uid, self.oracle.born[uid])
        return (
            (uid, node_uid) in self.returned
            and selector is not None
            and not all(intent.has_labels(selector, raw) for raw in versions)
        )

    def _lacking(self, job: Raw, number: int, step: Raw, starting: str) -> Iterator[str]:
        """Yield which nodes of a step have not finished, and whether it soaks."""
        uid, open_until = job["metadata"]["uid"], self._open_until(job, number)
        waited = self.world.loop.moment - open_until
        if waited < step.get("soakSeconds", 0) - SOAK_TOLERANCE_SECONDS and self._soaks(
            uid, number
        ):
            yield f"{waited:.1f} s after step {number}, which soaks for {step['soakSeconds']} s"
        if "selector" not in step:
            return
        if self._soaks(uid, number):
            open_until += max(step.get("soakSeconds", 0) - SOAK_TOLERANCE_SECONDS, 0)
        known = [until for at, until in self.decisions.get(uid, ()) if at <= open_until]
        for name in self._unfinished(job, step, max(known, default=self.oracle.born[uid])):
            if self.world.machines[name].uid != starting:
                yield f"before {name} has finished step {number}, which selects it"

    def _unfinished(self, job: Raw, step: Raw, since: float) -> Iterator[str]:
        """Yield the nodes that a step has selected from a moment on, and that have not finished."""
        uid = job["metadata"]["uid"]
        for name, machine in self.world.machines.items():
            versions = self._versions(name, machine.uid, since)
            is_chosen = all(intent.has_labels(step["selector"], raw) for raw in versions)
            is_due = is_chosen and self._is_steady(job, name, machine.uid)
            is_due = is_due and self._is_counted(uid, name, machine.uid, since)
            if is_due and (uid, machine.uid) not in self.finished:
                yield name

    def lacking(self, job: Raw, step: Raw) -> list[str]:
        """Return the nodes that a step still waits for by its selector, as who writes now knew."""
        if "selector" not in step:
            return []
        return list(self._unfinished(job, step, self._known_of_nodes(job["metadata"]["uid"])))

    def was_chosen(self, job_uid: str, name: str, step: Raw) -> bool:
        """Return whether a step may select a node, by what who writes now knew of it."""
        machine = self.world.machines.get(name)
        until = self._known_of_nodes(job_uid)
        versions = self._versions(name, machine.uid, until) if machine is not None else []
        return not versions or any(intent.has_labels(step["selector"], raw) for raw in versions)

    def _soaks(self, job_uid: str, number: int) -> bool:
        """Return whether a step soaks for sure: it has nodes of its own, and all went well."""
        records = node_states(self.world, job_uid)
        bad = {"failures", "setAsideAt", "observedRerun"}
        return self.oracle.holds.approvals.get(job_uid) != math.inf and any(
            (each.first, each.last) == (number, number)
            and self.oracle.is_entered(job_uid, each.name, node)
            and not bad & (records.get(each.name) or {}).keys()
            for node, each in self.begun[job_uid].items()
        )

    def _open_until(self, job: Raw, number: int) -> float:
        """Return when the last node that is in this step, or in an earlier one, had finished."""
        uid = job["metadata"]["uid"]
        moments = [
            self.finished.get((uid, node), 0.0)
            for node, each in self.begun[uid].items()
            if each.last <= number
        ]
        return max(moments, default=self.oracle.born[uid])

    def _unanswered(self, job: Raw, number: int, step: Raw) -> Iterator[str]:
        """Yield what a person has yet to say of a step."""
        uid = job["metadata"]["uid"]
        approved, begun = self.oracle.holds.approvals.get(uid, 0), self.begun[uid]
        # One without nodes of its own waits for no approval if the last one that had some has it.
        newest = max((each.first for each in begun.values() if each.last <= number), default=0)
        if step.get("approval") == "Required" and approved < newest:
            yield f"before step {number} is approved"
        if approved >= number:
            return
        versions = self.oracle.completion.node_versions
        if "selector" in step and not any(
            intent.has_labels(step["selector"], raw)
            for name in versions.versions
            for raw in versions.since(name, self.oracle.born[uid])
        ):
            yield f"after step {number}, which selects no node, and it is not approved"
        own = {node: each for node, each in begun.items() if each.first <= number <= each.last}
        is_own = any(each.first == each.last for each in own.values())
        if is_own and not any((uid, node) in self.entered for node in own):
            yield f"after step {number}, in which no node has completed, and it is not approved"

    @property
    def entered(self) -> set[tuple[str, str]]:
        """The UIDs of Jobs and nodes that have completed at some time."""
        return {(uid, str(found[0])) for (uid, _), found in self.oracle.evidence.entered.items()}


def _share(nodes: int | str, count: int) -> int:
    return nodes if isinstance(nodes, int) else max(int(nodes.rstrip("%")) * count // 100, 1)
