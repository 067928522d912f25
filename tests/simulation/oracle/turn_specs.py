"""By which spec each node got its turn: a user may change the rollout before its task starts.

The turn of a node is in a report before the gate of its pod is removed. The controller that wrote
either knew one of the specs that its watch may have shown it by then. No turn is taken back. While
there is no rollout, nodes start without a turn, and have one on record once there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle


class TurnSpecs:
    """Receives reports."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        # By the UIDs of a Job and a node: when it had its turn, and one of the specs of that time.
        self._given: dict[tuple[str, str], tuple[str, list[Raw]]] = {}
        # By the UID of a pod: one of the specs by which its gate was removed.
        self._released: dict[str, list[Raw]] = {}

    def report_written(self, report: Raw) -> None:
        """Note which nodes get their turn."""
        job_uid = report["spec"]["job"]["uid"]
        for record in ((report.get("status") or {}).get("nodeStates") or {}).values():
            key, at = (job_uid, record["uid"]), record.get("turnAt", "")
            if at and self._given.get(key, ("", []))[0] != at:
                self._given[key] = at, self.known(job_uid)

    def gate_removed(self, pod: Raw) -> None:
        """Note by which spec a pod may start."""
        uid = pod["metadata"]["uid"]
        self._released[uid] = self.known(self._oracle.job_of.get(uid, ""))

    def known(self, job_uid: str) -> list[Raw]:
        """Return the specs one of which the controller knew that writes now."""
        decision = self._oracle.holds.gates_decided.get(job_uid)
        if decision is None:
            return self._all(job_uid)
        return self._oracle.completion.known(job_uid, decision.jobs_until)

    def of(self, job_uid: str, runs: Iterable[PodRun]) -> list[Raw]:
        """Return the specs by which these pods may have started; all for one without a turn."""
        found: list[Raw] = []
        for run in runs:
            given = self._given.get((job_uid, run.machine.uid))
            found += self._all(job_uid) if given is None else given[1]
            found += self._released.get(run.pod_uid, ())
        return found

    def is_changed(self, job_uid: str) -> bool:
        """Return whether the rollout of a Job was changed."""
        first, *others = (spec.get("rollout") for spec in self._all(job_uid))
        return any(each != first for each in others)

    def _all(self, job_uid: str) -> list[Raw]:
        return list(self._oracle.completion.specs[job_uid].values())
