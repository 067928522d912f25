"""A node whose task reboots it has the time to come back that its Job names.

`backoffLimit` may count the end that the reboot brings (docs/how-to/reboot-nodes.md). A lower one
counts it later as well. A node counts as away from when it is not Ready.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw
from tests.simulation.settings import NODE_UNREACHABLE_GRACE_PERIOD_SECONDS

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "reboot",
        "A node that its own task reboots, and that is back in the time that the Job allows, is "
        "recorded neither as failed nor as unreachable. Its backoffLimit has to permit the end.",
        mutant="ignores_time_to_be_away",
        seed=435,
    ),
)

DEFAULT_BACKOFF_LIMIT = 6
# From the return of a node until that is known everywhere, and its task has started again.
RETURN_SECONDS = 3.0


@dataclass(slots=True)
class Reboots:
    """Receives tasks that reboot their nodes, and records."""

    world: World
    oracle: Oracle
    # By UIDs of a Job and of a node: until when it may be away.
    until: dict[tuple[str, str], float] = field(default_factory=dict)
    # The UIDs of the Jobs whose tasks rebooted a node, by its name.
    rebooters: dict[str, set[str]] = field(default_factory=dict)
    # By UID of a Job: the tasks that rebooted their nodes, and at which attempt.
    ends: dict[str, list[tuple[PodRun, int]]] = field(default_factory=dict)

    def task_reboots(self, run: PodRun) -> None:
        """Note that a task reboots its node, and whether that may fail it."""
        job_uid = self.oracle.job_of.get(run.pod_uid, "")
        key, away = (job_uid, run.machine.uid), run.task.away
        spec = self.oracle.completion.newest(job_uid)
        self.rebooters.setdefault(run.machine.name, set()).add(job_uid)
        self.ends.setdefault(job_uid, []).append((run, run.attempts))
        if away > allowed_seconds(spec) or run.attempts > allowed_failures(spec):
            self.oracle.failures.allow_failure_of(run)
            self.until.pop(key, None)
        elif not self._is_disturbed(run):
            self.until[key] = self.world.loop.moment + away + RETURN_SECONDS

    def is_of_another_job(self, node: str, job_uid: str) -> bool:
        """Whether another Job rebooted the node, which this one may call unreachable for that."""
        return bool(self.rebooters.get(node, set()) - {job_uid})

    def job_written(self, job: Raw) -> None:
        """Note which nodes have failed too often by the `backoffLimit` that a Job has now."""
        for run, attempts in self.ends.get(job["metadata"]["uid"], ()):
            if attempts > allowed_failures(job["spec"]):
                self.oracle.failures.allow_failure_of(run)

    def _is_disturbed(self, run: PodRun) -> bool:
        """Whether anything else happens to the node, or to the fields that count for it."""
        kinds = {"edit", "down", "shutdown", "not_ready", "no_network", "retry"}
        return any(
            d.what == run.machine.name or d.kind in kinds for d in self.world.schedule.disturbances
        ) or bool({"nodeDeadlineSeconds", "activeDeadlineSeconds"} & run.plan.spec.keys())

    def judge_report(self, report: Raw) -> None:
        """Judge what a report says of a node that is on its way back."""
        job_uid, now = report["spec"]["job"]["uid"], self.world.loop.moment
        records = (report.get("status") or {}).get("nodeStates") or {}
        for node, record in records.items():
            until = self.until.get((job_uid, record.get("uid") or ""))
            if until is None or now > until or record.get("state") not in {"Failed", "Unreachable"}:
                continue
            words = f"{node} reboots, and is called {record['state']}: {record.get('message')}"
            self.oracle.violate("reboot", words)
            del self.until[job_uid, record["uid"]]


def allowed_seconds(spec: Raw) -> float:
    """Return how long a node may be away by a raw spec."""
    return float(spec.get("nodeUnreachableSeconds") or NODE_UNREACHABLE_GRACE_PERIOD_SECONDS)


def allowed_failures(spec: Raw) -> int:
    """Return how often the task may fail on a node by a raw spec before the node has failed."""
    return int(spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT))
