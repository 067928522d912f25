"""A step of a fixed number of nodes reaches no more nodes, by the names of those that started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import is_continuous, is_true, rollout_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle

INVARIANTS = (
    Invariant(
        "steps",
        "Until a step of a number of nodes is over, the task starts on no more nodes. One "
        "that is retried, is back after it was set aside, is registered again or has left counts. "
        "It is not judged for a Job whose nodes or task are edited.",
        mutant="forgets_the_nodes_of_steps",
        seed=1_000_000_392,
    ),
)


class StepNodes:
    """Receives starting tasks."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        # By the UID of a Job, the names of the nodes on which its task was started.
        self._started: dict[str, set[str]] = {}

    def start_taken_back(self, job_uid: str) -> None:
        """Forget a start that began nowhere."""
        self._started.pop(job_uid, None)

    def task_starts(self, job: Raw, run: PodRun) -> None:
        """Judge the first start of a task on a node."""
        job_uid, node = job["metadata"]["uid"], run.machine.name
        steps: Sequence[Raw] = (rollout_of(job) or {}).get("steps") or ()
        if not steps or run.is_forged or self._is_edited(job_uid):
            return
        started = self._started.setdefault(job_uid, set())
        if node not in started:
            self._judge(job, node, steps, started)
        started.add(node)

    def _judge(self, job: Raw, node: str, steps: Sequence[Raw], started: set[str]) -> None:
        progress = (job.get("status") or {}).get("rollout") or {}
        number = progress.get("step", 1)
        is_late = is_true(job, "Complete") and not is_continuous(job)
        if number > len(steps) or is_late:
            return  # these nodes are the rest, or have joined since
        size = steps[number - 1].get("nodes")
        if isinstance(size, int) and len(started) >= size:
            words = f"{node} starts in step {number} of {size} nodes beside {sorted(started)}"
            self._oracle.violate("steps", words)

    def _is_edited(self, job_uid: str) -> bool:
        """Return whether there are two specs of a Job that differ in more than `suspend`."""
        specs = self._oracle.completion.specs.get(job_uid, {}).values()
        plain = [{key: value for key, value in each.items() if key != "suspend"} for each in specs]
        return any(each != plain[0] for each in plain)
