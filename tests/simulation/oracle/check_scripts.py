"""A step with a check by a script ends only after that script has ended with 0 on its nodes.

What has run is what the pod on the machine was given, whatever the status says of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_SCRIPT
from tests.simulation import intent
from tests.simulation.oracle.changed_steps import SOAK_TOLERANCE_SECONDS, progress_of
from tests.simulation.oracle.facts import is_true, rollout_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.set_aside import is_reachable
from tests.simulation.oracle.shards import node_states
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "check scripts",
        "A step with a check ends only when the script that it has now has ended "
        "with 0 on each node of it, after the node had completed. A node is none of it any more if "
        "it does not match a selection that a user has changed since the start of the run.",
        mutant="keeps_what_another_script_found",
        seed=13_000_600_982,
        excuses={
            "approved": "A person has approved the step. The script has had its time, or it has "
            "ended on the other nodes, and a taint or their state kept it off these "
            "(guarantees.md, Rollouts).",
        },
    ),
)

_FIRST_LINE = "#!/bin/sh\n"


class CheckScripts:
    """Receives tasks that have succeeded, and Jobs."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By the UIDs of the Job that has the check, and of a node: when a script passed, and which.
        self._passed: dict[tuple[str, str], list[tuple[float, str]]] = {}
        # By the UID of a Job and the number of a step: when its check or its soak was changed last.
        self._changed_at: dict[tuple[str, int], float] = {}
        # By the UID of a Job: when a part of its run succeeded last.
        self._part_ended_at: dict[str, float] = {}

    def task_succeeds(self, run: PodRun) -> None:
        """Note that what a part of a run has on a node has ended with 0."""
        owner = self._oracle.owners.get(self._oracle.job_of.get(run.pod_uid, ""))
        script = (run.raw["metadata"].get("annotations") or {}).get(ANNOTATION_SCRIPT, "")
        if owner is not None and script and not run.is_forged:
            found = self._world.loop.moment, script.removeprefix(_FIRST_LINE)
            self._passed.setdefault((owner, run.machine.uid), []).append(found)

    def job_written(self, old: Raw | None, new: Raw) -> None:
        """Judge that a step has ended."""
        uid, was, now = new["metadata"]["uid"], progress_of(old or {}), progress_of(new)
        self._note_end(old or {}, new)
        if old is not None:
            for number in _changed_steps(_steps(old), _steps(new)):
                self._changed_at[uid, number] = self._world.loop.moment
        number, is_same = was.get("step", 1), was.get("revision") == now.get("revision")
        if not was or not is_same or now.get("step", 1) <= number:
            return
        approved = self._oracle.holds.approvals.get(uid, 0)
        specs = self._oracle.turn_specs.known(uid)
        unchecked = [self._find_unchecked(new, spec, number) for spec in specs]
        if not all(unchecked):
            return
        found = zip(specs, unchecked, strict=True)
        if approved >= number and any(self._is_unknown(new, *each, number) for each in found):
            self._oracle.excuse("check scripts", "approved")
        else:
            words = f"step {number} ends, and its script has not passed on {unchecked[0]}"
            self._oracle.violate("check scripts", words)

    def _note_end(self, old: Raw, new: Raw) -> None:
        """Note that a part of a run has succeeded."""
        owner = self._oracle.owners.get(new["metadata"]["uid"])
        if owner is not None and is_true(new, "Complete") and not is_true(old, "Complete"):
            self._part_ended_at[owner] = self._world.loop.moment

    def _find_unchecked(self, job: Raw, spec: Raw, number: int) -> list[str]:
        """Return the completed nodes of a step on which the script of a spec has not passed."""
        check = _check({"spec": spec}, number)
        if "script" not in check:
            return []
        text, uid = check["script"]["script"], job["metadata"]["uid"]
        found = []
        for name, record in self._members(job, spec, number).items():
            passed = self._passed.get((uid, record["uid"]), ())
            newest = max((at for at, script in passed if script == text), default=-math.inf)
            since = self._completed_at(uid, name, record)
            if since is not None and newest < since:
                found.append(name)
        return found

    def _is_unknown(self, job: Raw, spec: Raw, unchecked: Sequence[str], number: int) -> bool:
        """Return whether it may be unknown for good what the script finds on these nodes."""
        uid, now = job["metadata"]["uid"], self._world.loop.moment
        members = self._members(job, spec, number)
        since = [self._completed_at(uid, *each) for each in members.items()]
        known = [at for at in since if at is not None]
        due_at = max([self._changed_at.get((uid, number), 0.0), *known])
        allowed: int = _check(job, number).get("timeoutSeconds", 0)
        if now - due_at > allowed - SOAK_TOLERANCE_SECONDS:
            return True
        versions = self._oracle.completion.node_versions
        return self._part_ended_at.get(uid, -math.inf) > due_at and all(
            any(_keeps_off(spec, raw) for raw in versions.since(name, due_at)) for name in unchecked
        )

    def _members(self, job: Raw, spec: Raw, number: int) -> dict[str, Raw]:
        """Return the records of the nodes of a step by a spec, by name."""
        uid, revision = job["metadata"]["uid"], (job.get("status") or {}).get("revision")
        return {
            name: record
            for name, record in node_states(self._world, uid).items()
            if record.get("revision") == revision and record.get("step") == number
            if not self._is_taken_out(uid, spec, name)
        }

    def _is_taken_out(self, job_uid: str, spec: Raw, name: str) -> bool:
        """Return whether a spec selects otherwise than at the start, and does not mean a node."""
        completion, selection = self._oracle.completion, intent.selection(spec)
        first = completion.started_with.get(job_uid, ())
        if all(intent.selection(each) == selection for each in first):
            return False
        *_, seen_until = self._world.decided_on.get(job_uid, (0.0, 0.0))
        versions = completion.node_versions.since(name, seen_until)
        return not all(intent.matches(spec, raw) for raw in versions)

    def _completed_at(self, job_uid: str, name: str, record: Raw) -> float | None:
        """Return when a node had completed, None if it has not, or need not be checked."""
        machine = self._world.machines.get(name)
        if machine is None or machine.uid != record["uid"] or not machine.is_up:
            return None
        is_open = {"setAsideAt", "observedRerun", "failures"} & record.keys()
        if is_open or not self._oracle.is_entered(job_uid, name, machine.uid):
            return None
        entered = self._oracle.evidence.entered.get((job_uid, name))
        return -math.inf if entered is None else entered[2]


def _keeps_off(spec: Raw, node: Raw) -> bool:
    """Return whether a raw node takes no further pod of a Job of this spec, or is not reachable."""
    return not (intent.placement(spec, node).should_run and is_reachable(node))


def _steps(job: Raw) -> Sequence[Raw]:
    return (rollout_of(job) or {}).get("steps") or ()


def _check(job: Raw, number: int) -> Raw:
    """Return the check of a step, empty for none."""
    step = dict(enumerate(_steps(job), 1)).get(number) or {}
    return step.get("check") or {}


def _changed_steps(before: Sequence[Raw], after: Sequence[Raw]) -> list[int]:
    """Return the numbers of the steps whose checks have all of their time once more.

    A check is changed, or a soak comes before it that was not there. Another time for a check makes
    no other check of it (guarantees.md, Rollouts).
    """
    return [
        number
        for number, step in enumerate(after, 1)
        if number > len(before)
        or _without_time(step) != _without_time(before[number - 1])
        or step.get("soakSeconds", 0) > before[number - 1].get("soakSeconds", 0)
    ]


def _without_time(step: Raw) -> Raw:
    return {**(step.get("check") or {}), "timeoutSeconds": 0}
