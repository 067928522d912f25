"""A completed node does not start again, and a Job that says it is suspended starts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import find_job, is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "started again",
        "Once the completion of a node is in the ledger, no other pod starts its task, unless the "
        "node is due again (`demands`).",
        mutant="removes_gates_of_completed_nodes",
        seed=14,
        excuses={
            "window": "The pod was created without the gate before the gate was due (`gates`).",
            "recreated": "The DaemonSet was created again, and the controller's watch had not "
            "delivered the evidence (`gates`).",
            "stale read": "The gate was removed after a read of the ledger older than the entry.",
        },
    ),
    Invariant(
        "suspended",
        "While the status of a Job says that it is suspended, no pod is created without the gate.",
        mutant="reports_pause_early",
        seed=2953,
    ),
)


class Starts:
    """Receives starting tasks and new pods."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle

    def task_starts(self, run: PodRun) -> None:
        """Judge the start of an instance of the task."""
        self._oracle.started_nodes.task_starts(run)
        self._oracle.demands.task_starts(run)
        job_uid = self._oracle.job_of.get(run.pod_uid, "")
        entry = self._oracle.evidence.entered.get((job_uid, run.machine.name))
        if entry is None or entry[0] != run.machine.uid or entry[1] == run.pod_name:
            return
        if len(run.logs) > 1:
            return  # the kubelet's own restart
        demands, node = self._oracle.demands, run.machine
        pod_uid = self._oracle.evidence.entered_pods.get((job_uid, node.name))
        if job_uid in demands.images and demands.may_run_again(
            job_uid, node.name, node.uid, pod_uid
        ):
            return
        excuse, words = self._oracle.gates.judge_start(run.pod_uid, job_uid, entry[2])
        if excuse:
            self._oracle.excuse("started again", excuse)
        else:
            self._oracle.violate("started again", f"{run.machine.name} in {run.pod_name}: {words}")

    def judge_pause(self, pod: Raw) -> None:
        """Judge the making of a pod: a Job that says it is suspended lets no more nodes start."""
        if pod["spec"].get("schedulingGates"):
            return
        job_uid = self._oracle.job_of[pod["metadata"]["uid"]]
        job = find_job(self._world.server, job_uid) or {}
        # A run that a user has just resumed says so until the controller has written it.
        asked = job.get("spec", {}).get("suspend") and is_true(job, "Suspended")
        if asked or is_true(job, "Suspended", "MaxFailedNodesExceeded"):
            self._oracle.violate("suspended", f"{pod['metadata']['name']} is made without the gate")
