"""Who is rolled back, and when, by what runs on the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemonset_job.api.container import STATUS_UNKNOWN
from daemonset_job.api.names import ANNOTATION_ROLLBACK
from tests.simulation.oracle.facts import find_job, is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.pod_status import task_status
from tests.simulation.server import NODES, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "rollback",
        "A rollback runs on each node whose task has started and that can be reached, and on no "
        "other node. While it runs there, nothing of the task does. The Job is not deleted before "
        "its rollback has ended.",
        mutant="rolls_back_beside_tasks",
        seed=200,
        excuses={
            "away": "The node was away when the rollback ended, or a moment before.",
            "unrecorded": "The pod was gone before its start was on record.",
            "lost": "A pod ended before its task started, and its kubelet says, as of a task that "
            "it cannot find any more: ContainerStatusUnknown.",
            "killed late": "A pod is deleted by force, and its kubelet is about to kill its task.",
        },
    ),
)

# For how long a node has to have been there when the rollback ends: the product sees it by then.
THERE_SECONDS = 30.0


class Rollbacks:
    """Receives tasks that start and succeed, nodes, and Jobs that say that they are rolled back."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By the UID of a Job: the UIDs of nodes whose task has started, and that are rolled back.
        self._begun: dict[str, set[str]] = {}
        self._undone: dict[str, set[str]] = {}
        # By the UID of a Job: the UIDs of nodes whose kubelet says that it has lost a task.
        self._lost: dict[str, set[str]] = {}
        # By the UID of a Job: when it was rolled back.
        self.ended: dict[str, float] = {}
        # By the UID of a node: when it was last away.
        self._away: dict[str, float] = {}

    def node_written(self, old: Raw | None, new: Raw) -> None:
        """Note that a node is away, or has been until now."""
        if _has_taints(old) or _has_taints(new):
            self._away[new["metadata"]["uid"]] = self._world.loop.moment

    def pod_written(self, pod: Raw, job_uid: str) -> None:
        """Note that a kubelet says that it cannot find a task."""
        ended = task_status(pod).get("state", {}).get("terminated") or {}
        machine = self._world.machines.get(pod["spec"].get("nodeName", ""))
        if machine is not None and ended.get("reason") == STATUS_UNKNOWN:
            self._lost.setdefault(job_uid, set()).add(machine.uid)

    def task_starts(self, run: PodRun) -> None:
        """Judge the start of a task: of a rollback, or of a run that is rolled back."""
        if run.is_forged:
            return
        uid, machine = self._oracle.job_of.get(run.pod_uid, ""), run.machine
        parent = self._parent(uid)
        if not parent:
            self._begun.setdefault(uid, set()).add(machine.uid)
            if run.instance == 0:
                self._judge_first_start(run, uid)
            return
        if machine.uid in self._begun.get(parent, ()):
            pass
        elif machine.uid in self._lost.get(parent, ()):
            self._oracle.excuse("rollback", "lost")
        else:
            self._violate(run, f"{machine.name} is rolled back, and never started the task")
        for other in machine.pods.values():
            if self._oracle.job_of.get(other.pod_uid) != parent or other.is_over:
                continue
            is_done = self._oracle.is_entered(parent, machine.name, machine.uid)
            if other.is_at_work and not is_done:
                if other.pod() is None:
                    self._oracle.excuse("rollback", "killed late")
                    continue
                self._violate(run, f"{machine.name} is rolled back while the task is at work there")

    def _judge_first_start(self, run: PodRun, uid: str) -> None:
        """Judge the start of a task of a run that may say already that it is rolled back."""
        machine, ended = run.machine, self.ended.get(uid)
        if machine.uid in self._undone.get(uid, ()):
            self._violate(run, f"{machine.name} starts the task after its rollback")
            return
        if ended is None:
            return
        away = max(self._away.get(machine.uid, -1e9), machine.up_since or -1e9)
        if ended - away >= THERE_SECONDS:
            self._violate(run, f"{machine.name} starts the task after the rollback has ended")
        else:
            self._oracle.excuse("rollback", "away")

    def task_succeeds(self, run: PodRun) -> None:
        """Note that a node is rolled back."""
        if parent := self._parent(self._oracle.job_of.get(run.pod_uid, "")):
            self._undone.setdefault(parent, set()).add(run.machine.uid)

    def job_written(self, old: Raw, new: Raw) -> None:
        """Judge a Job that says it is rolled back: all of its nodes that are there have to be."""
        if not is_true(new, "RolledBack") or is_true(old, "RolledBack"):
            return
        uid, now = new["metadata"]["uid"], self._world.loop.moment
        self.ended[uid] = now
        left = self._begun.get(uid, set()) - self._undone.get(uid, set())
        left_out = 0
        for node in self._world.server.all(NODES):
            if (node_uid := node["metadata"]["uid"]) not in left:
                continue
            machine = self._world.machines[node["metadata"]["name"]]
            away = max(self._away.get(node_uid, -1e9), machine.up_since or -1e9)
            name = node["metadata"]["name"]
            if (uid, node_uid) not in self._oracle.started_nodes.known:
                self._oracle.excuse("rollback", "unrecorded")
            elif machine.is_up and not _has_taints(node) and now - away >= THERE_SECONDS:
                words = f"{name} started the task and is not rolled back"
                self._oracle.violate("rollback", words)
            else:
                self._oracle.excuse("rollback", "away")
                left_out += 1
        if left_out > new["status"]["rollback"].get("unreachable", 0):
            self._oracle.violate("rollback", f"{left_out} nodes are left out, and not all counted")

    def is_asked(self, job: Raw) -> bool:
        """Return whether a user wants the run rolled back: by its policy, or by a request."""
        policy = job["spec"].get("failurePolicy") or {}
        by_policy = policy.get("action") == "Rollback" and is_true(job, "Failed")
        return by_policy or ANNOTATION_ROLLBACK in (job["metadata"].get("annotations") or {})

    def judge_deletion(self, job: Raw) -> None:
        """Judge the deletion of a Job by the terminator: its rollback is over, if there is one."""
        if self.is_asked(job) and not is_true(job, "RolledBack"):
            words = f"{job['metadata']['name']} is deleted before its rollback has ended"
            self._oracle.violate("rollback", words)

    def judge_rest(self, job: Raw) -> None:
        """Judge a Job at rest: a run that is to be rolled back is, or it waits."""
        if not self.is_asked(job) or is_true(job, "RolledBack"):
            return
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        if any(self._is_kept(machine.name, uid) for machine in self._world.machines.values()):
            return
        found = [c for c in job["status"]["conditions"] if c["type"] == "RolledBack"]
        self._oracle.violate("rollback", f"{name} is to be rolled back, and is not: {found}")

    def _is_kept(self, node: str, uid: str) -> bool:
        """Whether something that the product cannot change keeps a node from being rolled back.

        A node that is away keeps no rollback from its end: it is left out.
        """
        machine = self._world.machines[node]
        return machine.is_up and any(
            run.is_at_work_for_ever and "running" in run.state
            for run in machine.pods.values()
            if self._oracle.job_of.get(run.pod_uid) == uid and not run.is_over
        )

    def _parent(self, uid: str) -> str:
        """Return the UID of the Job that a rollback's Job is of, "" for another Job."""
        job = find_job(self._world.server, uid)
        is_rollback = job is not None and "-rollback" in job["metadata"]["name"]
        return controller_of(job) if job is not None and is_rollback else ""

    def _violate(self, run: PodRun, words: str) -> None:
        self._oracle.violate("rollback", f"{words} ({run.pod_name})")


def _has_taints(node: Raw | None) -> bool:
    return bool(node and (node.get("spec") or {}).get("taints"))
