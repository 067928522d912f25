"""With `rollout.pullImagesFirst` no task starts before the images are on the nodes.

These are the nodes that are desired when the pull ends. One that becomes desired after that pulls
the images with its own pod.

A pod whose gate was removed after a pull has the images of that one. Another pull may have begun
since, for what a user has changed: guarantees.md says that such a pod may still start its task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import find_job
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "images first",
        "The first task of a Job with pullImagesFirst starts when the pull has ended. All nodes "
        "that were desired then have the images, but for as many as maxFailedNodes allows.",
        mutant="starts_before_images",
        seed=9,
    ),
)


class ImagesFirst:
    """Receives Jobs, their ends and tasks; which Jobs pull for others is known by their owners."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By the UID of a Job that pulls: for which Job.
        self._pulls: dict[str, str] = {}
        # By the UID of a Job: the UIDs of the nodes that were desired when its pull ended, and of
        # those that have the images.
        self._desired: dict[str, set[str]] = {}
        self._pulled: dict[str, set[str]] = {}
        # By the UID of a pod: both for the pull that had ended when its gate was removed.
        self._released: dict[str, tuple[set[str], set[str]]] = {}
        self._begun: set[str] = set()

    def job_made(self, job: Raw) -> None:
        """Note which Job pulls the images of another one."""
        owner = controller_of(job)
        if owner and job["metadata"]["name"].endswith("-image-pull"):
            self._pulls[job["metadata"]["uid"]] = owner
            self._desired.pop(owner, None)
            self._pulled[owner] = set()

    def claimed(self, job_uid: str, desired: Iterable[str]) -> None:
        """Note that a Job is called complete, which is for nodes with these UIDs."""
        if owner := self._pulls.get(job_uid):
            self._desired[owner] = set(desired)

    def gate_removed(self, pod: Raw) -> None:
        """Note which pull had ended when a pod may start."""
        uid = pod["metadata"]["uid"]
        owner = self._oracle.job_of.get(uid, "")
        if owner in self._desired:
            self._released[uid] = self._desired[owner], self._pulled[owner]

    def task_succeeds(self, run: PodRun) -> None:
        """Note that the images are on a node."""
        if owner := self._pulls.get(self._oracle.job_of.get(run.pod_uid, "")):
            self._pulled[owner].add(run.machine.uid)

    def task_starts(self, run: PodRun) -> None:
        """Judge the first start of a task of a Job."""
        uid = self._oracle.job_of.get(run.pod_uid, "")
        job = find_job(self._world.server, uid)
        if job is None or run.is_forged or uid in self._begun:
            return
        self._begun.add(uid)
        specs = self._oracle.turn_specs.of(uid, [run])
        if not all((spec.get("rollout") or {}).get("pullImagesFirst") for spec in specs):
            return
        current = self._desired.get(uid), self._pulled.get(uid, set())
        needed, pulled = self._released.get(run.pod_uid, current)
        if needed is None:
            words = f"{run.machine.name} starts, and no pull has ended"
            self._oracle.violate("images first", words)
            return
        desired = set(self._oracle.completion.desired(job).values())
        lacking = (desired & needed) - pulled
        limit = (job["spec"].get("failurePolicy") or {}).get("maxFailedNodes", 0)
        if isinstance(limit, str):
            # A node that has the images, and has left since, was counted when the pull ended.
            limit = int(limit.rstrip("%")) * len(desired | needed | pulled) // 100
        if len(lacking) > limit:
            words = f"{run.machine.name} starts, and {sorted(lacking)} have not pulled"
            self._oracle.violate("images first", words)
