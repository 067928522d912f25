"""A rule fails a node for the end that it names, whatever its later attempts end with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "failure rule",
        "A node whose task has ended with the exit code of a rule with Fail has completed since, "
        "or has failed for that rule. An end counts that the controller could see: it was not "
        "disturbed from then on, and the next end came two seconds later or more.",
        mutant="forgets_ends_of_rules",
        seed=9_500_000_034,
    ),
)
# How long the status of a container has to show an end, so that it counts. A watch of the model is
# up to 1.2 s late, and a pass that has begun before writes for as long.
SHOWN_SECONDS = 2.0


class FailureRules:
    """Receives ends of tasks, and judges records by them."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # When instances have ended without success and with which exit codes, by UID of the pod.
        self._ends: dict[str, list[tuple[float, int]]] = {}

    def ended(self, run: PodRun, code: int) -> None:
        """Note that an instance has ended by itself, without success."""
        self._ends.setdefault(run.pod_uid, []).append((self._world.loop.moment, code))

    def judge(self, old: Raw, new: Raw) -> None:
        """Judge for what a report says that nodes have failed."""
        before = (old.get("status") or {}).get("nodeStates") or {}
        spec = self._oracle.completion.newest(new["spec"]["job"]["uid"])
        for node, record in ((new.get("status") or {}).get("nodeStates") or {}).items():
            is_new = (before.get(node) or {}).get("state") != record.get("state")
            if is_new and record.get("reason") == "BackoffLimitExceeded":
                self._judge_node(spec, node, record)

    def judge_rest(self, job: Raw, records: Mapping[str, Raw]) -> None:
        """Judge the records of the nodes of a Job at rest, whose run has not ended."""
        if is_true(job, "Complete") or is_true(job, "Failed"):
            return
        for node, record in records.items():
            if record.get("state") == "Active":
                self._judge_node(job["spec"], node, record)

    def _judge_node(self, spec: Raw, node: str, record: Raw) -> None:
        rules = (spec.get("failurePolicy") or {}).get("rules") or ()
        fatal = {code for rule in rules if rule["action"] == "Fail" for code in rule["exitCodes"]}
        ends = self._ends.get(record.get("podUID", ""), [])
        if fatal & set(self._seen(ends)):
            words = f"{node} ended with {ends}, and is {record['state']}: {record.get('reason')}"
            self._oracle.violate("failure rule", words)

    def _seen(self, ends: list[tuple[float, int]]) -> Iterator[int]:
        """Return the exit codes that the controller could see."""
        from_ = self._world.undisturbed_from["controller"]
        for (moment, code), (following, _) in pairwise([*ends, (self._world.loop.moment, 0)]):
            if moment >= from_ and following - moment >= SHOWN_SECONDS:
                yield code
